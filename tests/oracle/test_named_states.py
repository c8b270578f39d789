"""A state in memory names its tokens, its layer, its kind and its element, and is no state of another place."""

from __future__ import annotations

import pytest

from oracle.lifecycle.known_states import ANOTHER_PLACE, KnownStates
from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.named_states import (
    KINDS,
    UNKNOWN,
    named,
    named_place,
    place_name,
    state_in,
    states_after,
    unnamed,
)
from oracle.lifecycle.observed import Decided, ForwardRow, GroupAccess, ObservedStep

PROMPT = (1, 2, 3, 4)
STATES = states_after(PROMPT)


def places(layer: int, kind: str, count: int = 3) -> list[int]:
    return [place_name(layer, kind, element) for element in range(count)]


def words(state: int, layer: int, kind: str, count: int = 3) -> list[int]:
    return [named(state, place) for place in places(layer, kind, count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", [0, 1, 1023])
def test_words_of_their_own_place_are_the_state(layer: int, kind: str) -> None:
    found = words(STATES[2], layer, kind)
    assert all(0 < word < 1 << 62 for word in found)
    assert state_in(found, places(layer, kind)) == STATES[2]


def test_no_two_places_have_one_name() -> None:
    names = {
        place_name(layer, kind, element) for layer in range(40) for kind in KINDS for element in range(20)
    }
    assert len(names) == 40 * len(KINDS) * 20


@pytest.mark.parametrize(("layer", "kind"), [(1, "temporal"), (0, "conv"), (0, "keys"), (7, "temporal")])
def test_words_of_another_place_are_no_state_of_this_one(layer: int, kind: str) -> None:
    found = state_in(words(STATES[2], layer, kind), places(0, "temporal"))
    assert found not in (0, UNKNOWN, *STATES)
    assert (named_place(found), unnamed(found)) == ((layer, kind, 0), STATES[2])


def test_elements_in_another_order_are_no_state() -> None:
    moved = [*words(STATES[2], 0, "temporal")[1:], words(STATES[2], 0, "temporal")[0]]
    assert state_in(moved, places(0, "temporal")) == UNKNOWN
    shifted = words(STATES[2], 0, "temporal", 4)[1:]
    assert named_place(state_in(shifted, places(0, "temporal"))) == (0, "temporal", 1)


@pytest.mark.parametrize("places_read", [places(0, "temporal"), places(1, "conv")])
def test_words_of_two_states_are_unknown(places_read: list[int]) -> None:
    mixed = [*words(STATES[2], 0, "temporal")[:2], words(STATES[1], 0, "temporal")[2]]
    assert state_in(mixed, places_read) == UNKNOWN


def test_words_of_two_layers_are_unknown() -> None:
    mixed = [*words(STATES[2], 0, "temporal")[:2], words(STATES[2], 1, "temporal")[2]]
    assert state_in(mixed, places(2, "temporal")) == UNKNOWN


def test_zeros_are_the_state_before_the_first_token_at_every_place() -> None:
    assert named(0, place_name(3, "conv")) == 0
    assert state_in([0, 0, 0], places(3, "conv")) == 0
    assert state_in([0, 0, 1], places(3, "conv")) == UNKNOWN


@pytest.mark.parametrize("word", [UNKNOWN, -(1 << 63), 0x5A5A5A5A5A5A5A5A, 0x5A5A5A5A5A5A5A5, 5, STATES[2]])
def test_bytes_that_name_no_place_are_unknown(word: int) -> None:
    assert state_in([word] * 3, places(0, "temporal")) == UNKNOWN


@pytest.mark.parametrize(
    ("layer", "kind", "element", "rule"),
    [
        (-1, "conv", 0, r"layer = -1, but should be from 0 to 1023"),
        (1024, "conv", 0, r"layer = 1024, but should be from 0 to 1023"),
        (0, "cnov", 0, r"kind = 'cnov', but should be in \['keys', 'values', 'conv', 'temporal'\]"),
        (0, "conv", 512, r"element = 512, but should be from 0 to 511"),
    ],
)
def test_places_that_a_word_cannot_name_are_refused(layer: int, kind: str, element: int, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        place_name(layer, kind, element)


def test_a_state_of_another_place_is_of_no_request_and_names_the_place() -> None:
    known = KnownStates()
    known.add("r0", PROMPT)
    state = known.requests["r0"].state(3)
    of_layer = named(state, place_name(2, "conv"))
    assert known.found(of_layer) == (ANOTHER_PLACE, 0, ())
    assert known.meaning(of_layer) == "what was written as conv of layer 2: the state after 3 tokens of r0"
    assert known.meaning(named(state, place_name(2, "conv", 5))).startswith(
        "what was written as conv of layer 2, element 5: "
    )


def test_a_read_of_another_layers_state_breaks_the_law() -> None:
    laws = LiveLaws((4, 8), window=2, num_blocks=8)
    laws.add("r0", (*PROMPT, 5))
    laws.requests["r0"].computed = 4
    own = [state_in(words(STATES[3], layer, "temporal"), places(layer, "temporal")) for layer in (0, 2)]
    moved = [state_in(words(STATES[3], 0, "temporal"), places(layer, "temporal")) for layer in (0, 2)]

    def broken(temporal: list[int]) -> list[str]:
        window = tuple(STATES[2:4])
        group = GroupAccess(1, True, (2, 2), (window, window), tuple(temporal), (2,), (0,))
        row = ForwardRow("r0", (5,), 4, keys=(tuple(STATES),), groups=[group])
        owners = [("r0", 0, 0, 1), ("r0", 1, 0, 2)]
        seen = ObservedStep(
            scheduled={"r0": Decided(4, 1, 0, begins=True)}, rows=[row], owners=owners, owners_after=owners
        )
        return [sentence for law, sentence, *_ in laws.step(seen) if law == "read"]

    assert broken(own) == []
    laws.requests["r0"].computed = 4
    moved_to = "what was written as temporal of layer 0: the state after 4 tokens of r0"
    assert broken(moved) == [f"the forward of r0 reads {moved_to} of block 2 of group 1"]
