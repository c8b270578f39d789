"""How large launches are, what they are bound to, and what the vectors that a kernel is handed must look like."""

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
import triton
from triton import knobs
from triton.runtime import driver

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

# How a compiled kernel is called is no documented interface: other versions launch through the JIT every time.
_CALLED_AS_KNOWN = (3, 6) <= tuple(map(int, triton.__version__.split(".")[:2])) <= (3, 9)


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
    """A kernel with all of its arguments but `num_reqs` and the vectors of the parameters `varying`.

    Parameters that are neither `varying` nor `constant` get their defaults, or None. The first call on a device is a
    launch through Triton's JIT, which looks at every argument, and compiles. Later calls launch what was compiled then,
    which takes the host a fraction of the time. So nothing in a call may decide what is compiled: kernels are decorated
    not to be specialised on it, and its type never changes.
    """

    def __init__(
        self, kernel: Any, device: torch.device, varying: Sequence[str], constant: Mapping[str, Any]
    ) -> None:
        parameters = inspect.signature(kernel.fn).parameters
        assert parameters.keys() >= {*varying, *constant}
        defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        self._kernel = kernel
        self._grid = (num_programs(device), 1, 1)
        self._places = [list(parameters).index(name) for name in ("num_reqs", *varying)]
        self._arguments = [*{**dict.fromkeys(parameters), **defaults, **constant}.values()]
        # An address is all that a GPU needs of a tensor, and takes the host less; who watches a CPU asks which tensor it is.
        self._by_address = device.type == "cuda"
        self._passed = self._arguments
        if self._by_address:
            self._passed = [one.data_ptr() if torch.is_tensor(one) else one for one in self._arguments]
        self._compiled: dict[int, Any] = {}

    def __call__(self, num_reqs: int, *vectors: torch.Tensor) -> None:
        """Launch for that many requests, without waiting for it. `vectors`: in the order of `varying`."""
        if not self._compiled or _hooked(self._kernel):
            self._launch_by_jit(num_reqs, vectors)
            return
        active = driver.active
        device = active.get_current_device()
        if device not in self._compiled:
            self._launch_by_jit(num_reqs, vectors)
            return
        compiled, stream = self._compiled[device], active.get_current_stream(device)
        values = [one.data_ptr() for one in vectors] if self._by_address else vectors
        arguments = self._filled(self._passed, num_reqs, values)
        # As the JIT calls it, but for its hooks, of which there are none.
        function, metadata = compiled.function, compiled.packed_metadata
        compiled.run(*self._grid, stream, function, metadata, None, None, None, *arguments)

    def _launch_by_jit(self, num_reqs: int, vectors: Sequence[torch.Tensor]) -> None:
        arguments = self._filled(self._arguments, num_reqs, vectors)
        compiled = self._kernel[self._grid](*arguments, **launch_options())
        # Triton's interpreter compiles nothing.
        if compiled is not None and _CALLED_AS_KNOWN:
            self._compiled[driver.active.get_current_device()] = compiled

    def _filled(self, arguments: list[Any], num_reqs: int, values: Sequence[Any]) -> list[Any]:
        filled = arguments.copy()
        for place, value in zip(self._places, (num_reqs, *values), strict=True):
            filled[place] = value
        return filled


def _hooked(kernel: Any) -> bool:
    """Whether Triton's JIT has to tell somebody of launches: profilers hook into these."""
    runtime = knobs.runtime
    return bool(
        kernel.pre_run_hooks
        or getattr(runtime.launch_enter_hook, "calls", runtime.launch_enter_hook)
        or getattr(runtime.launch_exit_hook, "calls", runtime.launch_exit_hook)
    )


def check_vectors(
    vectors: Mapping[str, torch.Tensor], entries: int, device: torch.device, function: str
) -> None:
    """Refuse the first that is not a contiguous int32 vector of at least `entries` entries on the device."""
    int32 = torch.int32
    for name, vector in vectors.items():
        # One expression, of what costs least, because a step comes here five times.
        if (
            isinstance(vector, torch.Tensor)
            and vector.dtype is int32
            and vector.dim() == 1
            and vector.numel() >= entries
            and vector.device == device
            and vector.is_contiguous()
        ):
            continue
        rule = f"a contiguous int32 vector of at least {entries} entries on {device}"
        refuse(name, describe(vector), rule, function)
