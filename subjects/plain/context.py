"""What align mode is handed for its copies: states, block tables, and vectors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from statecheck.subject.subject import NotOffered
from subjects.plain.groups import PlainState, groups_with_states, plain_states
from subjects.plain.port import ask, state_layout

__all__ = ["MambaSpecDecodeGPUContext"]


@dataclass
class MambaSpecDecodeGPUContext:
    """States and tables between two calls. The documents' vectors that describe states to kernels stay zero."""

    state_base_addrs: torch.Tensor
    state_block_strides: torch.Tensor
    state_elem_sizes: torch.Tensor
    state_inner_sizes: torch.Tensor
    state_conv_widths: torch.Tensor
    state_group_indices: torch.Tensor
    state_dim_row_count: torch.Tensor
    state_dim_row_stride: torch.Tensor
    block_table_ptrs: torch.Tensor
    num_accepted_tokens_out: torch.Tensor
    mamba_state_idx_buf: Any
    num_scheduled_tokens_buf: Any
    num_computed_tokens_buf: Any
    num_draft_tokens_buf: Any
    block_size: int
    num_layers: int
    num_state_types: int
    mamba_group_ids: list[int]
    num_groups: int
    block_table_stride_req: int = 0
    is_initialized: bool = False
    stages: bool = False
    states: list[PlainState] = field(default_factory=list)
    tables: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        num_state_types: int,
        device: torch.device,
        make_buffer: Callable[..., Any],
    ) -> Self:
        group_ids = groups_with_states(kv_cache_config)
        groups = [kv_cache_config.kv_cache_groups[number] for number in group_ids]
        layers = sum(len(group.layer_names) for group in groups)
        wide = ("base_addrs", "block_strides", "inner_sizes", "dim_row_stride")
        narrow = ("elem_sizes", "conv_widths", "group_indices", "dim_row_count")
        sizes = dict.fromkeys(wide, torch.int64) | dict.fromkeys(narrow, torch.int32)
        vectors: dict[str, Any] = {
            f"state_{name}": torch.zeros(layers * num_state_types, dtype=dtype, device=device)
            for name, dtype in sizes.items()
        }
        staged = ("mamba_state_idx", "num_scheduled_tokens", "num_computed_tokens", "num_draft_tokens")
        vectors |= {f"{name}_buf": make_buffer(max_num_reqs, dtype=torch.int32) for name in staged}
        return cls(
            **vectors,
            block_table_ptrs=torch.zeros(len(groups), dtype=torch.int64, device=device),
            num_accepted_tokens_out=torch.zeros(max_num_reqs, dtype=torch.int32, device=device),
            block_size=groups[0].kv_cache_spec.block_size,
            num_layers=layers,
            num_state_types=num_state_types,
            mamba_group_ids=group_ids,
            num_groups=len(groups),
        )

    def initialize_from_forward_context(
        self,
        kv_cache_config: Any,
        forward_context: Mapping[str, Any],
        mamba_state_copy_funcs: Sequence[Any],
        block_tables: Sequence[torch.Tensor],
    ) -> None:
        if not self.is_initialized:
            self.states = plain_states(
                kv_cache_config, self.mamba_group_ids, forward_context, mamba_state_copy_funcs
            )
            self.tables = list(block_tables)
            self.is_initialized = True

    def _states(self, num_reqs: int) -> dict[str, Any]:
        """What every function that copies takes."""
        if not self.is_initialized:
            raise NotOffered("a plain function takes the places of states with every call")
        tables = [table[:num_reqs] for table in self.tables]
        return {"states": self.states, "block_tables": tables, "layout": state_layout()}

    def run_fused_precopy(
        self,
        num_reqs: int,
        state_idx_gpu: torch.Tensor,
        src_col_gpu: torch.Tensor,
        token_bias_gpu: torch.Tensor,
        idx_mapping: torch.Tensor,
    ) -> None:
        ask(
            "precopy_states",
            **self._states(num_reqs),
            idx_mapping=idx_mapping[:num_reqs],
            columns=state_idx_gpu,
            src_columns=src_col_gpu,
            biases=token_bias_gpu,
        )

    def run_fused_postprocess_align(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        state_idx_gpu: torch.Tensor,
        new_num_computed_tokens_gpu: torch.Tensor,
        idx_mapping: torch.Tensor,
    ) -> None:
        ask(
            "postprocess_by_slot",
            **self._states(num_reqs),
            idx_mapping=idx_mapping[:num_reqs],
            num_accepted_tokens=num_accepted_tokens_gpu,
            columns=state_idx_gpu,
            num_computed_tokens=new_num_computed_tokens_gpu,
            block_size=self.block_size,
        )

    def run_fused_postprocess(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        mamba_state_idx_gpu: torch.Tensor,
        num_scheduled_tokens_gpu: torch.Tensor,
        num_computed_tokens_gpu: torch.Tensor,
        num_draft_tokens_gpu: torch.Tensor,
    ) -> None:
        ask(
            "postprocess_by_row",
            **self._states(num_reqs),
            num_accepted_tokens=num_accepted_tokens_gpu[:num_reqs],
            columns=mamba_state_idx_gpu[:num_reqs],
            num_scheduled_tokens=num_scheduled_tokens_gpu[:num_reqs],
            num_computed_tokens=num_computed_tokens_gpu[:num_reqs],
            num_draft_tokens=num_draft_tokens_gpu[:num_reqs],
            num_accepted_tokens_out=self.num_accepted_tokens_out[:num_reqs],
            block_size=self.block_size,
        )
