from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from oracle.batch import Split
from oracle.builders import batch
from oracle.builders.base import on_table
from oracle.builders.batch import BuilderConfig, BuilderStep, Rows, StepRow, starts_of
from oracle.chunks import FLA_CHUNK_SIZE, ConvPrograms, causal_conv1d_metadata, chunk_indices, chunk_offsets
from oracle.rules import Refused, require, rule
from oracle.types import NULL_BLOCK_ID
from oracle.variants import Variants

T = TypeVar("T")


_INT32: Final = "int32"
_INT64: Final = "int64"
_NON_SPEC_BUFFERS: Final = frozenset({"non_spec_state_indices_tensor", "non_spec_query_start_loc"})
_SPEC_BUFFERS: Final = frozenset(
    {
        "spec_state_indices_tensor",
        "spec_sequence_masks",
        "spec_token_indx",
        "non_spec_token_indx",
        "spec_query_start_loc",
        "num_accepted_tokens",
    }
)


@dataclass(frozen=True, kw_only=True)
class GDNMetadata:
    """Metadata of a Gated DeltaNet layer's step: rows that carry drafts apart from those that do not.

    A field is None where the step has no use for it. `token_index_dtype` is the type of both lists
    of token positions. `owned` names the fields that a full graph reads, which therefore live in
    the builder's own buffers. Source: contract 1.12.
    """

    num_prefills: int
    num_prefill_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_spec_decodes: int
    num_spec_decode_tokens: int
    num_actual_tokens: int
    has_initial_state: tuple[bool, ...] | None = None
    spec_query_start_loc: tuple[int, ...] | None = None
    non_spec_query_start_loc: tuple[int, ...] | None = None
    spec_state_indices_tensor: Rows | None = None
    non_spec_state_indices_tensor: tuple[int, ...] | None = None
    spec_sequence_masks: tuple[bool, ...] | None = None
    num_accepted_tokens: tuple[int, ...] | None = None
    chunk_indices: tuple[tuple[int, int], ...] | None = None
    chunk_offsets: tuple[int, ...] | None = None
    spec_token_indx: tuple[int, ...] | None = None
    non_spec_token_indx: tuple[int, ...] | None = None
    token_index_dtype: Literal["int32", "int64"] | None = None
    conv: ConvPrograms | None = None
    owned: frozenset[str] = frozenset()


@rule
def gdn_metadata(step: BuilderStep, config: BuilderConfig, capture: bool = False) -> GDNMetadata:
    """The metadata that the GDN builder gives for a step.

    With `capture` it is that of a full graph's capture, whose rows are decodes by definition.
    Source: document 3, `build` and `build_for_cudagraph_capture`.
    """
    batch.require_step(step)
    if capture:
        _require_capturable(step, config)
        step = batch.as_captured(step)
    if config.num_spec > 0:
        _require_speculation(step, config)

    return _metadata(step, config)


@rule
def updated_gdn_metadata(step: BuilderStep, config: BuilderConfig, table: Rows) -> GDNMetadata:
    """The metadata of the same step for another group's block table: only the blocks differ.

    No document has this method for GDN; vLLM 0.33 has. What is right follows from the law that a layer
    reads and writes the blocks of its own group, and from `build` for all the rest.
    """
    return gdn_metadata(on_table(step, config, table), config)


def _metadata(step: BuilderStep, config: BuilderConfig) -> GDNMetadata:
    spec_rows = [r for r, row in enumerate(step.rows) if is_spec_row(step, config, row)]
    if not spec_rows:
        return _without_speculation(step, config)
    batch.require_prior_state(step, spec_rows)
    metadata = _with_speculation(step, config, spec_rows)
    if metadata.num_prefills > 0:
        return _mixed(metadata, step, config, spec_rows)
    return _pure(metadata, step, config)


def is_spec_row(step: BuilderStep, config: BuilderConfig, row: StepRow) -> bool:
    """Whether a row reads its state at the offset of the tokens that it accepted in the last step.

    That is any decode with drafts, none included; and where the host can tell decodes from prompt
    chunks, also a decode without drafts, since it may still have accepted some.
    Builders that tell by the drafts alone read the same state where one token was accepted.
    """
    if config.num_spec == 0 or not step.has_accepted or not is_decode(step, row):
        return False
    drafted = drafts_of(step, row) >= 0
    if config.profile.gdn_plain_decodes and row.accepted == 1:
        return drafted and any(drafts_of(step, other) > 0 for other in step.rows)
    alone = row.query_len == 1 and step.tells_prefills
    return drafted or alone


