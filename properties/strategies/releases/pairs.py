"""Covering arrays: few configurations in which any two values of two features stand together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations

Choice = tuple[str, Hashable]
"""A feature and one of its values."""


def covering_rows(
    features: Mapping[str, Sequence[Hashable]], excluded: Iterable[tuple[Choice, Choice]] = ()
) -> tuple[dict[str, Hashable], ...]:
    """Rows with a value of each feature, such that each two values of two features stand in one of them.

    Each row begins with a pair that no row has, and takes of each other feature the value that makes the most new pairs.

    Args:
        features: by name, the values. With each allowed pair some value of each other feature is allowed.
        excluded: pairs that no row has.
    """
    order = {name: at for at, name in enumerate(features)}

    def pair(first: Choice, other: Choice) -> tuple[Choice, Choice]:
        return (first, other) if order[first[0]] < order[other[0]] else (other, first)

    apart = {pair(*of_both) for of_both in excluded}
    choices = [(name, value) for name, values in features.items() for value in values]
    # A dict keeps an order, so that the rows are the same in each process.
    missing = {pair(*both): None for both in combinations(choices, 2) if both[0][0] != both[1][0]}
    missing = {both: None for both in missing if both not in apart}
    rows = []
    while missing:
        row: dict[str, Hashable] = dict(next(iter(missing)))
        for name, values in features.items():
            if name not in row:
                made = {value: [pair((name, value), other) for other in row.items()] for value in values}
                fits = [value for value, pairs in made.items() if apart.isdisjoint(pairs)]
                row[name] = max(
                    fits, key=lambda value: sum(candidate in missing for candidate in made[value])
                )
        for both in combinations(row.items(), 2):
            missing.pop(pair(*both), None)
        rows.append({name: row[name] for name in features})
    return tuple(rows)
