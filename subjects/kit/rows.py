"""Rows of a batch as kernels without slots take them: a token of each row at a time, and on states that are gathered and written back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

__all__ = ["decodes", "gathered_states", "keep_states"]


def decodes(slots: Tensor, query_start_loc: Tensor, there: Tensor | None = None) -> Iterator[tuple[Any, Any]]:
    """For the first token of each row, the second, and so on: their places, and the slots of their rows.

    Args:
        there: which rows; None: all.
    """
    starts, lengths = query_start_loc[:-1], query_start_loc.diff()
    if there is None and (lengths == 1).all():
        # Nothing is gathered, so that strides are those of the caller.
        yield slice(len(slots)), slots
        return
    for at in range(int(lengths.max())):
        rows = lengths > at if there is None else there & (lengths > at)
        if rows.any():
            yield (starts[rows] + at).long(), slots[rows]


def gathered_states(states: Tensor, slots: Tensor, there: Tensor) -> Tensor:
    """The states of rows, behind each other; zeros for those that are not `there`."""
    found = states[slots.clamp(min=0).long()].contiguous()
    found[~there] = 0
    return found


def keep_states(states: Tensor, after: Tensor, slots: Tensor, there: Tensor) -> None:
    """Write the states behind rows, or behind tokens, to the slots of those that are `there`."""
    states[slots[there].long()] = after[there].to(states.dtype)
