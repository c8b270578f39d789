"""Answers about what a prefill keeps, about its chunks, and about allocators of slots."""

from __future__ import annotations

from collections.abc import Sequence

from oracle import tracking
from statecheck.case.values import Value
from statecheck.reference import answers


@answers("TrackingPlan.kept_states", rule=tracking.kept_states)
def kept_states(
    boundaries: Sequence[int | None],
    tokens: Sequence[int],
    prefixes: Sequence[int],
    chunk_size: int,
    flat: bool,
) -> Value:
    """(row, source, place) of each row that keeps a state, in the order of rows; what is computed before does not matter."""
    del prefixes
    return tuple(tuple(one) for one in tracking.kept_states(boundaries, tokens, chunk_size, flat))


@answers("TrackingPlan.logical_chunks", rule=tracking.logical_chunks)
def logical_chunks(tokens: Sequence[int], chunk_size: int) -> Value:
    """(chunk, offset) of each run of tokens."""
    return tuple(tracking.logical_chunks(tokens, chunk_size))


@answers("TrackingPlan.allocate")
def allocated(size: int, operations: Value) -> Value:  # noqa: ARG001 - whatever is done
    """Nothing is wrong with the slots."""
    return "nothing"
