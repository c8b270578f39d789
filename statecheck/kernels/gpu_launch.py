"""A launch that a GPU made, written down, and made again on a CPU: the same variant, grid, arguments and addresses.

Addresses stay what they were, so that tables of them keep their meaning. The memory is mapped where it was on the GPU; a process
in which something else lies there cannot make the launch.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

from statecheck.kernels import launch
from statecheck.kernels.private import JITFunction
from statecheck.kernels.sanitizer.watch import Sanitizer
from statecheck.kernels.watched import watching

_FIXED_NOREPLACE = 0x100000
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED_NOREPLACE
_PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE
_PAGE = mmap.PAGESIZE


class CannotLaunch(Exception):
    """The launch cannot be made again here; `str()` says why."""


@dataclass(frozen=True)
class GpuLaunch:
    """A launch as plain data.

    Args:
        module, function: where the kernel is found; `function` with dots.
        signature, constants, attributes: of the variant, as Triton has them.
        arguments: all of the kernel's, in order; addresses for tensors, None for constexprs.
        memory: pieces of what was allocated, by address, with their bytes before the launch.
    """

    module: str
    function: str
    signature: Mapping[str, Any]
    constants: Mapping[Any, Any]
    attributes: Mapping[Any, Any]
    grid: tuple[int, int, int]
    arguments: Sequence[Any]
    memory: Sequence[tuple[int, bytes]]


def launch_again(recorded: GpuLaunch, watch: Sanitizer) -> None:
    """Make the launch in this process, which executes kernels from their IR, while `watch` is shown every access.

    Raises:
        CannotLaunch: the executor does not know an operation, the kernel is not found, or its addresses are taken here.
    """
    kernel = _compiled(recorded)
    with _mapped(recorded.memory), watching(watch):
        # Where stream, function, metadata and hooks stand on a GPU.
        kernel.run(*recorded.grid, *(None,) * 6, *recorded.arguments)


def _compiled(recorded: GpuLaunch) -> Any:
    found = reduce(getattr, recorded.function.split("."), import_module(recorded.module))
    while not isinstance(found, JITFunction) and hasattr(found, "fn"):
        found = found.fn
    if not isinstance(found, JITFunction):
        raise CannotLaunch(f"{recorded.module}.{recorded.function} is no kernel")
    kernel = launch.variant(found, recorded.signature, recorded.constants, recorded.attributes)
    if kernel.variant is None:
        raise CannotLaunch(f"the executor does not know {kernel.why}")
    return kernel


@contextmanager
def _mapped(memory: Sequence[tuple[int, bytes]]) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    ranges: list[tuple[int, int]] = []
    try:
        for low, high in _pages(memory):
            got = libc.mmap(low, high - low, _PROTECTION, _FLAGS, -1, 0)
            if got != low:
                raise CannotLaunch(f"the GPU's addresses from {low:#x} on are taken in a process on this CPU")
            ranges.append((low, high))
        for address, content in memory:
            ctypes.memmove(address, content, len(content))
        yield
    finally:
        for low, high in ranges:
            libc.munmap(low, high - low)


def _pages(memory: Sequence[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Whole pages that hold these pieces, in ranges that do not meet."""
    ranges: list[tuple[int, int]] = []
    for address, content in sorted(memory):
        low, high = address // _PAGE * _PAGE, -(-(address + len(content)) // _PAGE) * _PAGE
        if ranges and low <= ranges[-1][1]:
            low, high = ranges[-1][0], max(high, ranges.pop()[1])
        ranges.append((low, high))
    return ranges
