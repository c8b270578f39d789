"""How large launches are, and what the vectors that a kernel is handed must look like."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..bound import BoundLaunch
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


class VectorLaunch:
    """A kernel with all of its arguments but `num_reqs` and some vectors.

    `vectors`: by parameter of the kernel what a caller calls that vector. `constant`: values of other parameters.
    """

    def __init__(
        self,
        kernel: Any,
        device: torch.device,
        function: str,
        vectors: Mapping[str, str],
        constant: Mapping[str, Any],
    ) -> None:
        self._device, self._function, self._names = device, function, tuple(vectors.values())
        grid = (num_programs(device), 1, 1)
        self._launch = BoundLaunch(kernel, device, grid, (*vectors, "num_reqs"), constant, launch_options())
        # The vectors that fitted last, and what a launch was handed then.
        self._last: tuple[Sequence[torch.Tensor], tuple[int, ...]] = (), ()

    def __call__(self, num_reqs: int, *vectors: torch.Tensor) -> None:
        """Launch for that many requests, >= 1, without waiting for it.

        `vectors`: in the order in which they were named, and refused as `check_vectors` does.
        """
        self._launch(self._checked(num_reqs, vectors), (*vectors, num_reqs))

    def _checked(self, num_reqs: int, vectors: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """The vectors' addresses and `num_reqs`; the same object as last time if nothing has changed."""
        known, values = self._last
        # An engine's buffers are the same in every step. A tensor can grow, shrink, go elsewhere, and get other strides
        # (`as_strided_`); its dtype and its device stay what they were.
        for vector, last, address in zip(vectors, known, values, strict=False):
            same = vector is last and vector.data_ptr() == address and vector.is_contiguous()
            if not same or vector.numel() < num_reqs:
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