def is_decode(step: BuilderStep, row: StepRow) -> bool:
    """Whether the host does not know the row for a prefill."""
    return not row.is_padding and not batch.is_prefill(step, row)


def drafts_of(step: BuilderStep, row: StepRow) -> int:
    """How many tokens of a row are drafts, -1 if it was offered none."""
    return row.drafts if step.has_drafts and row.drafts is not None else -1


def _require_capturable(step: BuilderStep, config: BuilderConfig) -> None:
    limit = batch.graph_limit(config, "gdn")
    longest, allowed = max((row.query_len for row in step.rows), default=0), 1 + config.num_spec
    require(len(step.rows) <= limit, "num_reqs", len(step.rows), f"be <= {limit}")
    require(step.num_actual_tokens <= limit, "num_actual_tokens", step.num_actual_tokens, f"be <= {limit}")
    require(longest <= allowed, "max_query_len", longest, f"be <= {allowed}")


def _require_speculation(step: BuilderStep, config: BuilderConfig) -> None:
    """Drafts are the row's tokens but one, and nothing that was accepted may be dropped."""
    for r, row in enumerate(step.rows):
        drafts, name = drafts_of(step, row), f"num_decode_draft_tokens_cpu[{r}]"
        require(-1 <= drafts <= config.num_spec, name, drafts, f"be in -1..{config.num_spec}")
        fits = drafts < 0 or row.is_padding or row.query_len == drafts + 1
        require(fits, name, drafts, f"be -1 or {row.query_len - 1}, the row's tokens but one")

    if not step.has_accepted:
        if any(is_decode(step, row) and drafts_of(step, row) >= 0 for row in step.rows):
            raise Refused("num_accepted_tokens", None, "be given where decodes carry drafts")
        return
    counted = all(row.accepted is not None for row in step.rows)
    require(counted, "num_accepted_tokens", len(step.rows), "have an entry for each row")
    if step.on_host:
        for r, row in enumerate(step.rows):
            # Every other row's state is read without an offset.
            dropped = not row.is_padding and not is_spec_row(step, config, row) and row.accepted != 1
            require(not dropped, f"num_accepted_tokens[{r}]", row.accepted, "be 1 for a row without drafts")


def _without_speculation(step: BuilderStep, config: BuilderConfig) -> GDNMetadata:
    """All rows are decodes of one token or prefills, each with the one block that it runs in."""
    split = batch.classify(step, 1, config.profile)
    counted = [row for row in step.rows[split.num_decodes :] if _counts(row, config.profile)]
    metadata = GDNMetadata(
        num_prefills=len(counted),
        num_prefill_tokens=_prefill_tokens(split, counted, config.profile),
        num_decodes=split.num_decodes,
        num_decode_tokens=split.num_decode_tokens,
        num_spec_decodes=0,
        num_spec_decode_tokens=0,
        num_actual_tokens=step.num_actual_tokens,
        non_spec_query_start_loc=step.starts,
        non_spec_state_indices_tensor=tuple(row[0] for row in batch.indexing_table(step, config)),
    )
    if split.num_prefills:
        return _with_prefills(metadata, step.rows, config.profile, split.num_decodes)
    if batch.fits_graph_buffers(step, config, "gdn"):
        return replace(metadata, owned=_NON_SPEC_BUFFERS)
    return metadata


def _counts(row: StepRow, profile: Variants) -> bool:
    """Whether a row counts among prefills. Where padding counts, too, the profile says so."""
    return profile.gdn_counts_padding or not row.is_padding


def _prefill_tokens(split: Split, counted: Sequence[StepRow], profile: Variants) -> int:
    return split.num_prefill_tokens if profile.gdn_padded_tokens else sum(row.query_len for row in counted)


