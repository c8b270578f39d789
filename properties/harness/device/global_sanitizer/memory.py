"""What a process needs for Triton's sanitizer to see its memory, and for its reports to be given to a launch.

The sanitizer knows only memory of its own allocator, and its reports name no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Grid = tuple[int, int, int]


@contextmanager
def own_memory() -> Iterator[None]:
    """Tensors that are made on the GPU in this context lie in memory that the sanitizer watches."""
    import torch
    from triton.experimental.gsan import create_mem_pool

    with torch.cuda.use_mem_pool(create_mem_pool()):
        yield


def tell_launches(tell: Callable[[str, Grid], None]) -> None:
    """From now on tell the kernel's name and its grid before each launch of a compiled kernel, however it is called."""
    from properties.harness.kernels.private import CudaLauncher

    make, launch = CudaLauncher.__init__, CudaLauncher.__call__

    def made(self: Any, source: Any, metadata: Any) -> None:
        make(self, source, metadata)
        function = getattr(getattr(source, "fn", None), "fn", None)
        self.told_name = getattr(function, "__name__", None) or metadata.name

    def launched(self: Any, x: int, y: int, z: int, *rest: Any) -> Any:
        tell(self.told_name, (x, y, z))
        return launch(self, x, y, z, *rest)

    CudaLauncher.__init__, CudaLauncher.__call__ = made, launched
