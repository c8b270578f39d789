"""Which situations the copy of a state between two blocks was."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from oracle import marks
from oracle.types import NULL_BLOCK_ID

if TYPE_CHECKING:
    from oracle.align.memory import Copy, Move, StateTensor

_TILE = 1024
"""Bytes that a copy kernel moves at once (contract 1.1)."""
_mark = partial(marks.mark, topic="align.memory")

_SENTINEL = _mark("a copy is left out, as a column is a sentinel")
_NO_SOURCE = _mark("a copy is left out, as its source is outside the row")
_NO_TARGET = _mark("a copy is left out, as its target is outside the row")
_NULL_SOURCE = _mark("a copy is left out, as the null block is its source")
_NULL_TARGET = _mark("a copy is left out, as the null block is its target")
_INSIDE = {
    ("SD", 1): _mark("SD move with bias 1 inside one block"),
    ("SD", 2): _mark("SD move with bias 2 inside one block"),
    ("SD", 3): _mark("SD move with bias above 2 inside one block"),
    ("DS", 1): _mark("DS move with bias 1 inside one block"),
    ("DS", 2): _mark("DS move with bias 2 inside one block"),
    ("DS", 3): _mark("DS move with bias above 2 inside one block"),
}
_BETWEEN = {
    "SD": _mark("SD move with a bias to another block"),
    "DS": _mark("DS move with a bias to another block"),
}
_OVERLAP = _mark("rows move within their block onto some of themselves")
_APART = _mark("rows move within their block onto none of themselves")
_LAST_ROW = _mark("the bias leaves the last row of a window alone")
_DRAFTED = _mark("a temporal state moves from the column of an accepted draft")
_ONTO_ITSELF = _mark("a temporal state moves onto itself")
_TILES = _mark("a state of several tiles moves")
_STRIDED = _mark("a state with other bytes between its blocks moves")
_BEHIND = _mark("a state that lies behind another one in its page moves")
_UNALIGNED = _mark("a state that begins between two words moves")
_FAR = _mark("a state moves beyond 31 bits")
_VERY_FAR = _mark("a state moves beyond 32 bits")
_GROUPS = _mark("a request's states move in several groups")


def note_skipped(row: Sequence[int], move: Move, src_col: int) -> None:
    """Note why a copy was left out."""
    if min(move.src_col, move.dst_col) < 0:
        _SENTINEL.reached()
    elif max(src_col, move.dst_col) >= len(row):
        (_NO_SOURCE if src_col >= len(row) else _NO_TARGET).reached()
    else:
        _NULL_SOURCE.reached_if(row[src_col] <= NULL_BLOCK_ID)
        _NULL_TARGET.reached_if(row[move.dst_col] <= NULL_BLOCK_ID)


def note_copy(state: StateTensor, layout: str, bias: int, pieces: Copy, *, inside: bool) -> None:
    """Note what was copied; `inside`: within one block."""
    geometry, size = state.geometry, sum(piece.length for piece in pieces)
    if state.kind == "conv":
        rows = geometry.block_shape[0 if layout == "SD" else 1]
        _note_rows(layout, bias, rows, inside=inside)
    else:
        _DRAFTED.reached_if(bias > 0)
        _ONTO_ITSELF.reached_if(inside)
    far = max(pieces[-1].source.offset, pieces[-1].target.offset)
    _TILES.reached_if(size > _TILE)
    _STRIDED.reached_if(bias == 0 and size < geometry.block_stride_bytes)
    _BEHIND.reached_if(0 < geometry.offset_bytes < geometry.block_stride_bytes)
    _UNALIGNED.reached_if(geometry.offset_bytes % 4)
    _FAR.reached_if(far >= 2**31)
    _VERY_FAR.reached_if(far >= 2**32)


def _note_rows(layout: str, bias: int, rows: int, *, inside: bool) -> None:
    if bias == 0:
        return
    _LAST_ROW.reached_if(bias == rows - 1)
    if inside:
        _INSIDE[layout, min(bias, 3)].reached()
        (_OVERLAP if bias < rows - bias else _APART).reached()
    else:
        _BETWEEN[layout].reached()


def note_groups(groups: Collection[int]) -> None:
    """Note in which groups something was copied."""
    _GROUPS.reached_if(len(groups) > 1)
