"""What a process needs for Triton's sanitizer to see its memory, and for its reports to be given to a launch.

The sanitizer knows only memory of its own allocator, and its reports name no kernel.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Grid = tuple[int, int, int]
_MAX_BYTES = 256 << 20
"""Of memory in a launch that is written down."""


@contextmanager
def own_memory() -> Iterator[None]:
    """Tensors that are made on the GPU in this context lie in memory that the sanitizer watches."""
    import torch
    from triton.experimental.gsan import create_mem_pool

    with torch.cuda.use_mem_pool(create_mem_pool()):
        yield


def tell_launches(tell: Callable[[str, Grid, Any, tuple[Any, ...]], None]) -> None:
    """From now on call `tell` before each launch of a compiled kernel, however it is made.

    Its arguments are the kernel's name, the grid, what the kernel was compiled of, and all that the launch is handed behind
    stream, function, metadata and hooks.
    """
    from statecheck.kernels.private import CudaLauncher

    make, launch = CudaLauncher.__init__, CudaLauncher.__call__

    def made(self: Any, source: Any, metadata: Any) -> None:
        make(self, source, metadata)
        function = getattr(getattr(source, "fn", None), "fn", None)
        self.launched = getattr(function, "__name__", None) or metadata.name, source

    def launched(self: Any, x: int, y: int, z: int, *rest: Any) -> Any:
        name, source = self.launched
        tell(name, (x, y, z), source, rest[6:])
        return launch(self, x, y, z, *rest)

    CudaLauncher.__init__, CudaLauncher.__call__ = made, launched


def write_down(path: Path, grid: Grid, source: Any, arguments: tuple[Any, ...]) -> bool:
    """Leave in the file a `GpuLaunch`, or as text why there is none; whether there is one."""
    try:
        content, done = pickle.dumps(_recorded(grid, source, arguments)), True
    except Exception as error:
        content, done = pickle.dumps(f"{type(error).__name__}: {error}".splitlines()[0]), False
    path.write_bytes(content)
    return done


def _recorded(grid: Grid, source: Any, arguments: tuple[Any, ...]) -> Any:
    from statecheck.kernels.gpu_launch import GpuLaunch

    function = source.fn.fn
    kinds = source.signature.values()
    plain = [None if kind == "constexpr" else _plain(one) for kind, one in zip(kinds, arguments, strict=True)]
    return GpuLaunch(
        function.__module__,
        function.__qualname__,
        dict(source.signature),
        dict(source.constants),
        dict(source.attrs),
        grid,
        plain,
        _allocated(),
    )


def _plain(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(map(_plain, argument))
    if hasattr(argument, "data_ptr"):
        return argument.data_ptr()
    if not isinstance(argument, (int, float, type(None))):
        raise TypeError(f"an argument is of type {type(argument).__name__}")
    return argument


def _allocated() -> list[tuple[int, bytes]]:
    """All memory of torch's allocator on this device that is in use, with its contents."""
    import torch

    places: list[tuple[int, int]] = []
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                places.append((address, block["size"]))
            address += block["size"]
    total = sum(size for _, size in places)
    if total > _MAX_BYTES:
        raise ValueError(f"{total:,} bytes of memory are in use, more than are written down")
    return [(address, _Bytes(address, size).read()) for address, size in places]


class _Bytes:
    """Memory of the GPU by its address, as other libraries are shown it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }

    def read(self) -> bytes:
        import torch

        return bytes(torch.as_tensor(self, device="cuda").cpu().numpy().tobytes())