def _with_speculation(step: BuilderStep, config: BuilderConfig, spec_rows: Sequence[int]) -> GDNMetadata:
    """Rows with drafts bring a column per draft; beside them every other row is a prefill."""
    drafted = [step.rows[r] for r in spec_rows]
    others = [row for r, row in enumerate(step.rows) if r not in spec_rows]
    table = batch.indexing_table(step, config)
    return GDNMetadata(
        num_prefills=sum(not row.is_padding for row in others),
        num_prefill_tokens=sum(row.query_len for row in others),
        num_decodes=0,
        num_decode_tokens=0,
        num_spec_decodes=len(drafted),
        num_spec_decode_tokens=sum(row.query_len for row in drafted),
        num_actual_tokens=step.num_actual_tokens,
        spec_query_start_loc=starts_of(drafted),
        spec_state_indices_tensor=tuple(table[r] for r in spec_rows),
        spec_sequence_masks=tuple(r in spec_rows for r in range(len(step.rows))),
        num_accepted_tokens=batch.accepted_counts(step, config, spec_rows),
    )


def _mixed(
    metadata: GDNMetadata, step: BuilderStep, config: BuilderConfig, spec_rows: Sequence[int]
) -> GDNMetadata:
    """Both sides list where their tokens lie in the batch; the other rows keep their padding."""
    other_rows = [r for r in range(len(step.rows)) if r not in spec_rows]
    others = [step.rows[r] for r in other_rows]
    table = batch.indexing_table(step, config)
    metadata = replace(
        metadata,
        non_spec_query_start_loc=starts_of(others),
        non_spec_state_indices_tensor=tuple(table[r][0] for r in other_rows),
        spec_token_indx=_positions(step, spec_rows),
        non_spec_token_indx=_positions(step, other_rows),
        token_index_dtype=_INT64,
    )
    return _with_prefills(metadata, others, config.profile)


def _positions(step: BuilderStep, rows: Sequence[int]) -> tuple[int, ...]:
    """Where the tokens of these rows lie among all tokens of the batch."""
    starts = step.starts
    return tuple(position for r in rows for position in range(starts[r], starts[r + 1]))


def _pure(metadata: GDNMetadata, step: BuilderStep, config: BuilderConfig) -> GDNMetadata:
    """Only rows with drafts and padding behind them: their tokens are all there are, in order."""
    metadata = replace(
        metadata,
        spec_token_indx=tuple(range(metadata.num_spec_decode_tokens)),
        non_spec_token_indx=(),
        token_index_dtype=_INT32,
    )
    tokens_fit = metadata.num_spec_decode_tokens <= batch.graph_limit(config, "gdn")
    if tokens_fit and batch.fits_graph_buffers(step, config, "gdn"):
        return _for_full_graph(metadata, step, config)
    return metadata


def _for_full_graph(metadata: GDNMetadata, step: BuilderStep, config: BuilderConfig) -> GDNMetadata:
    """A full graph sees all rows: behind those with drafts come null blocks, no tokens and a count of 1."""
    padding = len(step.rows) - metadata.num_spec_decodes
    no_blocks = (NULL_BLOCK_ID,) * (1 + config.num_spec)
    return replace(
        metadata,
        spec_state_indices_tensor=_padded(metadata.spec_state_indices_tensor, padding, no_blocks),
        spec_query_start_loc=_padded(metadata.spec_query_start_loc, padding, metadata.num_spec_decode_tokens),
        num_accepted_tokens=_padded(metadata.num_accepted_tokens, padding, 1),
        owned=_SPEC_BUFFERS,
    )


def _padded(values: tuple[T, ...] | None, count: int, filler: T) -> tuple[T, ...]:
    assert values is not None
    return (*values, *(filler,) * count)


def _with_prefills(
    metadata: GDNMetadata, rows: Sequence[StepRow], profile: Variants, num_decodes: int = 0
) -> GDNMetadata:
    """Each of the rows, padding and decodes among them, goes through the prefill kernels.

    Where decodes go elsewhere, chunks are those of the rows behind them.
    """
    starts = starts_of(rows)
    chunked = starts if profile.gdn_chunks_of_decodes else starts_of(rows[num_decodes:])
    return replace(
        metadata,
        has_initial_state=tuple(not row.is_padding and row.num_computed > 0 for row in rows),
        chunk_indices=chunk_indices(chunked, FLA_CHUNK_SIZE),
        chunk_offsets=chunk_offsets(chunked, FLA_CHUNK_SIZE),
        conv=causal_conv1d_metadata(starts),
    )
