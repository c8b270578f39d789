"""What the fused kernels know of the cache: where every state lies, and the launches that use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..checks import INT32_MAX, describe, int_at_least, refuse
from ..layout import MambaStateCopyFunc, is_conv_state_dim_first
from .fused import bound_launches, rows_to_launch
from .geometry import check_geometry, checked_tables
from .groups import get_mamba_groups
from .launch import VectorLaunch, tile_bytes
from .states import STATE_FIELDS, StateRow, read_states, signed

if TYPE_CHECKING:
    from .buffers import CpuGpuBuffer


@dataclass
class MambaSpecDecodeGPUContext:
    """Where each state of each mamba layer lies, and the buffers of the fused kernels.

    The vectors `state_*` have one entry per (group, layer, state), in that order; of the S = num_layers *
    num_state_types entries those without a state are zero and stand last. int64: base address (64-bit pattern),
    bytes from block to block, elements per conv row or of a temporal block, bytes between DS channels. int32:
    bytes per element, conv rows (0: temporal), group, DS channels. `num_accepted_tokens_out`: int32
    [max_num_reqs]. `block_table_ptrs`: int64 [num_groups]; `block_table_stride_req`: elements between rows.
    `tiles` (int64 [num_tiles, 8]) cuts one request's states into what a program copies at a time, with all that it
    needs to know; `counters` (int32 [2]) are the kernels' own. `block_table_width`: columns that every row of the
    tables has. A context that is made with `is_initialized` has its vectors and tables from the caller.
    Source: document 4; contract 1.13.
    """

    state_base_addrs: torch.Tensor
    state_block_strides: torch.Tensor
    state_elem_sizes: torch.Tensor
    state_inner_sizes: torch.Tensor
    state_conv_widths: torch.Tensor
    state_group_indices: torch.Tensor
    state_dim_row_count: torch.Tensor
    state_dim_row_stride: torch.Tensor
    block_size: int
    num_layers: int
    num_state_types: int
    mamba_group_ids: list[int]
    num_groups: int
    num_accepted_tokens_out: torch.Tensor
    block_table_ptrs: torch.Tensor
    block_table_stride_req: int = 0
    mamba_state_idx_buf: CpuGpuBuffer | None = None
    num_scheduled_tokens_buf: CpuGpuBuffer | None = None
    num_computed_tokens_buf: CpuGpuBuffer | None = None
    num_draft_tokens_buf: CpuGpuBuffer | None = None
    is_initialized: bool = False
    # Fields of ours stand behind those of document 4, so that its callers may name theirs by position.
    num_speculative_blocks: int = 0
    counters: torch.Tensor = None  # type: ignore[assignment]
    tiles: torch.Tensor = None  # type: ignore[assignment]
    block_table_width: int = INT32_MAX
    conv_state_dim_first: bool = False

    def __post_init__(self) -> None:
        # Made when there is something to launch; nothing that they are bound to changes after that.
        self._launches: dict[str, VectorLaunch] | None = None
        if self.counters is None:
            self.counters = torch.zeros(2, dtype=torch.int32, device=self.state_base_addrs.device)
        if self.tiles is None:
            self.tiles = torch.zeros((0, 8), dtype=torch.int64, device=self.state_base_addrs.device)
            if self.is_initialized:
                self._read_vectors()

    def _read_vectors(self) -> None:
        """Cut the states that a caller has written into the vectors into tiles; waits for the device."""
        vectors = [getattr(self, name).tolist() for name in STATE_FIELDS]
        rows = [StateRow.of_vectors(*values) for values in zip(*vectors, strict=True)]
        self.conv_state_dim_first = any(row.state_dim_row_count for row in rows)
        self._keep_tiles(rows, self.block_table_ptrs.tolist())

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        num_state_types: int,
        device: torch.device,
        make_buffer: Callable[..., CpuGpuBuffer],
    ) -> MambaSpecDecodeGPUContext:
        """A context without states yet: all vectors zero.

        `max_num_reqs`: most batch rows of a launch. `num_state_types`: most states of a layer.
        `make_buffer(n, dtype=...)` makes the four staging buffers, int32 [max_num_reqs].

        Raises ValueError naming `max_num_reqs` or `num_state_types` below 1; `kv_cache_config` without mamba
        groups or with groups that differ; `num_speculative_blocks` if 1 + its value exceeds the block size; and
        `shapes[i]` of a conv state with fewer rows than 1 + the drafts. Source: document 4; contract 1.13.
        """
        function = "MambaSpecDecodeGPUContext.create"
        capacity = int_at_least("max_num_reqs", max_num_reqs, 1, function)
        types = int_at_least("num_state_types", num_state_types, 1, function)
        group_ids, spec = get_mamba_groups(kv_cache_config)
        groups = [kv_cache_config.kv_cache_groups[group_id] for group_id in group_ids]
        for group in groups:
            check_geometry(group.kv_cache_spec, function)
        num_layers = sum(len(group.layer_names) for group in groups)
        states = num_layers * types
        zeros = partial(torch.zeros, device=device)
        staging = partial(make_buffer, capacity, dtype=torch.int32)
        return cls(
            state_base_addrs=zeros(states, dtype=torch.int64),
            state_block_strides=zeros(states, dtype=torch.int64),
            state_elem_sizes=zeros(states, dtype=torch.int32),
            state_inner_sizes=zeros(states, dtype=torch.int64),
            state_conv_widths=zeros(states, dtype=torch.int32),
            state_group_indices=zeros(states, dtype=torch.int32),
            state_dim_row_count=zeros(states, dtype=torch.int32),
            state_dim_row_stride=zeros(states, dtype=torch.int64),
            block_size=spec.block_size,
            num_layers=num_layers,
            num_state_types=types,
            mamba_group_ids=group_ids,
            num_groups=len(group_ids),
            num_accepted_tokens_out=zeros(capacity, dtype=torch.int32),
            block_table_ptrs=zeros(len(group_ids), dtype=torch.int64),
            mamba_state_idx_buf=staging(),
            num_scheduled_tokens_buf=staging(),
            num_computed_tokens_buf=staging(),
            num_draft_tokens_buf=staging(),
            num_speculative_blocks=spec.num_speculative_blocks,
        )

    def initialize_from_forward_context(
        self,
        kv_cache_config: Any,
        forward_context: Mapping[str, Any],
        mamba_state_copy_funcs: Sequence[MambaStateCopyFunc],
        block_tables: Sequence[torch.Tensor],
    ) -> None:
        """Read once where the states and the block tables lie; later calls do nothing.

        `forward_context[layer].kv_cache`: the layer's states, in the order of the copy functions, of which it may
        have fewer. Conv: [num_blocks, state_len, dim] (SD) or [num_blocks, dim, state_len] (DS); temporal:
        [num_blocks, ...]; any dtype, each block contiguous, stride(0) free. `block_tables`: one per mamba group,
        int32 [rows, width] with one row stride, whose memory stays where it is.

        Raises ValueError, before anything is kept, naming the argument or the place inside it that breaks a rule.
        Source: document 4; contract 1.13.
        """
        if self.is_initialized:
            return
        function = "initialize_from_forward_context"
        if len(mamba_state_copy_funcs) > self.num_state_types:
            rule = f"{self.num_state_types} at most, num_state_types"
            refuse("mamba_state_copy_funcs", f"{len(mamba_state_copy_funcs)} functions", rule, function)
        tables = checked_tables(block_tables, self.num_groups, self.counters.device, function)
        rows_needed = 1 + self.num_speculative_blocks
        rows = read_states(
            kv_cache_config, self.mamba_group_ids, forward_context, mamba_state_copy_funcs, rows_needed
        )
        self._keep_states(rows, tables)
        self.block_table_stride_req = tables[0].stride(0)
        self.block_table_width = tables[0].size(1)
        self.conv_state_dim_first = is_conv_state_dim_first()
        self._launches = None
        self.is_initialized = True

    def _keep_states(self, rows: Sequence[StateRow], tables: Sequence[torch.Tensor]) -> None:
        for name in STATE_FIELDS:
            vector = getattr(self, name)
            values = torch.tensor([getattr(row, name) for row in rows], dtype=vector.dtype)
            vector[: len(rows)].copy_(values, non_blocking=True)
        addresses = [signed(table.data_ptr()) for table in tables]
        self.block_table_ptrs.copy_(torch.tensor(addresses), non_blocking=True)
        self._keep_tiles(rows, addresses)

    def _keep_tiles(self, rows: Sequence[StateRow], addresses: Sequence[int]) -> None:
        """Cut the states into tiles; `addresses`: of the groups' block tables."""
        most = tile_bytes(self.counters.device)
        entries = [
            (*row.entry(addresses[row.state_group_indices]), first, end)
            for row in rows
            for first, end in row.tiles(most)
        ]
        tiles = torch.tensor(entries, dtype=torch.int64).view(-1, 8)
        self.tiles = tiles.to(self.counters.device, non_blocking=True)

    def run_fused_postprocess(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        mamba_state_idx_gpu: torch.Tensor,
        num_scheduled_tokens_gpu: torch.Tensor,
        num_computed_tokens_gpu: torch.Tensor,
        num_draft_tokens_gpu: torch.Tensor,
    ) -> None:
        """After a V1 step: copy what accepted tokens left behind a boundary to that boundary's column.

        All vectors int32 with an entry for each of `num_reqs` batch rows: accepted counts (>= 1, and in memory
        of their own), running columns, scheduled, computed and draft tokens. `num_accepted_tokens_out[:num_reqs]` becomes the counts,
        or 1 for a row whose boundary is the end of its running column. Does nothing before initialisation.

        Raises ValueError naming `num_reqs` or the vector that does not fit. Source: document 4; contract 2.2.
        """
        self._launch(
            "run_fused_postprocess",
            num_reqs,
            num_accepted_tokens_gpu,
            mamba_state_idx_gpu,
            num_scheduled_tokens_gpu,
            num_computed_tokens_gpu,
            num_draft_tokens_gpu,
        )

    def run_fused_precopy(
        self,
        num_reqs: int,
        state_idx_gpu: torch.Tensor,
        src_col_gpu: torch.Tensor,
        token_bias_gpu: torch.Tensor,
        idx_mapping: torch.Tensor,
    ) -> None:
        """Before a V2 forward: bring each request's state to the front of the column that it is going to run in.

        int32 vectors by slot: destination column, source column (-1: fresh), bias = accepted count - 1.
        `idx_mapping`: int32 [num_reqs], batch row -> slot, -1 skips a row, no slot twice. Nothing is copied where
        both columns are the same. Does nothing before initialisation.

        Raises ValueError naming `num_reqs` or the vector that does not fit. Source: document 4; contract 2.5.
        """
        vectors = state_idx_gpu, src_col_gpu, token_bias_gpu, idx_mapping
        self._launch("run_fused_precopy", num_reqs, *vectors)

    def run_precopy_rows(self, num_reqs: int, moves: torch.Tensor) -> None:
        """As `run_fused_precopy` for values by batch row: the copies of a V1 preprocess in one launch.

        `moves`: int32 [3, n] on the device, n >= num_reqs: destination column, source column (-1: nothing to
        copy), bias. Raises ValueError naming `num_reqs` or `moves`.
        """
        if moves.ndim != 2 or moves.size(0) != 3:
            refuse("moves", describe(moves), "of shape [3, n]", "run_precopy_rows")
        self._launch("run_precopy_rows", num_reqs, *moves.unbind())

    def run_fused_postprocess_align(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        state_idx_gpu: torch.Tensor,
        new_num_computed_tokens_gpu: torch.Tensor,
        idx_mapping: torch.Tensor,
    ) -> None:
        """As `run_fused_postprocess` for values by slot, after a V2 step.

        int32 vectors by slot: accepted counts, running columns, tokens computed after the step. `idx_mapping` as
        in `run_fused_precopy`; the block table is read at the batch row. Counts become 1 in place.

        Raises ValueError naming `num_reqs` or the vector that does not fit. Source: document 4; contract 2.5.
        """
        vectors = num_accepted_tokens_gpu, state_idx_gpu, new_num_computed_tokens_gpu, idx_mapping
        self._launch("run_fused_postprocess_align", num_reqs, *vectors)

    def _launch(self, driver: str, num_reqs: int, *vectors: torch.Tensor) -> None:
        rows = rows_to_launch(self, num_reqs, driver)
        if rows:
            if self._launches is None:
                self._launches = bound_launches(self)
            self._launches[driver](rows, *vectors)
