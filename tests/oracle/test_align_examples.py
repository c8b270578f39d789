"""The rules of align mode, worked by hand: every decision about a request's states, and the bytes that are copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from oracle.align import decisions
from oracle.align.decisions import AfterStep, Boundary, Slots
from oracle.align.memory import Move, Piece, Place, StateTensor, apply_moves, moved, state_copy
from oracle.layout import StateGeometry
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


@pytest.mark.parametrize(
    ("run", "first", "last", "accepted", "expected"),
    [
        case("crossed", 3, 11, 13, 3, AfterStep(3, Move(0, 3, 2, 1))),
        case("not-crossed", 3, 14, 14, 1, AfterStep(1, None)),
        case("not-crossed-count-kept", 3, 9, 10, 2, AfterStep(2, None)),
        case("in-place", 1, 6, 8, 3, AfterStep(1, Move(0, 1, 1, 2))),
        case("there-already", 1, 8, 8, 1, AfterStep(1, None)),
        case("there-already-more-accepted", 2, 12, 13, 2, AfterStep(1, None)),
        case("bias-0", 5, 20, 20, 1, AfterStep(1, Move(0, 5, 4, 0))),
        case("no-column", -1, 3, 4, 2, AfterStep(2, Move(0, -1, 0, 1))),
    ],
)
def test_a_step_ends_with_a_count_and_a_copy(
    run: int, first: int, last: int, accepted: int, expected: AfterStep
) -> None:
    assert decisions.after_step(0, run, first, last, accepted, BLOCK) == expected


def test_slots_after_a_v2_step_are_those_of_the_batch() -> None:
    # Slot 1 crosses, slot 3 ends in place, slots 0 and 2 are of no request in this batch and would be due.
    counts, columns, computed = [3, 3, 3, 3], [9, 3, 9, 1], [8, 13, 8, 8]
    found = decisions.after_v2_steps([3, -1, 1], counts, columns, computed, BLOCK, DOCUMENTS)
    assert found == {3: AfterStep(1, Move(0, 1, 1, 2)), 1: AfterStep(3, Move(2, 3, 2, 1))}


def test_a_slot_of_two_rows_has_no_answer() -> None:
    with pytest.raises(AssertionError, match="share a slot"):
        decisions.after_v2_steps([1, 1], [1, 1], [0, 0], [1, 1], BLOCK, DOCUMENTS)


@pytest.mark.parametrize(
    ("previous", "run", "accepted", "expected"),
    [
        case("fresh", -1, 1, 1, None),
        case("stays", 3, 3, 3, None),
        case("forward", 2, 3, 1, Move(0, 2, 3, 0)),
        case("with-bias", 4, 5, 3, Move(0, 4, 5, 2)),
        case("backward", 2, 1, 1, Move(0, 2, 1, 0)),
        case("several-columns", 0, 2, 1, Move(0, 0, 2, 0)),
    ],
)
def test_a_step_starts_with_a_copy_where_the_column_changes(
    previous: int, run: int, accepted: int, expected: Move | None
) -> None:
    assert decisions.before_step(0, previous, run, accepted) == expected


def test_the_preprocess_kernel_advances_the_slots_of_its_rows() -> None:
    # Rows: slot 2 crosses with bias 2, slot 0 is new, a row without a slot, slot 3 stays; slot 1 is of no request.
    before = Slots((-1, 7, 4, 3), (1, 2, 3, 3), (50, 51, 52, 53), (60, 61, 62, 63))
    found = decisions.advanced(before, [2, 0, -1, 3], [0, 3, 8, 10, 13], [0, 99, 19, 13], BLOCK, DOCUMENTS)
    assert found == Slots((1, 7, 5, 3), (1, 2, 1, 3), (-1, 51, 4, 3), (0, 61, 2, 2))


def test_only_a_count_of_a_state_that_moves_starts_anew() -> None:
    before = Slots((0, -1, 1), (2, 2, 0), (9, 9, 9), (9, 9, 9))
    found = decisions.advanced(before, [0, 1, 2], [0, 1, 2, 3], [4, 4, 4], BLOCK, DOCUMENTS)
    assert found == Slots((1, 1, 1), (1, 2, 0), (0, -1, 1), (1, 1, 0))


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
    ("computed", "scheduled", "num_spec", "columns", "remembered"),
    [
        case("all-drafts", 5, 3, 2, {"b": 7}, {"b": 7, "a": 1}),
        case("all-drafts-beyond-a-boundary", 6, 3, 2, {"a": 1}, {"a": 2}),
        case("one-draft", 6, 2, 1, {}, {"a": 1}),
        case("fewer-drafts", 5, 2, 2, {"a": 1, "b": 7}, {"b": 7}),
        case("more-tokens", 5, 4, 2, {"a": 1}, {}),
        case("fewer-drafts-unknown", 5, 2, 2, {}, {}),
        case("no-drafts", 5, 1, 0, {"a": 0}, {"a": 0}),
        case("no-drafts-more-tokens", 5, 2, 0, {"a": 0}, {"a": 0}),
    ],
)
def test_mode_all_remembers_the_last_column_of_decodes_with_all_drafts(
    computed: int, scheduled: int, num_spec: int, columns: dict[str, int], remembered: dict[str, int]
) -> None:
    lengths = {"a": (computed, scheduled)}
    assert decisions.last_scheduled_columns(columns, lengths, BLOCK, num_spec) == remembered


def test_channels_first_move_channel_by_channel() -> None:
    state = StateTensor("pool", StateGeometry(3, (2, 4), 2, 40, 6), "conv")
    found = state_copy(state, "DS", [1, 2], Move(0, 0, 1, 1), DOCUMENTS)
    # Channels of 4 rows of 2 bytes: the rows 1, 2 and 3 of each, 8 bytes apart.
    assert found == (
        Piece(Place("pool", 48), Place("pool", 86), 6),
        Piece(Place("pool", 56), Place("pool", 94), 6),
    )
    assert state_copy(state, "DS", [1, 2], Move(0, 0, 1, 4), DOCUMENTS) == ()
    whole = (Piece(Place("pool", 46), Place("pool", 86), 16),)
    assert state_copy(state, "DS", [1, 2], Move(0, 0, 1), DOCUMENTS) == whole


def test_rows_first_move_row_by_row() -> None:
    state = StateTensor("pool", StateGeometry(3, (3, 4), 2, 40, 6), "conv")
    found = state_copy(state, "SD", [1, 2], Move(0, 0, 1, 1), DOCUMENTS)
    assert [(source.offset, target.offset, size) for source, target, size in found] == [
        (54, 86, 8),
        (62, 94, 8),
    ]


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


def test_rows_move_within_a_block_as_through_a_temporary() -> None:
    pool = bytes(range(24))
    found = apply_moves({"pool": pool}, [CONV], "SD", [[(1,)]], [Move(0, 0, 0, 2)], DOCUMENTS)
    assert found["pool"] == bytes([*range(8), 10, 11, 12, 11, 12, *range(13, 24)])


def test_channels_move_within_a_block_as_through_a_temporary() -> None:
    state = StateTensor("pool", StateGeometry(2, (2, 3), 1, 8), "conv")
    found = apply_moves({"pool": bytes(range(16))}, [state], "DS", [[(1,)]], [Move(0, 0, 0, 1)], DOCUMENTS)
    assert found["pool"] == bytes([*range(8), 9, 10, 10, 12, 13, 13, 14, 15])


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
