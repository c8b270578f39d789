"""Tuples of numbers from 0 on by their sum: what the layers of enumerations are made of."""

from __future__ import annotations

from collections.abc import Iterator


def sums(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All tuples of so many numbers with that sum."""
    if not parts:
        if not total:
            yield ()
        return
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in sums(total - first, parts - 1):
            yield (first, *rest)


def sequences(size: int) -> Iterator[tuple[int, ...]]:
    """All tuples whose sum and length add up to `size`, short ones first."""
    for length in range(1, size + 1):
        yield from sums(size - length, length)
    if not size:
        yield ()


def rising(size: int, least: int = 0) -> Iterator[tuple[int, ...]]:
    """The sequences of that size in which no number is less than the one before: one of each with the same numbers."""
    if not size:
        yield ()
    for first in range(least, size):
        for rest in rising(size - first - 1, first):
            yield (first, *rest)
