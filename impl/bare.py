"""Launches of compiled kernels by the CUDA driver itself: what costs the host least.

Source: CUDA driver API, `cuLaunchKernel`; PTX ISA, `.param` of kernel functions.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import Any

import torch
from triton.runtime import driver

_THREADS_PER_WARP = 32
_SLOT = ctypes.sizeof(ctypes.c_int64)
_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_POINTER = 64
# What Triton does for a launch beyond handing over arguments.
_BY_TRITON = (
    "global_scratch_size",
    "profile_scratch_size",
    "launch_cooperative_grid",
    "launch_pdl",
    "instrumentation_mode",
)


class BareLaunch:
    """A compiled kernel with all of its arguments in the memory that the driver reads them from.

    `values`: what each of the kernel's parameters is, as a number of at most 8 bytes. `varying`: which of them a call
    sets. `launch`: `cuLaunchKernel`. `current_device`, `current_stream`: torch's, of the calling thread.
    """

    def __init__(
        self,
        function: int,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        device: torch.device,
        values: Sequence[int],
        varying: Sequence[int],
        launch: Callable[..., int],
        current_device: Callable[[], int],
        current_stream: Callable[[int], int],
    ) -> None:
        self._launch, self._index = launch, device.index
        self._current_device, self._current_stream = current_device, current_stream
        sizes = (*grid, threads, 1, 1, shared_bytes)
        self._where = (ctypes.c_void_p(function), *map(ctypes.c_uint, sizes))
        self._slots, self._varying = (ctypes.c_int64 * len(values))(*values), tuple(varying)
        first = ctypes.addressof(self._slots)
        self._parameters = (ctypes.c_void_p * len(values))(*[first + _SLOT * i for i in range(len(values))])
        self._written: tuple[int, ...] = ()
        # Between the writing of the slots and the driver's reading of them, other threads run.
        self._lock = Lock()

    def launched(self, values: tuple[int, ...]) -> bool:
        """Launch on the current stream with these for the parameters that vary, in their order.

        False if that was not possible: because another device is the current one, or because the driver refused.
        """
        if self._current_device() != self._index:
            return False
        stream = ctypes.c_void_p(self._current_stream(self._index))
        with self._lock:
            if values is not self._written:
                for place, value in zip(self._varying, values, strict=True):
                    self._slots[place] = value
                self._written = values
            return self._launch(*self._where, stream, self._parameters, None) == 0


def bare_launch(
    compiled: Any,
    device: torch.device,
    grid: tuple[int, int, int],
    varying: Sequence[str],
    arguments: Mapping[str, Any],
) -> BareLaunch | None:
    """What Triton has compiled, for launches without Triton, or None where that is not known to be possible.

    `arguments`: all of the kernel's parameters in their order, tensors or numbers; `varying`: those that a call sets.
    It is known for kernels that are handed their own parameters and, by Triton, memory that they do not need.
    """
    library = _cuda_driver()
    if compiled is None or library is None or device.type != "cuda":
        return None
    if driver.active.get_current_device() != device.index:
        return None
    types, metadata = compiled.src.signature, compiled.metadata
    handed = [name for name in arguments if types[name] != "constexpr"]
    bits = entry_parameters(compiled.asm.get("ptx", ""))
    memory = [_POINTER] * (len(bits) - len(handed))
    if (
        bits != [_BITS.get(types[name], _POINTER) for name in handed] + memory
        or not {*varying} <= {*handed}
        or any(getattr(metadata, name, False) for name in _BY_TRITON)
        or getattr(metadata, "num_ctas", 1) != 1
    ):
        return None
    return BareLaunch(
        function=compiled.function,
        grid=grid,
        threads=metadata.num_warps * _THREADS_PER_WARP,
        shared_bytes=metadata.shared,
        device=device,
        values=[_number(arguments[name]) for name in handed] + [0] * len(memory),
        varying=[handed.index(name) for name in varying],
        launch=library.cuLaunchKernel,
        current_device=driver.active.get_current_device,
        current_stream=driver.active.get_current_stream,
    )


def entry_parameters(ptx: str) -> list[int]:
    """Bits of each parameter of the first kernel in a PTX text; nothing of parameters that are no numbers."""
    entry = re.search(r"\.entry\s+\w+\s*\(([^)]*)\)", ptx)
    return [int(bits) for bits in re.findall(r"\.param\s+\.[busf](\d+)\b", entry[1])] if entry else []


def _number(value: Any) -> int:
    return int(value.data_ptr() if isinstance(value, torch.Tensor) else value)


@cache
def _cuda_driver() -> ctypes.CDLL | None:
    """None where there is no CUDA."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
