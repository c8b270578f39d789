from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from oracle.batch import UNCHANGED, Split, block_table_rows, require_starts, split_decodes_and_prefills
from oracle.rules import Refused, require, require_int
from oracle.types import NULL_BLOCK_ID
from oracle.variants import DOCUMENTS, Variants

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class StepRow:
    """What one request brings to a step.

    `seq_len` is the request's length after the step, in tokens, and `blocks` its row of the block
    table. A row without tokens is padding and has length 0. The optional values count only where
    the step says that it has them; `accepted` and `drafts` are those of the last and of this step.
    """

    query_len: int
    seq_len: int
    blocks: tuple[int, ...]
    prefilling: bool | None = None
    seq_len_upper_bound: int | None = None
    accepted: int | None = None
    drafts: int | None = None

    @property
    def is_padding(self) -> bool:
        """Whether the row is there for the shape of a full graph alone."""
        return self.query_len == 0

    @property
    def num_computed(self) -> int:
        """Tokens computed before the step."""
        return self.seq_len - self.query_len


@dataclass(frozen=True)
class BuilderStep:
    """One step's batch: its rows, and what the engine says about all of them together.

    `on_host` says that sequence lengths and accepted counts lie in host memory, where their values
    are checked; elsewhere the same rules are preconditions. A block-table column beyond the row's
    blocks has no meaning at all, so lengths that need one are refused here in either case.
    """

    rows: tuple[StepRow, ...]
    num_actual_tokens: int
    max_query_len: int
    has_prefilling: bool
    has_upper_bound: bool
    has_accepted: bool
    has_drafts: bool = False
    on_host: bool = True

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each row's tokens start in the batch, and where the last one's end."""
        return starts_of(self.rows)

    @property
    def tells_prefills(self) -> bool:
        """Whether the host can tell a short prompt chunk from a decode."""
        return self.has_prefilling or self.has_upper_bound


@dataclass(frozen=True)
class BuilderConfig:
    """What a builder is constructed with; `num_spec` drafts per step, sizes in tokens.

    `chunk_size` is that of the Mamba-2 model; the other builders have no use for it. `profile` has the builder's variants of rules.
    """

    mode: str
    block_size: int
    num_spec: int
    num_speculative_blocks: int
    max_num_seqs: int
    max_cudagraph_capture_size: int | None
    full_cudagraphs: bool
    max_model_len: int
    chunk_size: int | None = None
    profile: Variants = DOCUMENTS

    @property
    def mamba2_chunk(self) -> int:
        """The chunk size of a Mamba-2 builder, which has one; see `require_config`."""
        assert self.chunk_size is not None, "a Mamba-2 builder without a chunk size"
        return self.chunk_size


def require_config(config: BuilderConfig, kind: str) -> None:
    """Refuse what the constructor of this kind of builder refuses.

    A draft needs a block of its own unless every block is kept, and then the longest request tells how many there are. Mamba-1 has no kernel for drafts,
    and GDN reads column 0, which is the running one in no batch of mode "all".
    """
    modes = ("none", "align") if kind == "gdn" else ("none", "align", "all")
    require(config.mode in modes, "mamba_cache_mode", config.mode, f"be one of {modes}")
    require_int("block_size", config.block_size, minimum=1)
    require_int("max_num_seqs", config.max_num_seqs, minimum=1)
    if config.mode != "all":
        require_int("num_speculative_blocks", config.num_speculative_blocks, minimum=config.num_spec)
    if config.mode == "all":
        require_int("max_model_len", config.max_model_len, minimum=1)
    if kind == "mamba1":
        require(config.num_spec == 0, "num_speculative_tokens", config.num_spec, "be 0")
    if kind == "mamba2":
        require_int("chunk_size", config.chunk_size, minimum=1)


def reorder_batch_threshold(config: BuilderConfig) -> int:
    """The longest decode: the bonus token and every draft.

    Parallel drafting does not widen it, as a row has states for no more drafts, and decode context
    parallelism does not narrow it, as states are not sharded by context.
    """
    return 1 + config.num_spec


def graph_limit(config: BuilderConfig, kind: str) -> int:
    """The most rows for which a builder has buffers: those of the scheduler, or the largest captured size.

    GDN counts tokens, of which a row has up to one and every draft.
    """
    per_row = 1 + config.num_spec if kind == "gdn" else 1
    limit = config.max_num_seqs * per_row
    captured = config.max_cudagraph_capture_size
    return limit if captured is None else min(limit, captured)


def fits_graph_buffers(step: BuilderStep, config: BuilderConfig, kind: str) -> bool:
    """Whether a batch that has decodes alone may run as a full graph."""
    return config.full_cudagraphs and len(step.rows) <= graph_limit(config, kind)


def starts_of(rows: Sequence[StepRow]) -> tuple[int, ...]:
    """Where each row starts if the rows lie end to end, and where the last one ends."""
    return tuple(accumulate((row.query_len for row in rows), initial=0))


def require_step(step: BuilderStep) -> None:
    """Refuse what every builder refuses, whatever its configuration."""
    starts = step.starts
    require_starts("query_start_loc_cpu", starts)
    for r, row in enumerate(step.rows):
        padding_at_the_back = not row.is_padding or all(other.is_padding for other in step.rows[r:])
        rule = f"be > query_start_loc_cpu[{r}] = {starts[r]}, as only the last rows may be empty"
        require(padding_at_the_back, f"query_start_loc_cpu[{r + 1}]", starts[r + 1], rule)

    if step.has_upper_bound:
        for r, row in enumerate(step.rows):
            if not row.is_padding:
                require_int(f"seq_lens_cpu_upper_bound[{r}]", row.seq_len_upper_bound, minimum=row.query_len)

    longest = max((row.query_len for row in step.rows), default=0)
    require_int("max_query_len", step.max_query_len, minimum=longest)
    require_int("num_actual_tokens", step.num_actual_tokens, minimum=starts[-1])


def as_captured(step: BuilderStep) -> BuilderStep:
    """The step for which a graph is captured: every row is a decode that is known to be one.

    Each row offers all its tokens but the first as drafts, and as many as it has tokens were accepted before.
    """
    rows = tuple(
        replace(row, prefilling=False, drafts=row.query_len - 1, accepted=row.query_len) for row in step.rows
    )
    return replace(
        step, rows=rows, has_prefilling=True, has_upper_bound=False, has_accepted=True, has_drafts=True
    )


def is_prefill(step: BuilderStep, row: StepRow) -> bool:
    """Whether the host knows that a row must not be a decode, however short it is.

    It is still in its prompt, or the step computes everything that it has, so that there is no
    state to read.
    """
    in_prompt = step.has_prefilling and bool(row.prefilling)
    first_chunk = step.has_upper_bound and not row.is_padding and row.seq_len_upper_bound == row.query_len
    return in_prompt or first_chunk


def decodes_a_tail(row: StepRow, profile: Variants) -> bool:
    """Whether a builder takes a row in its prompt for a decode all the same: one token, and a state to read."""
    return profile.tails_decode and row.query_len == 1 and row.num_computed > 0


def classify(step: BuilderStep, decode_threshold: int, profile: Variants) -> Split:
    """Decodes are the rows before the first one that is too long or known to be a prefill.

    Where nothing tells prefills from decodes, length alone decides, and every row that it makes a
    decode must have a state to read. Source: contract 1.2, document 1, `_compute_common_metadata`.
    """
    if step.tells_prefills:
        marks = [is_prefill(step, row) and not decodes_a_tail(row, profile) for row in step.rows]
        return split_decodes_and_prefills(
            step.starts,
            step.num_actual_tokens,
            step.max_query_len,
            decode_threshold,
            treat_short_extends_as_decodes=False,
            is_prefilling=marks,
        )
    split = split_decodes_and_prefills(
        step.starts, step.num_actual_tokens, step.max_query_len, decode_threshold
    )
    require_prior_state(step, range(split.num_decodes))
    return split


def require_prior_state(step: BuilderStep, decodes: Sequence[int]) -> None:
    """Refuse a decode without computed tokens where only its length made it one."""
    if step.tells_prefills or not step.on_host:
        return
    for r in decodes:
        row = step.rows[r]
        stateless = not row.is_padding and row.num_computed <= 0
        rule = f"be given, as row {r} is a decode by its length but has no computed token"
        require(not stateless, "is_prefilling", None, rule)


def require_table_columns(table: Rows, config: BuilderConfig, argument: str) -> None:
    """Refuse a table without a column for each state of a row; in mode "all" a row may have any number of them."""
    if config.mode == "all":
        return
    columns = 1 + (config.num_speculative_blocks if config.mode == "align" else config.num_spec)
    rule = f"have at least {columns} columns"
    require(all(len(row) >= columns for row in table), argument, table, rule)


def running_columns(step: BuilderStep, config: BuilderConfig) -> Rows:
    """The blocks of each row whose states the step may touch, the running one first.

    Mode "none" runs in column 0 for ever, "align" in the column of the last token; both go on with
    a column per draft. Mode "all" touches any column, so it keeps the row. Source: contract 1.4.
    """
    table = tuple(row.blocks for row in step.rows)
    columns = 1 + config.num_spec
    require_table_columns(table, config, "block_table_tensor")
    match config.mode:
        case "none":
            return tuple(row[:columns] for row in table)
        case "align":
            seq_lens = [row.seq_len for row in step.rows]
            gathered = block_table_rows(
                table, seq_lens, config.block_size, config.num_speculative_blocks, "align"
            )
            assert gathered is not UNCHANGED
            return tuple(row[:columns] for row in gathered)
        case _:
            return table


def without_padding(step: BuilderStep, table: Rows, filler: int) -> Rows:
    """A row of padding has no blocks: whatever its table row says, each column is the filler."""
    return tuple(
        (filler,) * len(blocks) if row.is_padding else blocks
        for row, blocks in zip(step.rows, table, strict=True)
    )


def decode_table(step: BuilderStep, config: BuilderConfig) -> Rows:
    """Blocks for kernels that skip a row by a negative block, or by the null block where the profile says so."""
    return without_padding(step, running_columns(step, config), config.profile.padding_block)


def indexing_table(step: BuilderStep, config: BuilderConfig) -> Rows:
    """Blocks for an assignment by index, where -1 would hit the last block of the pool."""
    return without_padding(step, running_columns(step, config), NULL_BLOCK_ID)


def accepted_counts(step: BuilderStep, config: BuilderConfig, rows: Sequence[int]) -> tuple[int, ...]:
    """How many tokens each of the rows accepted in the last step; padding accepted one.

    A count is at least the bonus token and at most that and every draft.
    """
    counts: list[int] = []
    for r in rows:
        row = step.rows[r]
        if not step.has_accepted or row.accepted is None:
            raise Refused("num_accepted_tokens", None, f"be given, with an entry for row {r}")
        if row.is_padding:
            counts.append(1)
            continue
        if step.on_host:
            rule = f"be in 1..{1 + config.num_spec}"
            legal = 1 <= row.accepted <= 1 + config.num_spec
            require(legal, f"num_accepted_tokens[{r}]", row.accepted, rule)
        counts.append(row.accepted)
    return tuple(counts)
