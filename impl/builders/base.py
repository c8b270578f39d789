"""The builder of Mamba metadata: a batch's decodes and prefills, and the blocks that hold their states."""

from copy import copy
from functools import partial
from typing import Any, TypeVar

import torch

from ..batch import CommonAttentionMetadata
from ..checks import Int64s, device_rows, int_at_least, refuse
from ..chunks import conv_programs, split_at_positions, upload_packed
from ..types import NULL_BLOCK_ID, PAD_SLOT_ID, cdiv
from .blocks import StateBlocks
from .columns import add_columns, token_columns
from .common import StateMetadataBuilder, moved, moved_ids
from .decodes import StagedDecodes, counted
from .host import (
    BatchReader,
    HostBatch,
    check_count_values,
    check_counts,
    check_decodes_have_state,
    computed_on_host,
    split_batch,
)
from .metadata import BaseMambaAttentionMetadata

M = TypeVar("M", bound=BaseMambaAttentionMetadata)


class BaseMambaAttentionMetadataBuilder(StateMetadataBuilder[M]):
    """Builds `metadata_cls` from one step's batch, without ever waiting for the device.

    A batch of decodes that fits a captured graph gets its tensors in this builder's own buffers, which keep
    their addresses; all other results are new tensors or views of the input.

    `kv_cache_spec`: block_size and num_speculative_blocks. `vllm_config`: num_speculative_tokens,
    speculative_config, compilation_config, scheduler_config.max_num_seqs, cache_config.mamba_cache_mode, and
    in mode all model_config.max_model_len.

    What is on a device cannot be checked without waiting: `query_start_loc` equals its host copy; `seq_lens`
    are computed tokens plus query, 0 for padding, at most max_model_len and what the table holds; accepted
    counts are in 1..1+m; and where neither `is_prefilling` nor `seq_lens_cpu_upper_bound` is given, a row
    that is short enough for a decode has prior state.

    Raises ValueError naming `num_speculative_tokens`, `num_speculative_blocks`, `mamba_cache_mode`,
    `block_size`, `max_num_seqs` or `max_model_len`. Source: document 1, BaseMambaAttentionMetadataBuilder.
    """

    metadata_cls: type[Any] = BaseMambaAttentionMetadata
    supports_update_block_table: bool = True
    # Tokens per chunk that the prefills are cut into; None for layers that scan in one go.
    _chunk_size_p: int | None = None

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        drafts = vllm_config.num_speculative_tokens
        self.num_spec_tokens = int_at_least("num_speculative_tokens", drafts, 0, type(self).__name__)
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, self.num_spec_tokens)
        self._limit_graphs(self._max_num_seqs)
        self._allocate_buffers(device)
        self.supports_update_block_table = not self.use_spec_decode

    def _allocate_buffers(self, device: torch.device) -> None:
        rows, columns = self.decode_cudagraph_max_bs, 1 + self.num_spec_tokens

        def empty(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=torch.int32, device=device)

        if self._mode == "all":
            columns = self._most_columns(self.kv_cache_spec.block_size)
            self.block_idx_last_scheduled_token = empty(rows)
            self.block_idx_last_computed_token = empty(rows)
        self.state_indices_tensor_d = empty(rows, columns)
        if self.use_spec_decode:
            self.decode_num_accepted_tokens = empty(rows)
            self.decode_query_start_loc = empty(rows + 1)
        self._device = self.state_indices_tensor_d.device
        self._read_batch = BatchReader(self._device)
        stage = partial(StagedDecodes, self._blocks, PAD_SLOT_ID, self.state_indices_tensor_d)
        self._stage = self._stage_counted = stage()
        if self.use_spec_decode:
            self._stage_counted = stage(self.decode_query_start_loc, self.decode_num_accepted_tokens)
        self._no_ids = torch.empty(0, dtype=torch.int32, device=device)

    def _most_columns(self, block_size: int) -> int:
        longest = self.vllm_config.model_config.max_model_len
        longest = int_at_least("max_model_len", longest, 1, type(self).__name__)
        return cdiv(longest, block_size) + self.num_spec_tokens

    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> M:
        """The metadata to capture a full graph of decodes with; each row has accepted all its tokens.

        Raises ValueError as `build` does, and naming `max_query_len` unless it is 1+m, and `num_reqs` if no
        graph is that large. Source: document 1, build_for_cudagraph_capture.
        """
        function, m = "build_for_cudagraph_capture", common_attn_metadata
        batch = self._read_batch(m, function)
        if m.max_query_len != 1 + self.num_spec_tokens:
            refuse("max_query_len", m.max_query_len, f"{1 + self.num_spec_tokens}", function)
        if batch.rows > self.decode_cudagraph_max_bs:
            refuse("num_reqs", batch.rows, f"<= {self.decode_cudagraph_max_bs}", function)
        counts = torch.diff(m.query_start_loc) if self.use_spec_decode else None
        return self._assemble(m, batch, (batch.rows, 0, batch.tokens, 0), counts, function)

    def build(
        self,
        common_prefix_len: int,  # noqa: ARG002 (a batch's rows share no states)
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,  # noqa: ARG002 (there is no other way)
        *,
        num_accepted_tokens: torch.Tensor | None = None,
        **kwargs: Any,  # noqa: ARG002 (meant for other builders)
    ) -> M:
        """The metadata of one step.

        `num_accepted_tokens`: [>= N] int32 or int64 on the device, tokens of each decode that the step before
        accepted, 1..1+m. If it is given, rows of up to 1+m tokens count as decodes, otherwise of one.

        Raises ValueError naming the attribute of `common_attn_metadata` that is not in order (see
        `BatchReader`); `is_prefilling` (a decode without prior state); `num_accepted_tokens` (with m > 0 and
        decodes: None, its form, on the host its values); `block_table_tensor` (too narrow); `seq_lens` (on
        the host: more than the table holds); `seq_lens_cpu_upper_bound` (None, where the prefills are cut
        into chunks and `seq_lens` is not on the host). Nothing is written then. Source: document 1, build.
        """
        return self._compute_common_metadata(common_attn_metadata, num_accepted_tokens=num_accepted_tokens)

    def _compute_common_metadata(
        self,
        common_attn_metadata: CommonAttentionMetadata,
        *,
        num_accepted_tokens: torch.Tensor | None = None,
    ) -> M:
        function = "build"
        batch = self._read_batch(common_attn_metadata, function)
        split = split_batch(batch, 1 if num_accepted_tokens is None else 1 + self.num_spec_tokens)
        check_decodes_have_state(batch, split[0], function)
        return self._assemble(common_attn_metadata, batch, split, num_accepted_tokens, function)

    def _assemble(
        self,
        common: CommonAttentionMetadata,
        batch: HostBatch,
        split: tuple[int, int, int, int],
        counts: torch.Tensor | None,
        function: str,
    ) -> M:
        decodes, prefills, decode_tokens, prefill_tokens = split
        table, seq_lens = common.block_table_tensor, common.seq_lens
        self._blocks.check("block_table_tensor", table, batch.seq_lens, 1 + self.num_spec_tokens, function)
        if self.use_spec_decode and decodes:
            counts = check_counts(counts, decodes, self._device, function)
            check_count_values(counts, min(decodes, batch.filled), 1 + self.num_spec_tokens, function)
        else:
            counts = None
        computed = None
        if prefills and self._chunk_size_p is not None:
            computed = computed_on_host(batch, decodes, function)
        graph = not prefills and self._runs_as_graph(batch.rows)
        if graph:
            stage = self._stage if counts is None else self._stage_counted
            ids_d, starts_d, counts_d, _ = stage(common, batch, counts, batch.filled)
            ids_p = self._no_prefills(table)
        else:
            ids_d, ids_p = self._state_ids(table, seq_lens, batch, decodes)
            starts_d, counts_d = counted(common.query_start_loc, counts, batch, decodes)
        metadata = self._new_metadata(
            num_prefills=prefills,
            num_prefill_tokens=prefill_tokens,
            num_decodes=decodes,
            num_decode_tokens=decode_tokens,
            num_reqs=batch.rows,
            state_indices_tensor_p=ids_p,
            state_indices_tensor_d=ids_d,
            query_start_loc_d=starts_d,
            num_accepted_tokens=counts_d,
            seq_lens=seq_lens,
        )
        if prefills:
            self._add_prefills(metadata, batch, computed)
        if self._mode == "all":
            self._add_columns(metadata, common, graph)
        return metadata

    def _new_metadata(self, **fields: Any) -> M:
        metadata: M = self.metadata_cls(**fields)
        return metadata

    def _state_ids(
        self, table: torch.Tensor, seq_lens: torch.Tensor, batch: HostBatch, decodes: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The decodes' and the prefills' blocks, padding overwritten."""
        rows, filled = batch.rows, batch.filled
        ids = self._blocks.ids(table, seq_lens, 1 + self.num_spec_tokens)
        if filled < rows and self._mode != "align":
            ids = ids.clone()
        ids_d, ids_p = self._at_split(table, ids, decodes)
        if filled < decodes:
            ids_d[filled:].fill_(PAD_SLOT_ID)
        if max(filled, decodes) < rows:
            ids_p[max(filled - decodes, 0) :].fill_(NULL_BLOCK_ID)
        return ids_d, ids_p

    def _at_split(
        self, table: torch.Tensor, ids: torch.Tensor, decodes: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if decodes == ids.size(0):
            return ids, self._no_prefills(table)
        return ids[:decodes], ids[decodes:] if self._mode == "all" else ids[decodes:, 0]

    def _no_prefills(self, table: torch.Tensor) -> torch.Tensor:
        """Blocks of none, in the table's dtype."""
        if self._mode == "all":
            return table[:0]
        if self._no_ids.dtype != table.dtype:
            self._no_ids = table.new_empty(0)
        return self._no_ids

    def _add_prefills(self, metadata: M, batch: HostBatch, computed: Int64s | None) -> None:
        first, seq_lens = metadata.num_decodes, metadata.seq_lens
        starts, lengths = batch.starts[first:] - batch.starts[first], batch.lengths[first:]
        programs = conv_programs(lengths)
        uploads = [starts, lengths, *programs.tables()]
        if computed is not None:
            assert self._chunk_size_p is not None
            uploads += split_at_positions(starts, lengths, computed, self._chunk_size_p)
        starts_p, own, batch_ptr, offset_ptr, *chunks = upload_packed(self._device, uploads)
        metadata.query_start_loc_p = starts_p
        metadata.has_initial_states_p = torch.gt(seq_lens[first:] if first else seq_lens, own)
        metadata.batch_ptr, metadata.token_chunk_offset_ptr = batch_ptr, offset_ptr
        metadata.nums_dict = programs.nums_dict(batch_ptr, offset_ptr)
        if computed is not None:
            self._add_chunks(metadata, chunks, computed)

    def _add_chunks(self, metadata: M, chunks: list[torch.Tensor], computed: Int64s) -> None:  # noqa: ARG002 (for subclasses)
        metadata.cu_chunk_seqlen_p, metadata.last_chunk_indices_p, _ = chunks

    def _add_columns(self, metadata: M, common: CommonAttentionMetadata, graph: bool) -> None:
        out = self.block_idx_last_computed_token, self.block_idx_last_scheduled_token
        add_columns(metadata, common, self._blocks, out if graph else None)

    def _compute_prefix_caching_block_indices(
        self, common_attn_metadata: CommonAttentionMetadata, mamba_block_size: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Columns of each row's last computed token, first scheduled and last scheduled one; [R] int32.

        The first and the last are 0 where there is no such token. Source: contract 1.11.
        """
        return token_columns(common_attn_metadata, StateBlocks("all", mamba_block_size, 0))

    def _update_metadata_for_cudagraph_capture(self, metadata: M) -> M:
        """`metadata` itself, its decodes' tensors moved to this builder's buffers if it runs as a graph."""
        if metadata.num_prefills or not self._runs_as_graph(metadata.num_reqs):
            return metadata
        buffer = self.state_indices_tensor_d[: metadata.num_reqs]
        metadata.state_indices_tensor_d = moved_ids(buffer, metadata.state_indices_tensor_d)
        for name in "block_idx_last_scheduled_token", "block_idx_last_computed_token":
            columns = getattr(metadata, name)
            if columns is not None:
                setattr(metadata, name, moved(getattr(self, name), columns))
        return metadata

    def update_block_table(self, metadata: M, blk_table: torch.Tensor, slot_mapping: torch.Tensor) -> M:  # noqa: ARG002 (states have no slots)
        """A copy of `metadata` with the blocks of another group of the same spec.

        `blk_table`: [N+P, width] int32 or int64 on the device. Rows whose `seq_lens` are 0 are padding. All
        other tensors are those of `metadata`, except that what a graph reads is in this builder's buffers.

        Raises ValueError naming `num_speculative_tokens` unless it is 0, `blk_table` (form, or too narrow) or
        `seq_lens` (on the host: more than the table holds). Source: document 1, update_block_table.
        """
        function, decodes = "update_block_table", metadata.num_decodes
        if self.use_spec_decode:
            refuse("num_speculative_tokens", self.num_spec_tokens, "0", function)
        rows = decodes + metadata.num_prefills
        device_rows("blk_table", blk_table, rows, self._device, function, ndim=2)
        seq_lens = metadata.seq_lens
        self._blocks.check("blk_table", blk_table, seq_lens.numpy() if seq_lens.is_cpu else None, 1, function)
        ids = self._blocks.ids(blk_table, seq_lens, 1)
        ids_d, ids_p = self._at_split(blk_table, ids, decodes)
        padding = (seq_lens == 0).unsqueeze(1)
        updated = copy(metadata)
        updated.state_indices_tensor_d = ids_d.masked_fill(padding[:decodes], PAD_SLOT_ID)
        padding_p = padding[decodes:] if self._mode == "all" else padding[decodes:, 0]
        updated.state_indices_tensor_p = ids_p.masked_fill(padding_p, NULL_BLOCK_ID)
        return self._update_metadata_for_cudagraph_capture(updated)
