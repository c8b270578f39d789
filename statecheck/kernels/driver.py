"""What Triton takes for its device where kernels are executed: a GPU to lower kernels for, and no GPU for other libraries.

On a GPU as well, autotuners take a configuration without measuring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from statecheck.kernels.private import (
    Autotuner,
    Backend,
    CompiledKernel,
    CompileTimeAssertionFailure,
    CUDABackend,
    DriverBase,
    GPUTarget,
    OutOfResources,
    PTXASError,
    backends,
    driver,
)
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
        # Autotuners do not come here, see `_bench`.
        return _run_once

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is none."""


def _run_once(call: Callable[[], Any], quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
    call()
    return [1.0] * len(quantiles or (0.5,))


_SETTLED = "_statecheck_settled"
"""An attribute of autotuners: whether a configuration that compiles is known for the launch."""


def _prune_configs(self: Any, kwargs: Any, plain: Any = Autotuner.prune_configs) -> Any:
    # `Autotuner.run` calls it once before it tries the configurations.
    setattr(self, _SETTLED, False)
    return plain(self, kwargs)


def _bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """Autotuning takes the first configuration that compiles, and that the device has room for: time says nothing here."""
    if not getattr(self, _SETTLED, False):
        chosen = {**meta, **config.all_kwargs()}
        try:
            if config.pre_hook:
                config.pre_hook({**self.nargs, **chosen})
            compiled = self.fn.run(*args, **{**chosen, "warmup": True})
            if isinstance(compiled, CompiledKernel):
                # A launch would load it: a GPU says then whether it has room.
                compiled._init_handles()
        except (CompileTimeAssertionFailure, OutOfResources, PTXASError):
            return [math.inf] * 3
        setattr(self, _SETTLED, True)
        return [1.0] * 3
    return [math.inf] * 3


def _check_disk_cache(self: Any, tuning_key: Any, configs: Any, bench_fn: Callable[[], None]) -> bool:  # noqa: ARG001 - Triton's
    # Timings are not read, and none are left for runs on a GPU. To look for them, Triton hashes all of its own files.
    bench_fn()
    return False


def settle_autotuners() -> None:
    """Let no autotuner of this process measure: to compile and time all configurations of a chunked kernel takes a GPU minutes for each shape."""
    Autotuner.prune_configs, Autotuner._bench = _prune_configs, _bench
    Autotuner.check_disk_cache = _check_disk_cache


def use() -> None:
    """Make it the only device of this process."""
    driver.set_active(_Driver())
    settle_autotuners()
    # Libraries ask the backends whether kernels can be launched at all, and want one answer.
    for name, backend in backends.items():
        backends[name] = Backend(backend.compiler, _inactive(backend.driver))
    backends["statecheck"] = Backend(_Backend, _Driver)


def _inactive(driver: Any) -> Any:
    """The driver of a device that this process does not use."""
    if driver is None:
        return None
    return type(driver.__name__, (driver,), {"is_active": classmethod(lambda cls: False)})
