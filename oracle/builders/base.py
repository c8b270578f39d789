from collections.abc import Sequence
from dataclasses import dataclass, replace

from oracle.batch import Split
from oracle.builders import batch
from oracle.builders.batch import BuilderConfig, BuilderStep, Rows, StepRow, starts_of
from oracle.builders.mamba2 import PositionChunks, computed_on_host, position_chunks
from oracle.chunks import ConvPrograms, causal_conv1d_metadata
from oracle.rules import require, rule
from oracle.types import cdiv


@dataclass(frozen=True, kw_only=True)
class BaseMetadata:
    """Metadata of a Mamba layer's step; `_p` belongs to the prefill rows, `_d` to the decode rows.

    A field is None where the step or the cache mode has no use for it. `state_indices_tensor_p`
    has one block per row, or in mode "all" a row of blocks. `owned` names the fields that a full
    graph reads, which therefore live in the builder's own buffers. Source: contract 1.11.
    """

    num_prefills: int
    num_prefill_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_reqs: int
    has_initial_states_p: tuple[bool, ...] | None = None
    query_start_loc_p: tuple[int, ...] | None = None
    num_computed_tokens_p: tuple[int, ...] | None = None
    state_indices_tensor_p: tuple[int, ...] | Rows
    state_indices_tensor_d: Rows
    query_start_loc_d: tuple[int, ...] | None = None
    num_accepted_tokens: tuple[int, ...] | None = None
    block_idx_last_scheduled_token: tuple[int, ...] | None = None
    block_idx_first_scheduled_token_p: tuple[int, ...] | None = None
    block_idx_last_computed_token: tuple[int, ...] | None = None
    seq_lens: tuple[int, ...]
    cu_chunk_seqlen_p: tuple[int, ...] | None = None
    last_chunk_indices_p: tuple[int, ...] | None = None
    conv: ConvPrograms | None = None
    seq_idx_p: tuple[int, ...] | None = None
    chunk_size: int = 0
    prep_initial_states: bool = False
    owned: frozenset[str] = frozenset()


@rule
def base_metadata(
    step: BuilderStep, config: BuilderConfig, kind: str = "base", capture: bool = False
) -> BaseMetadata:
    """The metadata that the builder of this kind gives for a step.

    With `capture` it is that of a full graph's capture, whose rows are decodes by definition.
    Source: document 1, `build` and `build_for_cudagraph_capture`.
    """
    batch.require_step(step)
    if capture:
        _require_capturable(step, config, kind)
        step = batch.as_captured(step)

    # A row of several tokens is a decode only if it can say how many of its drafts were accepted.
    threshold = batch.reorder_batch_threshold(config) if step.has_accepted else 1
    split = batch.classify(step, threshold, config.profile)
    metadata = _common(step, config, split)
    if split.num_decodes > 0 and config.num_spec > 0:
        metadata = _with_speculation(metadata, step, config)
    if split.num_prefills > 0:
        metadata = _with_prefills(metadata, step, config, kind)
    if config.mode == "all":
        metadata = _with_block_indices(metadata, step, config)
    if kind == "mamba2":
        metadata = replace(metadata, chunk_size=config.mamba2_chunk)
    if split.num_prefills == 0 and batch.fits_graph_buffers(step, config, kind):
        return _for_full_graph(metadata, config)
    return metadata


@rule
def updated_block_table(
    step: BuilderStep, config: BuilderConfig, table: Rows, kind: str = "base", capture: bool = False
) -> BaseMetadata:
    """The metadata of the same step for another group's block table: only the blocks differ.

    Accepted counts would be those of the first group's buffers, so drafts are refused.
    Source: document 1, `update_block_table`.
    """
    require(config.num_spec == 0, "num_speculative_tokens", config.num_spec, "be 0")
    return base_metadata(on_table(step, config, table), config, kind, capture)


def on_table(step: BuilderStep, config: BuilderConfig, table: Rows) -> BuilderStep:
    """The same step on the blocks of another group of layers."""
    require(len(table) == len(step.rows), "blk_table", table, f"have {len(step.rows)} rows")
    batch.require_table_columns(table, config, "blk_table")
    rows = tuple(replace(row, blocks=blocks) for row, blocks in zip(step.rows, table, strict=True))
    return replace(step, rows=rows)


def _require_capturable(step: BuilderStep, config: BuilderConfig, kind: str) -> None:
    """A graph is captured for decodes of full length alone, and for no more rows than there are buffers."""
    longest, limit = 1 + config.num_spec, batch.graph_limit(config, kind)
    require(step.max_query_len == longest, "max_query_len", step.max_query_len, f"be {longest}")
    require(len(step.rows) <= limit, "num_reqs", len(step.rows), f"be <= {limit}")


