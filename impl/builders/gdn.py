"""The builder of Gated-DeltaNet metadata: speculative rows and all others apart."""

from functools import partial
from typing import Any

import numpy as np
import torch

from ..batch import CommonAttentionMetadata
from ..checks import Integers, int_at_least, refuse
from ..chunks import Arrays, chunk_offsets, chunk_rows, conv_programs, upload_packed
from ..types import FLA_CHUNK_SIZE, NULL_BLOCK_ID
from .common import StateMetadataBuilder
from .decodes import BufferPrefixes, StagedDecodes
from .drafts import spec_rows
from .host import (
    BatchReader,
    HostBatch,
    Marks,
    check_decodes_have_state,
    split_batch,
)
from .metadata import GDNAttentionMetadata


class GDNAttentionMetadataBuilder(StateMetadataBuilder[GDNAttentionMetadata]):
    """Builds what Gated-DeltaNet layers read from one step's batch, without ever waiting for the device.

    A batch of decodes that fits a captured graph gets its tensors in this builder's own buffers, which keep
    their addresses; all other results are new tensors or views of the input.

    `kv_cache_spec`: block_size and num_speculative_blocks. `vllm_config`: speculative_config (None, or with
    num_speculative_tokens), compilation_config, scheduler_config.max_num_seqs and
    cache_config.mamba_cache_mode.

    What is on a device cannot be checked without waiting: `query_start_loc` equals its host copy; `seq_lens`
    are computed tokens plus query, 0 for padding, and at most what the table holds; accepted counts are in
    1..1+m, and 1 where a row's are not used; and where neither `is_prefilling` nor
    `seq_lens_cpu_upper_bound` is given, a row of one token has prior state.

    Raises ValueError naming `num_speculative_tokens`, `num_speculative_blocks`, `block_size`, `max_num_seqs`
    or `mamba_cache_mode`; mode all is none of its modes, since the first column would be read whatever the
    position. Source: document 3, GDNAttentionMetadataBuilder.
    """

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        function, speculative = type(self).__name__, vllm_config.speculative_config
        drafts = (speculative.num_speculative_tokens or 0) if speculative else 0
        self.num_spec = int_at_least("num_speculative_tokens", drafts, 0, function)
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, self.num_spec)
        if self._mode == "all":
            refuse("mamba_cache_mode", "'all'", "'none' or 'align'", function)
        # Graphs are padded to a number of tokens, and a row has one at least: there are no more rows than that.
        self._limit_graphs(self._max_num_seqs * (1 + self.num_spec))
        self._allocate_buffers(device)

    def _allocate_buffers(self, device: torch.device) -> None:
        rows = self.decode_cudagraph_max_bs

        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.spec_state_indices_tensor = empty(rows, 1 + self.num_spec)
        self.non_spec_state_indices_tensor = empty(rows)
        self.spec_sequence_masks = empty(rows, dtype=torch.bool)
        # The tokens of every step are these; nothing is written here again.
        self.spec_token_indx = torch.arange(rows, dtype=torch.int32, device=device)
        self.non_spec_token_indx = empty(rows)
        self._tokens = BufferPrefixes(self.spec_token_indx)
        self._no_tokens = self.non_spec_token_indx[:0]
        self.spec_query_start_loc = empty(rows + 1)
        self.non_spec_query_start_loc = empty(rows + 1)
        self.num_accepted_tokens = empty(rows)
        self._device = self.num_accepted_tokens.device
        self._read_batch = BatchReader(self._device)
        stage = partial(StagedDecodes, self._blocks, NULL_BLOCK_ID)
        self._stage_non_spec = stage(self.non_spec_state_indices_tensor, self.non_spec_query_start_loc)
        spec = self.spec_query_start_loc, self.num_accepted_tokens, self.spec_sequence_masks
        self._stage_spec = stage(self.spec_state_indices_tensor, *spec)

    def build_for_cudagraph_capture(
        self, common_attn_metadata: CommonAttentionMetadata
    ) -> GDNAttentionMetadata:
        """The metadata to capture a full graph of decodes with; each row has accepted all its tokens.

        With m > 0 all rows with tokens are speculative.

        Raises ValueError as `build` does, and naming `num_reqs` or `num_actual_tokens` if no graph is that
        large, and `max_query_len` if a row has more than 1+m tokens. Source: document 3,
        build_for_cudagraph_capture.
        """
        function, m, most = "build_for_cudagraph_capture", common_attn_metadata, self.decode_cudagraph_max_bs
        batch = self._read(m, function)
        if batch.rows > most:
            refuse("num_reqs", batch.rows, f"<= {most}", function)
        if batch.tokens > most:
            refuse("num_actual_tokens", batch.tokens, f"<= {most}", function)
        if batch.longest > 1 + self.num_spec:
            refuse("max_query_len", batch.longest, f"<= {1 + self.num_spec}", function)
        if self.use_spec_decode and batch.filled:
            return self._build_all_spec(m, batch, batch.filled, torch.diff(m.query_start_loc))
        return self._build_non_spec(m, batch, (batch.rows, 0, batch.tokens, 0))

    def build(
        self,
        common_prefix_len: int,  # noqa: ARG002 (a batch's rows share no states)
        common_attn_metadata: CommonAttentionMetadata,
        num_accepted_tokens: torch.Tensor | None = None,
        num_decode_draft_tokens_cpu: torch.Tensor | None = None,
        fast_build: bool = False,  # noqa: ARG002 (there is no other way)
    ) -> GDNAttentionMetadata:
        """The metadata of one step. Both tensors are ignored with m = 0.

        `num_accepted_tokens`: [>= R] int32 or int64 on the device, tokens that the step before accepted,
        1..1+m. `num_decode_draft_tokens_cpu`: [R] int32 or int64 on the host, drafts among the row's tokens,
        -1 for a row that does not speculate.

        A row is speculative if it is no prefill and has drafts, none included, or a single token; the latter
        only where `is_prefilling` or `seq_lens_cpu_upper_bound` tells prefills apart. Without counts no row
        is, which is right if no row accepted more than one token.

        Raises ValueError naming the attribute of `common_attn_metadata` that is not in order (see
        `BatchReader`); `is_prefilling` (a decode without prior state); `num_decode_draft_tokens_cpu` (form,
        not in -1..m, or not the query length less one); `num_accepted_tokens` (None with drafts, form, on the
        host values); `block_table_tensor` (too narrow); `seq_lens` (on the host: more than the table holds).
        Nothing is written then. Source: document 3, build.
        """
        function, m, counts = "build", common_attn_metadata, num_accepted_tokens
        batch = self._read(m, function)
        if self.use_spec_decode:
            drafts = num_decode_draft_tokens_cpu
            spec = spec_rows(batch, drafts, counts, self.num_spec, self._device, function)
            if spec is not None:
                assert counts is not None
                check_decodes_have_state(batch, spec, function)
                return self._build_spec(m, batch, spec, counts)
        split = split_batch(batch, 1)
        check_decodes_have_state(batch, split[0], function)
        return self._build_non_spec(m, batch, split)

    def _read(self, common: CommonAttentionMetadata, function: str) -> HostBatch:
        batch = self._read_batch(common, function)
        table, columns = common.block_table_tensor, 1 + self.num_spec
        self._blocks.check("block_table_tensor", table, batch.seq_lens, columns, function)
        return batch

    def _build_non_spec(
        self, m: CommonAttentionMetadata, batch: HostBatch, split: tuple[int, int, int, int]
    ) -> GDNAttentionMetadata:
        decodes, _, decode_tokens, prefill_tokens = split
        rows, filled = batch.rows, batch.filled
        prefills = max(filled - decodes, 0)
        if not prefills and self._runs_as_graph(rows):
            ids, starts, *_ = self._stage_non_spec(m, batch, None, filled)
        else:
            ids, starts = self._ids(m, 1, filled)[:, 0], m.query_start_loc
        metadata = GDNAttentionMetadata(
            prefills,
            prefill_tokens,
            decodes,
            decode_tokens,
            0,
            0,
            batch.tokens,
            non_spec_query_start_loc=starts,
            non_spec_state_indices_tensor=ids,
        )
        if prefills:
            (own,) = self._upload_prefills(metadata, batch.starts)
            metadata.has_initial_state = torch.gt(m.seq_lens, own)
        return metadata

    def _ids(self, m: CommonAttentionMetadata, columns: int, filled: int) -> torch.Tensor:
        """[R, columns] block ids, null from row `filled` on."""
        ids = self._blocks.ids(m.block_table_tensor, m.seq_lens, columns)
        if filled < m.num_reqs:
            ids = ids.clone() if self._mode == "none" else ids
            ids[filled:].fill_(NULL_BLOCK_ID)
        return ids

    def _build_spec(
        self, m: CommonAttentionMetadata, batch: HostBatch, spec: Marks, counts: torch.Tensor
    ) -> GDNAttentionMetadata:
        size = int(np.count_nonzero(spec))
        if size == batch.filled:
            return self._build_all_spec(m, batch, size, counts)
        order = None
        starts = batch.starts
        if np.count_nonzero(spec[:size]) < size:
            order = np.concatenate((spec.nonzero()[0], (~spec).nonzero()[0]))
            starts = _starts_of(batch.lengths[order])
        tokens = starts.item(size)
        metadata = GDNAttentionMetadata(
            num_prefills=batch.filled - size,
            num_prefill_tokens=starts.item(batch.rows) - tokens,
            num_decodes=0,
            num_decode_tokens=0,
            num_spec_decodes=size,
            num_spec_decode_tokens=tokens,
            num_actual_tokens=batch.tokens,
        )
        int64s = [] if order is None else [order, *_places(spec, batch.lengths)]
        others = starts[size:] - tokens
        own, *places, starts_s, starts_o, masks = self._upload_prefills(
            metadata, others, [starts[: size + 1], others], int64s, [spec]
        )
        ids, seq_lens = self._ids(m, 1 + self.num_spec, batch.filled), m.seq_lens
        if order is None:
            index = torch.arange(starts.item(batch.rows), device=self._device)
            spec_index, other_index = index[:tokens], index[tokens:]
        else:
            rows, spec_index, other_index = places
            ids, seq_lens, counts = (t.index_select(0, rows) for t in (ids, seq_lens, counts))
        metadata.has_initial_state = torch.gt(seq_lens[size:], own)
        metadata.spec_query_start_loc, metadata.non_spec_query_start_loc = starts_s, starts_o
        metadata.spec_state_indices_tensor = ids[:size]
        metadata.non_spec_state_indices_tensor = ids[size:, 0]
        metadata.spec_sequence_masks = masks
        metadata.spec_token_indx, metadata.non_spec_token_indx = spec_index, other_index
        metadata.num_accepted_tokens = counts[:size].to(torch.int32)
        return metadata

    def _upload_prefills(
        self,
        metadata: GDNAttentionMetadata,
        starts: Integers,
        int32s: Arrays = (),
        int64s: Arrays = (),
        flags: Arrays = (),
    ) -> list[torch.Tensor]:
        """Add what the conv and scan kernels need for rows with these starts, and upload the rest with it.

        Returns what a row's length must exceed for it to have prior state, then `int64s`, `int32s`, `flags`.
        """
        lengths = starts[1:] - starts[:-1]
        programs, chunks = conv_programs(lengths), -(-lengths // FLA_CHUNK_SIZE)
        sections = [chunk_rows(chunks), lengths, *programs.tables(), *int32s]
        uploaded = upload_packed(self._device, sections, [chunk_offsets(chunks), *int64s], flags)
        first = 1 + len(int64s)
        indices, own, batch_ptr, offset_ptr = uploaded[first : first + 4]
        dtype = torch.int64 if starts.dtype == np.int64 else torch.int32
        # Uploaded as int32 with all others, since a second upload costs more than a cast on the device.
        metadata.chunk_indices = indices.view(-1, 2).to(dtype)
        metadata.chunk_offsets = uploaded[0]
        metadata.batch_ptr, metadata.token_chunk_offset_ptr = batch_ptr, offset_ptr
        metadata.nums_dict = programs.nums_dict(batch_ptr, offset_ptr)
        return [own, *uploaded[1:first], *uploaded[first + 4 :]]

    def _build_all_spec(
        self, m: CommonAttentionMetadata, batch: HostBatch, size: int, counts: torch.Tensor
    ) -> GDNAttentionMetadata:
        """All rows with tokens are speculative, and so the first `size` ones."""
        rows, tokens = batch.rows, batch.starts.item(size)
        if self._runs_as_graph(max(rows, tokens)):
            ids, starts, accepted, masks = self._stage_spec(m, batch, counts, size)
            index, no_index = self._tokens[tokens], self._no_tokens
        else:
            ids = self._ids(m, 1 + self.num_spec, size)[:size]
            starts, accepted = m.query_start_loc[: size + 1].to(torch.int32), counts[:size].to(torch.int32)
            masks = torch.ones(rows, dtype=torch.bool, device=self._device)
            if size < rows:
                masks[size:].fill_(False)
            index = torch.arange(tokens, dtype=torch.int32, device=self._device)
            no_index = index[:0]
        return GDNAttentionMetadata(
            num_prefills=0,
            num_prefill_tokens=0,
            num_decodes=0,
            num_decode_tokens=0,
            num_spec_decodes=size,
            num_spec_decode_tokens=tokens,
            num_actual_tokens=batch.tokens,
            spec_query_start_loc=starts,
            spec_state_indices_tensor=ids,
            spec_sequence_masks=masks,
            spec_token_indx=index,
            non_spec_token_indx=no_index,
            num_accepted_tokens=accepted,
        )


def _starts_of(lengths: Integers) -> Integers:
    starts = np.zeros(lengths.size + 1, lengths.dtype)
    lengths.cumsum(out=starts[1:])
    return starts


def _places(spec: Marks, lengths: Integers) -> tuple[Integers, Integers]:
    """Where the tokens of the marked rows are in the batch, and where all others."""
    marks = spec.repeat(lengths)
    return marks.nonzero()[0], (~marks).nonzero()[0]
