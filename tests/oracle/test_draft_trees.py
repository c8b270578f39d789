"""In a tree of drafts each token stands behind the one above it, and those on the way of what a request says are accepted."""

from __future__ import annotations

import pytest

from oracle.lifecycle.known_states import KnownStates
from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.named_states import advanced, next_token, states_after, states_before
from oracle.lifecycle.observed import Decided, ForwardRow, GroupAccess, ObservedStep

PROMPT = (1, 2)
STATES = states_after(PROMPT)
FIRST = next_token(STATES[-1])
SECOND = next_token(states_after((*PROMPT, FIRST))[-1])
THIRD = next_token(states_after((*PROMPT, FIRST, SECOND))[-1])


def checked(tokens: tuple[int, ...], parents: tuple[int, ...]) -> LiveLaws:
    """After a step that verifies these drafts behind a prompt of two tokens."""
    laws = LiveLaws((4, 8), window=2, num_blocks=8)
    laws.add("r0", PROMPT)
    laws.requests["r0"].computed = 2
    group = GroupAccess(1, True, (2, 2), (tuple(STATES),), (STATES[-1],), (2,), tuple(range(len(tokens))))
    row = ForwardRow("r0", tokens, 2, keys=(tuple(STATES),), groups=[group], parents=parents)
    owners = [("r0", 0, 0, 1), ("r0", 1, 0, 2)]
    drafts = len(tokens) - 1
    seen = ObservedStep(
        scheduled={"r0": Decided(2, len(tokens), drafts, begins=False)},
        rows=[row],
        owners=owners,
        owners_after=owners,
        references=[(1, 1), (2, 1)],
        free=5,
    )
    assert laws.step(seen) == []
    return laws


def test_the_state_before_a_token_is_that_after_the_token_above_it() -> None:
    found = list(states_before(7, (3, 4, 5), (-1, 0, 0)))
    assert found == [7, found[1], found[1]]
    assert len(set(found)) == 2


def test_a_right_draft_behind_a_wrong_sibling_is_accepted() -> None:
    laws = checked((FIRST, SECOND - 1, SECOND, THIRD), (-1, 0, 0, 2))
    assert laws.requests["r0"].computed == 5


def test_a_right_token_behind_a_wrong_draft_is_rejected() -> None:
    laws = checked((FIRST, SECOND - 1, SECOND, THIRD), (-1, 0, 0, 1))
    assert laws.requests["r0"].computed == 4


def test_a_chain_is_a_tree_without_siblings() -> None:
    chain = checked((FIRST, SECOND, THIRD - 1), ())
    tree = checked((FIRST, SECOND, THIRD - 1), (-1, 0, 1))
    assert chain.requests["r0"].computed == tree.requests["r0"].computed == 4


@pytest.mark.parametrize("updates", [0, 1])
def test_a_rejected_draft_is_found_by_what_stands_above_it(updates: int) -> None:
    known = KnownStates()
    for _ in range(updates):
        known.update_weights()
    known.add("r0", PROMPT)
    behind = known.requests["r0"].state(2)
    known.remember(behind, (5, 6, 7), (-1, 0, 0))
    assert known.found(advanced(advanced(behind, 5, updates), 7, updates)) == ("r0", 2, (5, 7))
