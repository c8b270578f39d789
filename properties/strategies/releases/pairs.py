"""Covering arrays: few configurations in which any two values of two features stand together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Any, TypeVar

from hypothesis import strategies as st

Choice = tuple[str, Hashable]
"""A feature and one of its values."""
World = TypeVar("World")
Story = TypeVar("Story")


def apart(feature: str, *values: Hashable, **others: Sequence[Hashable]) -> Iterator[tuple[Choice, Choice]]:
    """Each of the values with each of those of the other features."""
    choices = chain.from_iterable(product([name], found) for name, found in others.items())
    return product(product([feature], values), choices)


def paired_worlds(
    features: Mapping[str, Sequence[Hashable]],
    excluded: Iterable[tuple[Choice, Choice]],
    combined: Callable[[Mapping[str, Any]], World],
) -> tuple[World, ...]:
    """Engines in which any two values of two features stand together, but those that are excluded: `combined` of each row of a covering array."""
    return tuple(map(combined, covering_rows(features, excluded)))


def paired_stories(
    worlds: Sequence[World], stories_of: Callable[[World], st.SearchStrategy[Story]]
) -> st.SearchStrategy[Story]:
    """Scenarios of one of the engines, each of them as likely as another one."""
    return st.sampled_from(worlds).flatmap(stories_of)


def covering_rows(
    features: Mapping[str, Sequence[Hashable]], excluded: Iterable[tuple[Choice, Choice]] = ()
) -> tuple[dict[str, Hashable], ...]:
    """Rows with a value of each feature, such that each two values of two features stand in one of them.

    Each row begins with a pair that no row has, and takes of each other feature the value that makes the most new pairs. Pairs that no row can
    have, since with both of them a feature has no value left, are left out.

    Args:
        features: by name, the values.
        excluded: pairs that no row has.
    """
    order = {name: at for at, name in enumerate(features)}

    def pair(first: Choice, other: Choice) -> tuple[Choice, Choice]:
        return (first, other) if order[first[0]] < order[other[0]] else (other, first)

    separated = {pair(*of_both) for of_both in excluded}
    choices = [(name, value) for name, values in features.items() for value in values]
    # A dict keeps an order, so that the rows are the same in each process.
    missing = {pair(*both): None for both in combinations(choices, 2) if both[0][0] != both[1][0]}
    missing = {both: None for both in missing if both not in separated}

    def beside(choice: Choice, open_: Mapping[str, Sequence[Hashable]]) -> dict[str, list[Hashable]]:
        """The values of features that are open which may stand beside a choice."""
        return {
            name: [value for value in values if pair(choice, (name, value)) not in separated]
            for name, values in open_.items()
            if name != choice[0]
        }

    def completed(row: dict[str, Hashable], open_: dict[str, list[Hashable]]) -> dict[str, Hashable] | None:
        """The row with a value of each open feature, in their order; None where one of them has no value left."""
        if not all(open_.values()):
            return None
        if not open_:
            return row
        name, fits = next(iter(open_.items()))
        new = {value: sum(pair((name, value), other) in missing for other in row.items()) for value in fits}
        for value in sorted(fits, key=lambda value: -new[value]):
            found = completed({**row, name: value}, beside((name, value), open_))
            if found is not None:
                return found
        return None

    rows = []
    while missing:
        first, other = both = next(iter(missing))
        del missing[both]
        row = completed(
            dict(both), beside(other, beside(first, {name: list(of) for name, of in features.items()}))
        )
        if row is not None:
            for both in combinations(row.items(), 2):
                missing.pop(pair(*both), None)
            rows.append({name: row[name] for name in features})
    return tuple(rows)
