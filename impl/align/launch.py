"""How large launches are, what they are bound to, and what the vectors that a kernel is handed must look like."""

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..checks import describe, refuse

# Measured on an H200: more bytes in flight per multiprocessor cost bandwidth, as fewer do.
_PROGRAMS_PER_MULTIPROCESSOR = 9
_COPY_BLOCK_SIZE = 4096
_STEPS_PER_TILE = 3
_NUM_WARPS = 4
_REGISTERS = 56

# Without a GPU programs run in turn, and every operation on a tile takes its time.
_PROGRAMS_ON_CPU = 3
_COPY_BLOCK_SIZE_ON_CPU = 128
_STEPS_PER_TILE_ON_CPU = 2


@lru_cache
def num_programs(device: torch.device) -> int:
    """Programs of a launch that finds its own work; a few on a CPU."""
    if device.type != "cuda":
        return _PROGRAMS_ON_CPU
    return torch.cuda.get_device_properties(device).multi_processor_count * _PROGRAMS_PER_MULTIPROCESSOR


def copy_block_size(device: torch.device) -> int:
    """Bytes that a program copies in one step."""
    return _COPY_BLOCK_SIZE if device.type == "cuda" else _COPY_BLOCK_SIZE_ON_CPU


def tile_bytes(device: torch.device) -> int:
    """Bytes of the largest piece that a program copies before it asks for the next one."""
    return copy_block_size(device) * (_STEPS_PER_TILE if device.type == "cuda" else _STEPS_PER_TILE_ON_CPU)


def launch_options() -> dict[str, int]:
    """Compiler options: as many registers as leave room for all programs of a multiprocessor."""
    return {"num_warps": _NUM_WARPS} | ({"maxnreg": _REGISTERS} if torch.version.cuda else {})


class BoundLaunch:
    """A kernel with all of its arguments but those of the parameters `varying`, which a call hands over in that order.

    Parameters that are neither `varying` nor `constant` get their defaults, or None. The first call on a device is a
    launch through Triton's JIT, which looks at every argument, and compiles. Later calls launch what was compiled then,
    which takes the host a fraction of the time. So no argument of a call may decide what is compiled: kernels are
    decorated not to be specialised on it, and its type never changes.
    """

    def __init__(
        self, kernel: Any, device: torch.device, varying: Sequence[str], constant: Mapping[str, Any]
    ) -> None:
        parameters = inspect.signature(kernel.fn).parameters
        assert parameters.keys() >= {*varying, *constant}
        self._kernel = kernel
        self._grid = (num_programs(device), 1, 1)
        self._on_gpu = device.type == "cuda"
        self._places = [list(parameters).index(name) for name in varying]
        defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        self._arguments = [*{**dict.fromkeys(parameters), **defaults, **constant}.values()]
        self._launches: dict[int, Any] = {}

    def __call__(self, *values: Any) -> None:
        """Launch with these values of the varying parameters, without waiting for it."""
        arguments = self._arguments.copy()
        for place, value in zip(self._places, values, strict=True):
            arguments[place] = value
        # What was compiled is loaded on one device.
        current = torch.cuda.current_device() if self._on_gpu else -1
        launch = self._launches.get(current)
        # Hooks before a run are called by the JIT only.
        if launch is not None and not self._kernel.pre_run_hooks:
            launch(*arguments)
            return
        compiled = self._kernel[self._grid](*arguments, **launch_options())
        # Triton's interpreter compiles nothing.
        if compiled is not None:
            self._launches[current] = compiled[self._grid]


def check_vector(name: str, vector: torch.Tensor, entries: int, device: torch.device, function: str) -> None:
    """Refuse what is not a contiguous int32 vector of at least `entries` entries on the device."""
    # One expression, because a step comes here five times.
    if (
        isinstance(vector, torch.Tensor)
        and vector.dtype == torch.int32
        and vector.ndim == 1
        and vector.size(0) >= entries
        and vector.device == device
        and vector.is_contiguous()
    ):
        return
    rule = f"a contiguous int32 vector of at least {entries} entries on {device}"
    refuse(name, describe(vector), rule, function)
