"""States that name their tokens: numbers in place of recurrent states, made of the tokens one after the other."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

FIRST_SAMPLED, VOCABULARY = 1000, 1_000_003
"""Tokens that the model says begin there, and so many of them there are; prompts have others."""
UNKNOWN = -1
"""What stands for bytes that are no state."""


@lru_cache(1 << 16)
def advanced(state: int, token: int) -> int:
    """The state after one token more; 0 is the one before the first, and no later one is 0."""
    text = f"{state} {token}".encode()
    return (int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") << 1) | 1


def states_after(tokens: Iterable[int]) -> list[int]:
    """The state after each of the tokens."""
    state, states = 0, []
    for token in tokens:
        state = advanced(state, token)
        states.append(state)
    return states


def states_before(first: int, tokens: Sequence[int], parents: Sequence[int]) -> Iterator[int]:
    """The state before each of the tokens, of which each stands behind that at its place in `parents`, -1 for the state `first`."""
    after: list[int] = []
    for token, parent in zip(tokens, parents, strict=True):
        before = after[parent] if parent >= 0 else first
        yield before
        after.append(advanced(before, token))


def next_token(state: int, vocabulary: int = VOCABULARY) -> int:
    """The token that a model with so many of them says after these tokens."""
    return FIRST_SAMPLED + state % vocabulary


def other_than(token: int) -> int:
    """A token that the model does not say in its place."""
    return FIRST_SAMPLED + (token - FIRST_SAMPLED + 1) % VOCABULARY
