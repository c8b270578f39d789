"""How large launches are, what they are bound to, and what the vectors that a kernel is handed must look like."""

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from triton import knobs

from ..checks import describe, refuse
from .bare import BareLaunch, bare_launch

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
    """A kernel with all of its arguments but `num_reqs` and some vectors.

    `vectors`: by parameter of the kernel what a caller calls that vector. `constant`: values of other parameters; what
    is in neither gets its default, or None. The first call on a GPU is a launch through Triton's JIT, which looks at
    every argument, and compiles. Later calls launch what was compiled then, which takes the host a fraction of the
    time. So nothing in a call may decide what is compiled: kernels are decorated not to be specialised on it, and its
    type never changes.
    """

    def __init__(
        self,
        kernel: Any,
        device: torch.device,
        function: str,
        vectors: Mapping[str, str],
        constant: Mapping[str, Any],
    ) -> None:
        parameters = inspect.signature(kernel.fn).parameters
        assert parameters.keys() >= {*vectors, *constant}
        defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        self._kernel, self._device, self._function = kernel, device, function
        self._grid = (num_programs(device), 1, 1)
        self._names = tuple(vectors.values())
        self._varying = (*vectors, "num_reqs")
        self._arguments = {**dict.fromkeys(parameters), **defaults, **constant}
        # The vectors that fitted last, and what a launch was handed then.
        self._last: tuple[Sequence[torch.Tensor], tuple[int, ...]] = (), ()
        self._compiled = False
        self._bare: BareLaunch | None = None

    def __call__(self, num_reqs: int, *vectors: torch.Tensor) -> None:
        """Launch for that many requests, >= 1, without waiting for it.

        `vectors`: in the order in which they were named, and refused as `check_vectors` does.
        """
        values = self._checked(num_reqs, vectors)
        bare = self._bare
        if bare is None or _hooked(self._kernel) or not bare.launched(values):
            self._launch_by_jit(num_reqs, vectors)

    def _checked(self, num_reqs: int, vectors: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """`num_reqs` and the vectors' addresses; the same object as last time if nothing has changed."""
        known, values = self._last
        # An engine's buffers are the same in every step. A tensor can grow, shrink and go elsewhere; its dtype, its
        # device and its steps stay what they were.
        for vector, last, address in zip(vectors, known, values, strict=False):
            if vector is not last or vector.data_ptr() != address or vector.numel() < num_reqs:
                break
        else:
            if known and values[-1] == num_reqs:
                return values
        return self._checked_anew(num_reqs, vectors)

    def _checked_anew(self, num_reqs: int, vectors: Sequence[torch.Tensor]) -> tuple[int, ...]:
        named = dict(zip(self._names, vectors, strict=True))
        check_vectors(named, num_reqs, self._device, self._function)
        values = (*[vector.data_ptr() for vector in vectors], num_reqs)
        self._last = vectors, values
        return values

    def _launch_by_jit(self, num_reqs: int, vectors: Sequence[torch.Tensor]) -> None:
        arguments = self._arguments | dict(zip(self._varying, (*vectors, num_reqs), strict=True))
        compiled = self._kernel[self._grid](*arguments.values(), **launch_options())
        if not self._compiled:
            self._compiled = True
            self._bare = bare_launch(compiled, self._device, self._grid, self._varying, arguments)


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
