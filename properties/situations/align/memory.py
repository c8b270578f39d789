"""Which situations the copy of a state between two blocks is."""

from collections.abc import Sequence

from oracle.align.memory import Copy, Move, StateTensor, copies_of, is_missing, source_column, state_copy
from oracle.types import NULL_BLOCK_ID
from statecheck.reference.situations import situations_of, watches

_TILE = 1024
"""Bytes that a copy kernel moves at once (contract 1.1)."""
_declare = situations_of("align.memory")

SENTINEL = _declare("a copy is left out, as a column is a sentinel")
NO_SOURCE = _declare("a copy is left out, as its source is outside the row")
NO_TARGET = _declare("a copy is left out, as its target is outside the row")
NULL_SOURCE = _declare("a copy is left out, as the null block is its source")
NULL_TARGET = _declare("a copy is left out, as the null block is its target")
INSIDE = {
    ("SD", 1): _declare("SD move with bias 1 inside one block"),
    ("SD", 2): _declare("SD move with bias 2 inside one block"),
    ("SD", 3): _declare("SD move with bias above 2 inside one block"),
    ("DS", 1): _declare("DS move with bias 1 inside one block"),
    ("DS", 2): _declare("DS move with bias 2 inside one block"),
    ("DS", 3): _declare("DS move with bias above 2 inside one block"),
}
BETWEEN = {
    "SD": _declare("SD move with a bias to another block"),
    "DS": _declare("DS move with a bias to another block"),
}
OVERLAP = _declare("rows move within their block onto some of themselves")
APART = _declare("rows move within their block onto none of themselves")
LAST_ROW = _declare("the bias leaves the last row of a window alone")
DRAFTED = _declare("a temporal state moves from the column of an accepted draft")
ONTO_ITSELF = _declare("a temporal state moves onto itself")
TILES = _declare("a state of several tiles moves")
STRIDED = _declare("a state with other bytes between its blocks moves")
BEHIND = _declare("a state that lies behind another one in its page moves")
UNALIGNED = _declare("a state that begins between two words moves")
FAR = _declare("a state moves beyond 31 bits")
VERY_FAR = _declare("a state moves beyond 32 bits")
GROUPS = _declare("a request's states move in several groups")


@watches(state_copy)
def _copy(answer: Copy, state: StateTensor, layout: str, row: Sequence[int], move: Move) -> None:
    src_col = source_column(state.kind, move)
    if is_missing(row, move, src_col):
        _look_at_skipped(row, move, src_col)
    elif answer:
        inside = row[src_col] == row[move.dst_col]
        if state.kind == "conv":
            rows = state.geometry.block_shape[0 if layout == "SD" else 1]
            _look_at_rows(layout, move.bias, rows, inside=inside)
        else:
            DRAFTED.reached_if(move.bias > 0)
            ONTO_ITSELF.reached_if(inside)
        _look_at_places(state, move.bias, answer)


def _look_at_skipped(row: Sequence[int], move: Move, src_col: int) -> None:
    if min(move.src_col, move.dst_col) < 0:
        SENTINEL.reached()
    elif max(src_col, move.dst_col) >= len(row):
        (NO_SOURCE if src_col >= len(row) else NO_TARGET).reached()
    else:
        NULL_SOURCE.reached_if(row[src_col] <= NULL_BLOCK_ID)
        NULL_TARGET.reached_if(row[move.dst_col] <= NULL_BLOCK_ID)


def _look_at_places(state: StateTensor, bias: int, copy: Copy) -> None:
    geometry, size = state.geometry, sum(piece.length for piece in copy)
    far = max(copy[-1].source.offset, copy[-1].target.offset)
    TILES.reached_if(size > _TILE)
    STRIDED.reached_if(bias == 0 and size < geometry.block_stride_bytes)
    BEHIND.reached_if(0 < geometry.offset_bytes < geometry.block_stride_bytes)
    UNALIGNED.reached_if(geometry.offset_bytes % 4)
    FAR.reached_if(far >= 2**31)
    VERY_FAR.reached_if(far >= 2**32)


def _look_at_rows(layout: str, bias: int, rows: int, *, inside: bool) -> None:
    if bias == 0:
        return
    LAST_ROW.reached_if(bias == rows - 1)
    if inside:
        INSIDE[layout, min(bias, 3)].reached()
        (OVERLAP if bias < rows - bias else APART).reached()
    else:
        BETWEEN[layout].reached()


@watches(copies_of)
def _copies(answer: Sequence[Copy], states: Sequence[StateTensor]) -> None:
    GROUPS.reached_if(len({state.group for state, copy in zip(states, answer, strict=True) if copy}) > 1)
