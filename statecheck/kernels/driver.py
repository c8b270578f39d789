"""What Triton takes for its device where kernels are executed: a GPU to lower kernels for, and no GPU to anybody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from statecheck.kernels.private import Backend, CUDABackend, DriverBase, GPUTarget, backends, driver
from statecheck.kernels.source.compile import TARGET, lowering

_HERE = GPUTarget("cpu", 0, 0)


class _Backend(CUDABackend):
    """Lowers kernels for a GPU in a process that has none."""

    def __init__(self, target: GPUTarget) -> None:
        super().__init__(target)
        self.target = TARGET

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == _HERE.backend)


class _Driver(DriverBase):
    """A GPU for Triton's front end: kernels are specialised and lowered for it, and never loaded."""

    def __init__(self) -> None:
        # The plain one looks for functions of a real driver.
        self.utils = None

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        # Kernels may ask what they are compiled for, and libraries whether there is a GPU that torch knows too.
        return TARGET if lowering() else _HERE

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cpu

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002 - Triton's
        return 0

    def get_benchmarker(self) -> Callable[..., Any]:
        return _benchmark

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is none."""


def _benchmark(call: Callable[[], Any], quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
    """Autotuning takes the first configuration that works: time says nothing here."""
    call()
    return [1.0] * len(quantiles or (0.5,))


def use() -> None:
    """Make it the only device of this process."""
    driver.set_active(_Driver())
    # Libraries ask the backends whether kernels can be launched at all, and want one answer.
    for name, backend in backends.items():
        backends[name] = Backend(backend.compiler, _inactive(backend.driver))
    backends["statecheck"] = Backend(_Backend, _Driver)


def _inactive(driver: Any) -> Any:
    """The driver of a device that this process does not use."""
    if driver is None:
        return None
    return type(driver.__name__, (driver,), {"is_active": classmethod(lambda cls: False)})
