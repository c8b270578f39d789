"""Copies that are written down as addresses before they are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from subjects.plain.groups import groups_with_states, plain_states
from subjects.plain.port import ask, ints, read_as, state_layout

__all__ = [
    "CpuGpuBuffer",
    "MambaCopyBuffers",
    "batch_memcpy",
    "collect_mamba_copy_meta",
    "do_mamba_copy_block",
]


class CpuGpuBuffer:
    """The same numbers on the host, as `cpu` and `np`, and on the device, as `gpu`."""

    def __init__(self, *size: int, dtype: torch.dtype, device: torch.device, pin_memory: bool) -> None:
        self.cpu = torch.zeros(size, dtype=dtype, pin_memory=pin_memory)
        self.gpu = torch.zeros(size, dtype=dtype, device=device)
        self.np = self.cpu.numpy()

    def copy_to_gpu(self, n: int) -> torch.Tensor:
        return self.gpu[:n].copy_(self.cpu[:n], non_blocking=True)


@dataclass
class MambaCopyBuffers:
    """Addresses and sizes of copies, of which the first `offset` are in use."""

    src_ptrs: CpuGpuBuffer
    dst_ptrs: CpuGpuBuffer
    sizes: CpuGpuBuffer
    mamba_group_ids: list[int]
    mamba_spec: Any
    offset: int = 0

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        copy_funcs: Sequence[Any],
        make_buffer: Callable[..., CpuGpuBuffer],
    ) -> Self:
        group_ids = groups_with_states(kv_cache_config)
        groups = [kv_cache_config.kv_cache_groups[number] for number in group_ids]
        entries = max_num_reqs * sum(len(group.layer_names) for group in groups) * len(copy_funcs)
        return cls(
            make_buffer(entries, dtype=torch.int64),
            make_buffer(entries, dtype=torch.int64),
            make_buffer(entries, dtype=torch.int64),
            group_ids,
            groups[0].kv_cache_spec,
        )


def collect_mamba_copy_meta(
    bufs: MambaCopyBuffers,
    kv_cache_config: Any,
    copy_funcs: Sequence[Any],
    group_ids: Sequence[int],
    src_col: int,
    dst_col: int,
    bias: int,
    req_state: Any,
    forward_context: Mapping[str, Any],
) -> Any:
    """None; what `list_copies` returned where these are no copies."""
    found = ask(
        "list_copies",
        {"src_column": "src_col", "dst_column": "dst_col"},
        states=plain_states(kv_cache_config, group_ids, forward_context, copy_funcs),
        block_ids=[list(req_state.block_ids[number]) for number in group_ids],
        src_column=src_col,
        dst_column=dst_col,
        bias=bias,
        layout=state_layout(),
    )
    copies = read_as(lambda runs: [(src, dst, size) for src, dst, size in map(ints, runs)], found)
    if copies is found:
        return found
    for src, dst, size in copies:
        bufs.src_ptrs.np[bufs.offset] = _as_int64(src)
        bufs.dst_ptrs.np[bufs.offset] = _as_int64(dst)
        bufs.sizes.np[bufs.offset] = size
        bufs.offset += 1
    return None


def _as_int64(address: int) -> int:
    """The same 64 bits with a sign."""
    return address - 2**64 if address >= 2**63 else address


def do_mamba_copy_block(bufs: MambaCopyBuffers) -> None:
    if bufs.offset:
        lists = (bufs.src_ptrs, bufs.dst_ptrs, bufs.sizes)
        batch_memcpy(*(one.copy_to_gpu(bufs.offset) for one in lists))


def batch_memcpy(src_ptrs: torch.Tensor, dst_ptrs: torch.Tensor, sizes: torch.Tensor) -> None:
    ask("copy_runs", src_ptrs=src_ptrs, dst_ptrs=dst_ptrs, sizes=sizes)