def _common(step: BuilderStep, config: BuilderConfig, split: Split) -> BaseMetadata:
    """Every row's blocks: all columns of a decode, the running one of a prefill, all in mode "all"."""
    prefills = batch.indexing_table(step, config)[split.num_decodes :]
    return BaseMetadata(
        num_prefills=split.num_prefills,
        num_prefill_tokens=split.num_prefill_tokens,
        num_decodes=split.num_decodes,
        num_decode_tokens=split.num_decode_tokens,
        num_reqs=len(step.rows),
        state_indices_tensor_p=prefills if config.mode == "all" else tuple(row[0] for row in prefills),
        state_indices_tensor_d=batch.decode_table(step, config)[: split.num_decodes],
        seq_lens=tuple(row.seq_len for row in step.rows),
    )


def _with_speculation(metadata: BaseMetadata, step: BuilderStep, config: BuilderConfig) -> BaseMetadata:
    """Each decode says where its tokens start and how many it accepted before."""
    decodes = range(metadata.num_decodes)
    return replace(
        metadata,
        query_start_loc_d=starts_of(step.rows[: metadata.num_decodes]),
        num_accepted_tokens=batch.accepted_counts(step, config, decodes),
    )


def _with_prefills(
    metadata: BaseMetadata, step: BuilderStep, config: BuilderConfig, kind: str
) -> BaseMetadata:
    """Each prefill says where its tokens start, counted from the first prefill, and if it has a state."""
    rows = step.rows[metadata.num_decodes :]
    starts = starts_of(rows)
    metadata = replace(
        metadata,
        has_initial_states_p=tuple(not row.is_padding and row.num_computed > 0 for row in rows),
        query_start_loc_p=starts,
        conv=causal_conv1d_metadata(starts),
    )
    if kind == "mamba2":
        return _with_mamba2_chunks(metadata, step, rows, config)
    if kind == "mamba1" and config.mode == "all":
        chunks = position_chunks(rows, computed_on_host(step, rows), config.block_size)
        return _with_chunks(metadata, chunks)
    return metadata


def _with_chunks(metadata: BaseMetadata, chunks: PositionChunks) -> BaseMetadata:
    return replace(
        metadata,
        cu_chunk_seqlen_p=chunks.cu_chunk_seqlen_p,
        last_chunk_indices_p=chunks.last_chunk_indices_p,
    )


def _with_mamba2_chunks(
    metadata: BaseMetadata, step: BuilderStep, rows: Sequence[StepRow], config: BuilderConfig
) -> BaseMetadata:
    """Mamba-2 also needs the row of each chunk, and whether any prefill goes on from a state."""
    computed = computed_on_host(step, rows)
    chunks = position_chunks(rows, computed, config.mamba2_chunk)
    prep = any(count > 0 for count in computed)
    return replace(_with_chunks(metadata, chunks), seq_idx_p=chunks.seq_idx_p, prep_initial_states=prep)


def _with_block_indices(metadata: BaseMetadata, step: BuilderStep, config: BuilderConfig) -> BaseMetadata:
    """Columns that a step reads from and writes to when every block is kept."""
    prefills = step.rows[metadata.num_decodes :]
    metadata = replace(
        metadata,
        block_idx_last_scheduled_token=tuple(last_column(row.seq_len, config) for row in step.rows),
        block_idx_last_computed_token=tuple(last_column(row.num_computed, config) for row in step.rows),
    )
    if not prefills:
        return metadata
    return replace(
        metadata,
        block_idx_first_scheduled_token_p=tuple(next_column(row.num_computed, config) for row in prefills),
        num_computed_tokens_p=tuple(row.num_computed for row in prefills),
    )


def last_column(tokens: int, config: BuilderConfig) -> int:
    """The column of the last of this many tokens, 0 if there is none."""
    return max(cdiv(tokens, config.block_size) - 1, 0)


def next_column(tokens: int, config: BuilderConfig) -> int:
    """The column of the token that comes after this many."""
    return cdiv(tokens + 1, config.block_size) - 1


def kept_width(config: BuilderConfig) -> int:
    """Columns of the buffer for tables whose blocks are all kept."""
    spare = {"tokens": config.num_spec, "blocks": config.num_speculative_blocks}
    return cdiv(config.max_model_len, config.block_size) + spare[config.profile.kept_columns]


def _for_full_graph(metadata: BaseMetadata, config: BuilderConfig) -> BaseMetadata:
    """The same values in the builder's buffers; only a kept table has to take the buffer's width."""
    owned = {"state_indices_tensor_d"}
    if metadata.num_accepted_tokens is not None:
        owned |= (
            {"query_start_loc_d", "num_accepted_tokens"}
            if config.profile.starts_in_buffers
            else {"num_accepted_tokens"}
        )
    table = metadata.state_indices_tensor_d
    if config.mode == "all":
        owned |= {"block_idx_last_scheduled_token", "block_idx_last_computed_token"}
        width = kept_width(config)
        table = tuple((*row, *(config.profile.padding_block,) * width)[:width] for row in table)
    return replace(metadata, state_indices_tensor_d=table, owned=frozenset(owned))
