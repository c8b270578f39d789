from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Final, Literal

from oracle.rules import Refused, require, require_int, rule
from oracle.types import NULL_BLOCK_ID

Layout = Literal["SD", "DS"]
LAYOUT_VARIABLE: Final = "VLLM_SSM_CONV_STATE_LAYOUT"


class Unrepresentable(NotImplementedError):
    """The wanted elements lie in several pieces, and a copy specification describes one."""


@rule
def conv_state_layout(environment: Mapping[str, str]) -> Layout:
    """The layout is what the variable says, and SD where it is not set.

    Source: document 2, `get_conv_state_layout`.
    """
    if LAYOUT_VARIABLE not in environment:
        return "SD"
    return _known_layout(LAYOUT_VARIABLE, environment[LAYOUT_VARIABLE])


def _known_layout(argument: str, layout: str) -> Layout:
    match layout:
        case "SD" | "DS":
            return layout
        case _:
            raise Refused(argument, layout, "be one of 'SD', 'DS'")


@dataclass(frozen=True)
class StateGeometry:
    """Where a layer keeps one of its states, in bytes of the layer's raw buffer.

    `block_shape` counts the elements of one block, which lie without gaps; `block_stride_bytes` is
    the distance between blocks; `offset_bytes` is where the first block starts in the buffer.
    """

    num_blocks: int
    block_shape: tuple[int, ...]
    itemsize: int
    block_stride_bytes: int
    offset_bytes: int = 0


@dataclass(frozen=True)
class ByteRun:
    """Consecutive bytes; `offset` counts from the first byte of the state, not of its buffer."""

    offset: int
    length: int
    itemsize: int = field(default=1, compare=False)

    @property
    def elements(self) -> int:
        """How many elements of `itemsize` bytes the run holds."""
        return self.length // self.itemsize


@rule
def conv_copy_run(
    geometry: StateGeometry,
    layout: str,
    block_ids: Sequence[int],
    cur_block_idx: int,
    num_accepted_tokens: int,
) -> ByteRun:
    """Every channel of the running block's rows, from the row of the last accepted token on.

    Row a-1 is where the window of `a` accepted tokens begins. Channel-first blocks have these rows
    in one piece only when none is skipped, and skipping is refused for any number of channels.
    Source: document 2, `get_conv_copy_spec`; contract 1.8.
    """
    oriented = _known_layout("layout", layout)
    num_rows = geometry.block_shape[0 if oriented == "SD" else 1]
    _require_columns(block_ids, cur_block_idx, num_accepted_tokens)
    rule = f"be <= {num_rows}, the rows of a block"
    require(num_accepted_tokens <= num_rows, "num_accepted_tokens", num_accepted_tokens, rule)
    start = _block_start(geometry, block_ids, cur_block_idx)

    first_row = num_accepted_tokens - 1
    if not lies_in_one_piece(oriented, first_row):
        raise Unrepresentable(
            f"DS layout, rows from {first_row}: each channel's rows are a piece of their own"
        )
    return _one_run(_conv_pieces(geometry, oriented, first_row, start), geometry.itemsize)


@rule
def lies_in_one_piece(layout: Layout, first_row: int) -> bool:
    """Whether a conv block's rows from `first_row` on are consecutive bytes: each channel of DS has its own."""
    return layout == "SD" or first_row == 0


@rule
def temporal_copy_run(
    geometry: StateGeometry, block_ids: Sequence[int], cur_block_idx: int, num_accepted_tokens: int
) -> ByteRun:
    """All of the block that holds the state after the last accepted token.

    The first accepted token's state is in the running block, each further one's a column later.
    Source: document 2, `get_temporal_copy_spec`; contract 1.8.
    """
    _require_columns(block_ids, cur_block_idx, num_accepted_tokens)
    column = cur_block_idx + num_accepted_tokens - 1
    start = _block_start(geometry, block_ids, column)
    size = prod(geometry.block_shape) * geometry.itemsize
    return _one_run([(start, start + size)], geometry.itemsize)


def _require_columns(block_ids: Sequence[int], cur_block_idx: int, num_accepted_tokens: int) -> None:
    """The running block and the block of each accepted draft after it are in the table."""
    require_int("num_accepted_tokens", num_accepted_tokens, minimum=1)
    require_int("cur_block_idx", cur_block_idx, minimum=0)
    columns = len(block_ids)
    require(
        cur_block_idx < columns, "cur_block_idx", cur_block_idx, f"be < {columns}, the length of block_ids"
    )
    left = columns - cur_block_idx
    rule = f"be <= {left}, the length of block_ids from cur_block_idx = {cur_block_idx} on"
    require(num_accepted_tokens <= left, "num_accepted_tokens", num_accepted_tokens, rule)


def _block_start(geometry: StateGeometry, block_ids: Sequence[int], column: int) -> int:
    """Blocks are a stride apart. The null block belongs to everybody and holds nothing."""
    block = block_ids[column]
    argument = f"block_ids[{column}]"
    require(block > NULL_BLOCK_ID, argument, block, f"be > {NULL_BLOCK_ID}, the null block")
    require(block < geometry.num_blocks, argument, block, f"be < {geometry.num_blocks}, the number of blocks")
    return block * geometry.block_stride_bytes


def _conv_pieces(
    geometry: StateGeometry, layout: Layout, first_row: int, block_start: int
) -> list[tuple[int, int]]:
    """First and end byte of the wanted elements, as one piece per row (SD) or per channel (DS), which has all its rows."""
    outer, inner = geometry.block_shape
    line = inner * geometry.itemsize
    if layout == "SD":
        lines = [(row * line, (row + 1) * line) for row in range(first_row, outer)]
    else:
        lines = [(channel * line, (channel + 1) * line) for channel in range(outer)]
    return [(block_start + begin, block_start + end) for begin, end in lines]


def _one_run(pieces: Sequence[tuple[int, int]], itemsize: int) -> ByteRun:
    """Pieces make one run when each begins where the one before ends."""
    for before, after in pairwise(pieces):
        assert before[1] == after[0], f"bytes {before[1]}..{after[0]} lie between two pieces"
    begin = pieces[0][0]
    end = pieces[-1][1]
    return ByteRun(begin, end - begin, itemsize)
