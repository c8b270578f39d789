"""How large launches are, and what the vectors that a kernel is handed must look like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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


@dataclass(frozen=True)
class VectorLaunch:
    """A launch by number of requests and vectors, which are refused in the name of `function`.

    `vectors`: what a caller calls each of them, in their order.
    """

    function: str
    device: torch.device
    vectors: Sequence[str]
    launch: BoundLaunch

    def __call__(self, num_reqs: int, *vectors: torch.Tensor) -> None:
        """Launch for that many requests, >= 1, without waiting for it; refuses vectors as `check_vectors` does."""
        check_vectors(dict(zip(self.vectors, vectors, strict=True)), num_reqs, self.device, self.function)
        self.launch(*vectors, num_reqs)


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
