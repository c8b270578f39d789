"""The rules of align mode, worked by hand: every decision about a request's states, and the bytes that are copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from oracle.align import decisions
from oracle.align.decisions import Boundary, Slots
from oracle.align.memory import Move, Piece, Place, StateTensor, moved, state_copy
from oracle.rules import Refused
from oracle.variants import DOCUMENTS
from tests.oracle.worked import CONV, TEMPORAL, case, refused

BLOCK = 4


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        case("not-reached", 10, 10, None),
        case("behind", 9, 11, None),
        case("on-the-first", 8, 8, Boundary(1, 0)),
        case("first-of-several", 8, 10, Boundary(1, 0)),
        case("last-of-several", 10, 12, Boundary(2, 2)),
        case("in-the-middle", 11, 13, Boundary(2, 1)),
        case("second-of-two", 15, 16, Boundary(3, 1)),
        case("a-prompt-to-the-boundary", 4, 4, Boundary(0, 0)),
        case("no-full-block", 1, 3, None),
        case("first-block", 3, 5, Boundary(0, 1)),
        case("the-last-of-two", 7, 13, Boundary(2, 5)),
    ],
)
def test_a_boundary_is_the_last_multiple_that_accepted_states_reach(
    first: int, last: int, expected: Boundary | None
) -> None:
    assert decisions.boundary(first, last, BLOCK) == expected


def test_a_slot_of_two_rows_has_no_answer() -> None:
    with pytest.raises(AssertionError, match="share a slot"):
        decisions.after_v2_steps([1, 1], [1, 1], [0, 0], [1, 1], BLOCK, DOCUMENTS)


def test_rows_without_a_slot_are_refused_where_a_release_has_none() -> None:
    slots, strict = Slots((-1, -1), (1, 1), (9, 9), (9, 9)), replace(DOCUMENTS, preprocess_skips_rows=False)
    with pytest.raises(Refused, match=r"idx_mapping\[1\] = -1"):
        decisions.advanced(slots, [0, -1], [0, 1, 2], [0, 0], BLOCK, strict)
    assert decisions.advanced(slots, [0], [0, 1], [0, 0], BLOCK, strict).columns == (0, -1)


@pytest.mark.parametrize(("by_slot", "row"), [case("by-row", False, 3), case("by-slot", True, 0)])
def test_slots_that_change_their_column_are_precopied(by_slot: bool, row: int) -> None:
    # Slot 0 moves, slot 1 stays, slot 2 is new; a row has no slot.
    profile = replace(DOCUMENTS, tables_by_slot=by_slot)
    found = decisions.precopy_moves([2, -1, 1, 0], [5, 3, 4], [0, 3, -1], [2, 1, 0], profile)
    assert found == [Move(row, 0, 5, 2)]
    decided = decisions.after_v2_steps([2, -1, 1, 0], [3, 1, 1], [3, 0, 0], [13, 1, 1], BLOCK, profile)
    assert decided[0].move == Move(row, 3, 2, 1)


@pytest.mark.parametrize(
    ("state", "row", "move"),
    [
        case("fresh", CONV, (1, 2), Move(0, -1, 1)),
        case("fresh-with-bias", TEMPORAL, (1, 2), Move(0, -1, 0, 1)),
        case("no-destination", CONV, (1, 2), Move(0, 0, -1)),
        case("source-past-the-row", CONV, (1, 2), Move(0, 2, 0)),
        case("destination-past-the-row", CONV, (1, 2), Move(0, 0, 2)),
        case("accepted-past-the-row", TEMPORAL, (1, 2), Move(0, 1, 0, 1)),
        case("null-source", CONV, (0, 2), Move(0, 0, 1)),
        case("null-accepted", TEMPORAL, (1, 2, 0), Move(0, 1, 0, 1)),
        case("null-destination", CONV, (1, 0), Move(0, 0, 1)),
        case("negative-block", CONV, (-1, 2), Move(0, 0, 1)),
    ],
)
def test_nothing_is_copied_through_a_sentinel(state: StateTensor, row: Sequence[int], move: Move) -> None:
    assert state_copy(state, "SD", row, move, DOCUMENTS) == ()
    with refused("block_table"):
        state_copy(state, "SD", row, move, replace(DOCUMENTS, skips_missing_states=False))


@pytest.mark.parametrize(
    ("places", "meet"),
    [
        case("apart", [(0, 10), (4, 14)], False),
        case("same-source", [(0, 10), (0, 14)], False),
        case("both-write", [(0, 10), (4, 13)], True),
        case("reads-what-the-other-writes", [(0, 10), (12, 20)], True),
        case("written-by-the-other", [(12, 20), (0, 10)], True),
        case("swap", [(0, 10), (10, 0)], True),
        case("a-read-before-an-earlier-one", [(20, 28), (0, 24), (12, 0)], True),
        case("behind-a-write-that-is-over", [(16, 0), (20, 8), (8, 28)], True),
        case("behind-a-write-of-its-own", [(2, 0), (20, 4)], True),
        case("side-by-side", [(4, 0), (0, 8), (12, 16)], True),
    ],
)
def test_copies_that_meet_have_no_answer(places: list[tuple[int, int]], meet: bool) -> None:
    copies = [(Piece(Place("pool", source), Place("pool", target), 4),) for source, target in places]
    if meet:
        with pytest.raises(AssertionError, match=r"both write|which copy"):
            moved({"pool": bytes(32)}, copies)
    else:
        assert len(moved({"pool": bytes(32)}, copies)["pool"]) == 32


def test_a_copy_may_meet_itself() -> None:
    forwards = [(Piece(Place("pool", 0), Place("pool", 2), 4),)]
    backwards = [(Piece(Place("pool", 2), Place("pool", 0), 4),)]
    assert moved({"pool": b"abcdef"}, forwards) == {"pool": b"ababcd"}
    assert moved({"pool": b"abcdef"}, backwards) == {"pool": b"cdefef"}
    window = dict(enumerate(b"abcdef", 2**40))
    shifted = [(Piece(Place("far", 2**40), Place("far", 2**40 + 2), 4),)]
    assert moved({"far": window, "pool": b"ab"}, shifted) == {
        "far": dict(enumerate(b"ababcd", 2**40)),
        "pool": b"ab",
    }
