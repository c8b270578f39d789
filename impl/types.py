"""Constants, exact integer arithmetic, and the configuration objects of the state cache."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from math import prod
from typing import Any, Literal, overload

import torch

from .checks import as_int, describe, int_at_least, one_of, refuse

PAD_SLOT_ID = -1
"""Filler of the conv program tables: a program that meets it exits (contract 1.1)."""

NULL_BLOCK_ID = 0
"""The pool's null block: never allocated, shared by everybody, content meaningless (contract 1.1)."""

FLA_CHUNK_SIZE = 64
"""Tokens per chunk of the gated-delta-rule kernels (contract 1.1)."""

MambaCacheMode = Literal["none", "align", "all"]
MAMBA_CACHE_MODES = ("none", "align", "all")


class AttentionCGSupport(IntEnum):
    """For which batches a backend can run inside one full CUDA graph; a larger member allows more.

    UNIFORM_BATCH: batches whose query lengths are all equal. Source: contract 1.1.
    """

    NEVER = 0
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    UNIFORM_BATCH = 2
    ALWAYS = 3


class CUDAGraphMode(Enum):
    """How the engine is configured to use CUDA graphs, not what one step does. Pairs: (decode, mixed).

    Everything but NONE is true. Source: contract 1.1.
    """

    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def __bool__(self) -> bool:
        return self is not CUDAGraphMode.NONE

    def has_full_cudagraphs(self) -> bool:
        """Whether some batches run as one full graph."""
        return self not in {CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE}


_INTEGER_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@overload
def cdiv(x: int, y: int) -> int: ...
@overload
def cdiv(x: torch.Tensor, y: int) -> torch.Tensor: ...
def cdiv(x: int | torch.Tensor, y: int) -> int | torch.Tensor:
    """The smallest integer >= x / y, exact for every sign.

    A tensor is divided elementwise and keeps its dtype.

    Raises ValueError naming `x` if it is no integer or integer tensor, and naming `y` if it is no integer, 0, or not in
    the range of the dtype of `x`. Source: contract 1.1, cdiv.
    """
    divisor = as_int("y", y, "cdiv")
    if divisor == 0:
        refuse("y", 0, "!= 0", "cdiv")
    if isinstance(x, torch.Tensor):
        return _cdiv_of_tensor(x, divisor)
    return -(-as_int("x", x, "cdiv") // divisor)


def _cdiv_of_tensor(x: torch.Tensor, y: int) -> torch.Tensor:
    if x.dtype not in _INTEGER_DTYPES:
        refuse("x", describe(x), "an integer tensor", "cdiv")
    limits = torch.iinfo(x.dtype)
    if not limits.min <= y <= limits.max:
        refuse("y", y, f"in the range of {describe(x)}", "cdiv")
    # Negating operands instead would overflow at the smallest integer and fail for unsigned dtypes.
    return torch.div(x, y, rounding_mode="floor") + (torch.remainder(x, y) != 0)


def divide(x: int, y: int) -> int:
    """The exact quotient x / y.

    Raises ValueError naming `y` if it is 0, and naming `x` if y does not divide it. Source: contract 1.1.
    """
    dividend, divisor = as_int("x", x, "divide"), as_int("y", y, "divide")
    if divisor == 0:
        refuse("y", 0, "!= 0", "divide")
    if dividend % divisor != 0:
        refuse("x", dividend, f"divisible by y = {divisor}", "divide")
    return dividend // divisor


@dataclass(frozen=True)
class MambaSpec:
    """What one layer's recurrent state needs of the cache.

    `block_size`: tokens between two stored states. `shapes`, `dtypes`: one entry per state (conv first),
    the shape of one block's data. `page_size_padded`: bytes that a page really takes, None for no padding.
    `num_speculative_blocks`: blocks beside the running one, equal to the number of draft tokens.

    Raises ValueError naming the field if block_size < 1, the two tuples differ in length, a dimension is
    not positive, the mode is unknown, num_speculative_blocks < 0, or the padding is smaller than the data.
    Source: contract 1.7, MambaSpec.
    """

    block_size: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    page_size_padded: int | None = None
    mamba_type: str = "mamba2"
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0

    def __post_init__(self) -> None:
        int_at_least("block_size", self.block_size, 1, "MambaSpec")
        int_at_least("num_speculative_blocks", self.num_speculative_blocks, 0, "MambaSpec")
        one_of("mamba_cache_mode", self.mamba_cache_mode, MAMBA_CACHE_MODES, "MambaSpec")
        self._check_states()
        self._check_padding()

    def _check_states(self) -> None:
        if len(self.dtypes) != len(self.shapes):
            refuse("dtypes", self.dtypes, f"of length {len(self.shapes)}, one per shape", "MambaSpec")
        for i, (shape, dtype) in enumerate(zip(self.shapes, self.dtypes, strict=True)):
            for j, size in enumerate(shape):
                int_at_least(f"shapes[{i}][{j}]", size, 1, "MambaSpec")
            if not isinstance(dtype, torch.dtype):
                refuse(f"dtypes[{i}]", repr(dtype), "a torch.dtype", "MambaSpec")

    def _check_padding(self) -> None:
        if self.page_size_padded is not None:
            int_at_least(
                "page_size_padded", self.page_size_padded, self.unpadded_page_size_bytes, "MambaSpec"
            )

    @property
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of one block's data of all states together."""
        pairs = zip(self.shapes, self.dtypes, strict=True)
        return sum(prod(shape) * dtype.itemsize for shape, dtype in pairs)

    @property
    def page_size_bytes(self) -> int:
        """Bytes from one block to the next, padding included."""
        return self.unpadded_page_size_bytes if self.page_size_padded is None else self.page_size_padded

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Bytes that one request of the longest length may hold.

        Mode none keeps the running block and the speculative ones, align one boundary block more, all one
        block per block_size tokens. Reads `vllm_config.model_config.max_model_len` in mode all only.

        Raises ValueError naming `max_model_len` if it is not an int >= 1. Source: contract 1.7.
        """
        if self.mamba_cache_mode == "none":
            return (1 + self.num_speculative_blocks) * self.page_size_bytes
        if self.mamba_cache_mode == "align":
            return (2 + self.num_speculative_blocks) * self.page_size_bytes
        longest = vllm_config.model_config.max_model_len
        longest = int_at_least("max_model_len", longest, 1, "max_memory_usage_bytes")
        return cdiv(longest, self.block_size) * self.page_size_bytes


@dataclass
class KVCacheTensor:
    """One raw buffer of `size` bytes and the layers that share it. Source: contract 1.7."""

    size: int
    shared_by: list[str]


@dataclass
class KVCacheGroupSpec:
    """The layers that follow one block table, and their common spec. Source: contract 1.7."""

    layer_names: list[str]
    kv_cache_spec: Any
    is_eagle_group: bool = False


@dataclass
class KVCacheConfig:
    """The whole cache: blocks in the pool, raw buffers, groups. Source: contract 1.7."""

    num_blocks: int
    kv_cache_tensors: list[KVCacheTensor]
    kv_cache_groups: list[KVCacheGroupSpec]
