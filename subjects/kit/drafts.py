"""Drafts of which a model accepts as many as a scenario says, in chains and in trees."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def chain_of(right: Sequence[int], good: int) -> list[int]:
    """Drafts one behind the other, of which the first `good` are what the model says, and each other one is a token that it does not say there."""
    return [token if at < good else token - 1 for at, token in enumerate(right)]


def tree_of(right: Sequence[int], good: int, count: int) -> tuple[list[int], list[int]]:
    """So many drafts, where wrong ones stand beside the right ones, and in front of them; and the node before each, the first of all being 0."""
    tokens: list[int] = []
    parents, last = [-1], 0
    for at in range(good):
        if len(tokens) + good - at < count:
            tokens.append(right[at] - 1)
            parents.append(last)
        tokens.append(right[at])
        parents.append(last)
        last = len(tokens)
    for number in range(count - len(tokens)):
        tokens.append(right[good] - 2 - number)
        parents.append(last)
    return tokens, parents


def above(parents: Sequence[int]) -> Any:
    """By node, itself and those above it."""
    found = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            found[node] |= found[parent]
    return found


def parents_of(children: Sequence[int], siblings: Sequence[int]) -> list[int]:
    """The node above each, -1 above the first, by the first child of each and its next sibling."""
    parents = [-1] * len(children)
    for node, first in enumerate(children):
        child = first
        while child >= 0:
            parents[child] = node
            child = siblings[child]
    return parents
