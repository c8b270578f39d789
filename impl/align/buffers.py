"""Buffers that stand on the host and on the device, and those that the copies before a step need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..checks import Integers, as_int, int_at_least, refuse
from ..layout import MambaStateCopyFunc
from .context import MambaSpecDecodeGPUContext
from .groups import get_mamba_groups


class CpuGpuBuffer:
    """The same tensor twice, `cpu` on the host and `gpu` on the device, both zero at first.

    `np`: the NumPy view of `cpu`; without `with_numpy` there is no such attribute. `pin_memory` is heeded
    where there is CUDA. Copies do not wait for the device: a caller that rewrites `cpu` while one may still
    be under way, or reads `cpu` after `copy_to_cpu`, has to wait first.

    Raises ValueError naming `size` if there is no dimension or a negative one, and naming `dtype` if NumPy
    does not have it (bfloat16) and `with_numpy` is set. Source: contract 1.8.
    """

    np: Integers

    def __init__(
        self,
        *size: int,
        dtype: torch.dtype,
        device: torch.device | str,
        pin_memory: bool,
        with_numpy: bool = True,
    ) -> None:
        function = "CpuGpuBuffer"
        if not size:
            refuse("size", size, "at least one dimension", function)
        for i, length in enumerate(size):
            int_at_least(f"size[{i}]", length, 0, function)
        if with_numpy and not _numpy_has(dtype):
            refuse("dtype", dtype, "one that NumPy has, or with_numpy=False", function)
        pinned = pin_memory and torch.cuda.is_available()
        self.cpu = torch.zeros(size, dtype=dtype, pin_memory=pinned)
        self.gpu = torch.zeros(size, dtype=dtype, device=device)
        if with_numpy:
            self.np = self.cpu.numpy()

    def copy_to_gpu(self, n: int | None = None) -> torch.Tensor:
        """Start to copy the first `n` rows, or all, to the device; returns that part of `gpu`.

        Raises ValueError naming `n` if there are not so many rows. Source: contract 1.8.
        """
        return self._copy(self.cpu, self.gpu, n, "CpuGpuBuffer.copy_to_gpu")

    def copy_to_cpu(self, n: int | None = None) -> torch.Tensor:
        """Start to copy the first `n` rows, or all, to the host; returns that part of `cpu`.

        Raises ValueError naming `n` if there are not so many rows. Source: contract 1.8.
        """
        return self._copy(self.gpu, self.cpu, n, "CpuGpuBuffer.copy_to_cpu")

    @staticmethod
    def _copy(src: torch.Tensor, dst: torch.Tensor, n: int | None, function: str) -> torch.Tensor:
        if n is None:
            return dst.copy_(src, non_blocking=True)
        rows = as_int("n", n, function)
        if not 0 <= rows <= src.size(0):
            refuse("n", rows, f"in 0..{src.size(0)}, the rows of the buffer", function)
        return dst[:rows].copy_(src[:rows], non_blocking=True)


def _numpy_has(dtype: torch.dtype) -> bool:
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return False
    return True


@dataclass
class MambaCopyBuffers:
    """What the copies before a step are written down in.

    `src_ptrs`, `dst_ptrs` (int64: 64-bit patterns of addresses), `sizes` (int64: bytes): one entry per copy
    of one state of one layer, the first `offset` of them in use. `mamba_group_ids`, `mamba_spec`: see
    `get_mamba_groups`. `moves` (int32 [3, max_num_reqs]: destination column, source column or -1, bias, by
    batch row) and `context` are how a batch with device block tables copies instead; without them it makes
    entries. Source: contract 1.8.
    """

    src_ptrs: CpuGpuBuffer
    dst_ptrs: CpuGpuBuffer
    sizes: CpuGpuBuffer
    mamba_group_ids: list[int]
    mamba_spec: Any
    offset: int = 0
    moves: CpuGpuBuffer | None = None
    context: MambaSpecDecodeGPUContext | None = None

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        copy_funcs: Sequence[MambaStateCopyFunc],
        make_buffer: Callable[..., CpuGpuBuffer],
    ) -> MambaCopyBuffers:
        """Buffers for one copy of each state of each layer of `max_num_reqs` requests.

        `copy_funcs`: one per state of a layer. `make_buffer(*size, dtype=...)` makes a CpuGpuBuffer.

        Raises ValueError naming `max_num_reqs` below 1, `copy_funcs` without any, and whatever
        `MambaSpecDecodeGPUContext.create` refuses. Source: contract 1.8.
        """
        function = "MambaCopyBuffers.create"
        requests = int_at_least("max_num_reqs", max_num_reqs, 1, function)
        if not copy_funcs:
            refuse("copy_funcs", copy_funcs, "at least one function", function)
        group_ids, spec = get_mamba_groups(kv_cache_config)
        moves = make_buffer(3, requests, dtype=torch.int32)
        context = MambaSpecDecodeGPUContext.create(
            max_num_reqs=requests,
            kv_cache_config=kv_cache_config,
            num_state_types=len(copy_funcs),
            device=moves.gpu.device,
            make_buffer=make_buffer,
        )
        entries = requests * context.num_layers * len(copy_funcs)
        return cls(
            src_ptrs=make_buffer(entries, dtype=torch.int64),
            dst_ptrs=make_buffer(entries, dtype=torch.int64),
            sizes=make_buffer(entries, dtype=torch.int64),
            mamba_group_ids=group_ids,
            mamba_spec=spec,
            moves=moves,
            context=context,
        )
