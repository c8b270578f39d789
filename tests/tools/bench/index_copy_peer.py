"""A peer for the bench: the copies behind a V1 step as torch's own indexing does them. It waits for the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch


def get_conv_copy_spec(*_: Any) -> SimpleNamespace:
    return SimpleNamespace()


def get_temporal_copy_spec(*_: Any) -> SimpleNamespace:
    return SimpleNamespace()


@dataclass
class MambaSpecDecodeGPUContext:
    block_size: int
    num_accepted_tokens_out: torch.Tensor
    states: list[tuple[torch.Tensor, bool]] = field(default_factory=list)
    table: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        num_state_types: int,  # noqa: ARG003
        device: torch.device,
        make_buffer: Callable[..., Any],  # noqa: ARG003
    ) -> MambaSpecDecodeGPUContext:
        block_size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
        return cls(block_size, torch.zeros(max_num_reqs, dtype=torch.int32, device=device))

    def initialize_from_forward_context(
        self,
        kv_cache_config: Any,
        forward_context: Mapping[str, Any],
        mamba_state_copy_funcs: Sequence[Callable[..., Any]],
        block_tables: Sequence[torch.Tensor],
    ) -> None:
        self.table = block_tables[0]
        for layer in kv_cache_config.kv_cache_groups[0].layer_names:
            for state, function in zip(forward_context[layer].kv_cache, mamba_state_copy_funcs, strict=True):
                self.states.append((state, function is get_conv_copy_spec))

    def run_fused_postprocess(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        mamba_state_idx_gpu: torch.Tensor,
        num_scheduled_tokens_gpu: torch.Tensor,
        num_computed_tokens_gpu: torch.Tensor,
        num_draft_tokens_gpu: torch.Tensor,
    ) -> None:
        accepted, run = num_accepted_tokens_gpu[:num_reqs], mamba_state_idx_gpu[:num_reqs]
        running = (num_computed_tokens_gpu + num_scheduled_tokens_gpu - num_draft_tokens_gpu)[:num_reqs]
        blocks = (running + accepted - 1) // self.block_size
        bias, dest = blocks * self.block_size - running, blocks - 1
        due = bias >= 0
        self.num_accepted_tokens_out[:num_reqs] = torch.where(due & (run == dest), 1, accepted)
        for shift in bias[due].unique().tolist():
            self._copy((due & (bias == shift)).nonzero()[:, 0], run, dest, shift)

    def _copy(self, rows: torch.Tensor, run: torch.Tensor, dest: torch.Tensor, shift: int) -> None:
        target = self.table[rows, dest[rows]].long()
        for state, is_conv in self.states:
            if is_conv:
                found = state.index_select(0, self.table[rows, run[rows]].long())
                axis = 2 if os.environ.get("VLLM_SSM_CONV_STATE_LAYOUT") == "DS" else 1
                kept = state.size(axis) - shift
                state.narrow(axis, 0, kept).index_copy_(0, target, found.narrow(axis, shift, kept))
            else:
                state.index_copy_(
                    0, target, state.index_select(0, self.table[rows, run[rows] + shift].long())
                )
