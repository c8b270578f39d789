from collections.abc import Sequence
from math import prod
from typing import Final

from oracle.rules import Refused, require, require_int, rule
from oracle.variants import Variants

PAD_SLOT_ID: Final = -1
NULL_BLOCK_ID: Final = 0
GRAPH_MODES: Final = {
    "NONE": 0,
    "PIECEWISE": 1,
    "FULL": 2,
    "FULL_DECODE_ONLY": (2, 0),
    "FULL_AND_PIECEWISE": (2, 1),
}
"""CUDA graph modes of a configuration; a pair is the mode of decodes and that of everything else."""
GRAPH_SUPPORT: Final = {
    "NEVER": 0,
    "UNIFORM_SINGLE_TOKEN_DECODE": 1,
    "UNIFORM_BATCH": 2,
    "ALWAYS": 3,
}
"""For which batches a builder's metadata fits a full graph, from none to all."""


@rule
def cdiv(x: int, y: int) -> int:
    """The quotient rounded up: one more than the floor whenever the floor leaves a remainder.

    Exact for either sign. Refused: `y = 0`. Source: contract 1.1.
    """
    require_int("x", x)
    require_int("y", y)
    require(y != 0, "y", y, "not be 0")
    floor, remainder = divmod(x, y)
    return floor if remainder == 0 else floor + 1


def divide(x: int, y: int) -> int:
    """The quotient, which must be whole.

    Refused: `y = 0`, and an `x` that is no multiple of `y`. Source: contract 1.1.
    """
    require_int("x", x)
    require_int("y", y)
    require(y != 0, "y", y, "not be 0")
    require(x % y == 0, "x", x, f"be divisible by y = {y}")
    return x // y


@rule
def page_size_bytes(
    shapes: Sequence[Sequence[int]], itemsizes: Sequence[int], page_size_padded: int | None = None
) -> int:
    """Bytes that one block takes: all its states one after the other, or the padded page if one is set.

    `itemsizes` has the bytes per element of each state, so a count that differs from the number of
    shapes is refused under the specification's name `dtypes`. A padded page may not be too small
    for the states. Source: contract 1.7, `MambaSpec`.
    """
    require(
        len(shapes) == len(itemsizes), "dtypes", tuple(itemsizes), f"have {len(shapes)} entries as shapes"
    )
    for s, shape in enumerate(shapes):
        for d, dim in enumerate(shape):
            require_int(f"shapes[{s}][{d}]", dim, minimum=1)
    natural = natural_page_size(shapes, itemsizes)
    if page_size_padded is None:
        return natural
    require_int("page_size_padded", page_size_padded, minimum=natural)
    return page_size_padded


def natural_page_size(shapes: Sequence[Sequence[int]], itemsizes: Sequence[int]) -> int:
    """Bytes of all states one after the other."""
    return sum(prod(shape) * itemsize for shape, itemsize in zip(shapes, itemsizes, strict=True))


@rule
def pages_per_request(
    mode: str, num_speculative_blocks: int, block_size: int, max_model_len: int, profile: Variants
) -> int:
    """How many pages one request may hold at once.

    Source: contract 1.7, memory budget per request.
    """
    require_int("num_speculative_blocks", num_speculative_blocks, minimum=0)
    require_int("block_size", block_size, minimum=1)
    match mode:
        case "none":
            # One running block, and one for each draft.
            return 1 + num_speculative_blocks
        case "align":
            # The block before the running one stays until its state has been copied onwards.
            return 2 + num_speculative_blocks
        case "all":
            # Every block of the longest request keeps its own state.
            pages = cdiv(max_model_len, block_size)
            if profile.kept_pages_of_drafts:
                pages += num_speculative_blocks
            return pages
        case _:
            raise Refused("mamba_cache_mode", mode, "be one of 'none', 'align', 'all'")


def has_full_cudagraphs(mode: str) -> bool:
    """Whether some batches of a graph mode run as one full graph: the modes that name FULL do.

    Source: contract 1.1, `CUDAGraphMode`.
    """
    require(mode in GRAPH_MODES, "cudagraph_mode", mode, f"be one of {tuple(GRAPH_MODES)}")
    return mode.startswith("FULL")
