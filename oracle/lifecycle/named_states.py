"""States that name their tokens, and in memory their layer and their kind: numbers in place of recurrent states.

A state is a number that is made of its tokens, one after the other; the laws compare these numbers. Two layers are in the same state
after the same tokens. In memory the state therefore stands in words of 64 bits that also name the place that they were written for: the
layer, the kind of state and the element. A word that was written for one place and is read in another one is no state of that place:
the exchange of two layers, of two groups or of two kinds shows as a wrong state.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

FIRST_SAMPLED, VOCABULARY = 1000, 1_000_003
"""Tokens that the model says begin there, and so many of them there are; prompts have others."""
UNKNOWN = -1
"""What stands for bytes that are no state."""
KINDS = ("keys", "values", "conv", "temporal")
"""Of what a layer keeps: attention's keys and values, the rows of a convolution, and the temporal state of a recurrence."""
_STATE_BITS, _LAYER_BITS, _KIND_BITS, _ELEMENT_BITS = 33, 10, 2, 9
"""Of a word, from its lowest bit on."""
_SIGNATURE = 0x2D << (_STATE_BITS + _LAYER_BITS + _KIND_BITS + _ELEMENT_BITS)
"""The highest bits of each word, so that poison and other bytes are rarely taken for a name. A word is below 2**62: 0 and `UNKNOWN` are none."""


@lru_cache(1 << 16)
def advanced(state: int, token: int, weights: int = 0) -> int:
    """The state after one token more; 0 is the one before the first, and no later one is 0. `weights` are the model's, by number."""
    text = f"{state} {token} {weights}".encode() if weights else f"{state} {token}".encode()
    return (int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") << 1) | 1


def states_after(tokens: Iterable[int]) -> list[int]:
    """The state after each of the tokens."""
    state, states = 0, []
    for token in tokens:
        state = advanced(state, token)
        states.append(state)
    return states


def states_before(
    first: int, tokens: Sequence[int], parents: Sequence[int], weights: int = 0
) -> Iterator[int]:
    """The state before each of the tokens, of which each stands behind that at its place in `parents`, -1 for the state `first`; see `advanced` for `weights`."""
    after: list[int] = []
    for token, parent in zip(tokens, parents, strict=True):
        before = after[parent] if parent >= 0 else first
        yield before
        after.append(advanced(before, token, weights))


def place_name(layer: int, kind: str, element: int = 0) -> int:
    """The part of a word that names a place: a bit pattern above that of a state.

    Args:
        layer: its number among all layers of the model, so that it also tells groups apart.
        kind: one of `KINDS`.
        element: of several words of one state, such as the channels of a row of a convolution.

    Raises:
        ValueError: there is no such place.
    """
    if not 0 <= layer < 1 << _LAYER_BITS:
        raise ValueError(f"layer = {layer}, but should be from 0 to {(1 << _LAYER_BITS) - 1}")
    if kind not in KINDS:
        raise ValueError(f"kind = {kind!r}, but should be in {list(KINDS)}")
    if not 0 <= element < 1 << _ELEMENT_BITS:
        raise ValueError(f"element = {element}, but should be from 0 to {(1 << _ELEMENT_BITS) - 1}")
    numbers = ((element << _KIND_BITS) | KINDS.index(kind)) << _LAYER_BITS | layer
    return _SIGNATURE | numbers << _STATE_BITS


def named(state: int, place: int) -> int:
    """The word of a state at a place, whose name is `place`; the state before the first token is zeros at every place.

    What is no plain state keeps its bits: `UNKNOWN`, and a state that names a place already, as `state_in` finds it in a wrong place.
    """
    return state | place if 0 < state < 1 << _STATE_BITS else state


def named_place(word: int) -> tuple[int, str, int] | None:
    """The layer, the kind and the element that a word names; None for a number without a name."""
    numbers = (word ^ _SIGNATURE) >> _STATE_BITS
    if not 0 <= numbers < 1 << (_LAYER_BITS + _KIND_BITS + _ELEMENT_BITS):
        return None
    layer, rest = numbers & ((1 << _LAYER_BITS) - 1), numbers >> _LAYER_BITS
    return layer, KINDS[rest & ((1 << _KIND_BITS) - 1)], rest >> _KIND_BITS


def unnamed(word: int) -> int:
    """The state of a word, wherever it was written for."""
    return word & ((1 << _STATE_BITS) - 1)


def state_in(words: Sequence[int], places: Sequence[int]) -> int:
    """The state that all of a place's words name.

    Args:
        words: what stands there, at least one word.
        places: by word, the name of its place; see `place_name`.

    Returns:
        The state without its name. Where all words agree on another place, the first word with its name, which equals no state:
        `named_place` tells whose it is. Otherwise `UNKNOWN`.
    """
    first, own = words[0], places[0]
    if first == 0:
        return UNKNOWN if any(words) else 0
    if first < 0:
        return UNKNOWN
    moved = first ^ own
    if any(word ^ place != moved for word, place in zip(words, places, strict=True)):
        return _state_of_another_place(words)
    return moved if moved >> _STATE_BITS == 0 else _state_of_another_place(words)


def _state_of_another_place(words: Sequence[int]) -> int:
    """The first word, where all of them name one state of one layer and kind in the order of elements; otherwise `UNKNOWN`."""
    found = [named_place(word) for word in words]
    of_first = found[0]
    if of_first is None:
        return UNKNOWN
    for at, (word, place) in enumerate(zip(words, found, strict=True)):
        alike = place == (*of_first[:2], of_first[2] + at) or place == of_first
        if not alike or unnamed(word) != unnamed(words[0]):
            return UNKNOWN
    return words[0]


def next_token(state: int, vocabulary: int = VOCABULARY) -> int:
    """The token that a model with so many of them says after these tokens."""
    return FIRST_SAMPLED + state % vocabulary
