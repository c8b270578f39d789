"""Kept states, logical chunks and allocations of slots, worked by hand on a few rows, tokens and slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from oracle import tracking
from oracle.tracking import broken_allocation
from tests.oracle.worked import case, refused


@pytest.mark.parametrize(
    ("boundaries", "tokens", "chunk_size", "flat", "expected"),
    [
        # Rows of 2, 4 and 2 chunks: the second row begins with chunk 2, the third with chunk 6.
        case(
            "chunks-of-rows",
            (2, 4, 4),
            (3, 7, 4),
            2,
            False,
            [(0, "chunk", 1), (1, "chunk", 4), (2, "last", 0)],
        ),
        # The second row begins at token 3: its boundary is token 7, inside of chunk 3.
        case(
            "chunks-of-the-batch",
            (2, 4, 4),
            (3, 7, 4),
            2,
            True,
            [(0, "chunk", 1), (1, "computed", 7), (2, "last", 0)],
        ),
        # The third row begins at token 6: its boundary is token 10, where chunk 5 begins.
        case("back-on-the-grid", (None, None, 4), (3, 3, 7), 2, True, [(2, "chunk", 5)]),
        case("row-behind-padded-chunks", (None, None, 4), (3, 3, 7), 2, False, [(2, "chunk", 6)]),
        case("start-of-a-row", (None, 0), (5, 2), 4, False, [(1, "chunk", 2)]),
        case("start-off-the-grid", (None, 0), (5, 2), 4, True, [(1, "computed", 5)]),
        case("start-on-the-grid", (None, 0), (8, 2), 4, True, [(1, "chunk", 2)]),
        case("start-of-the-batch", (0,), (2,), 4, True, [(0, "chunk", 0)]),
        case("end-off-the-grid", (None, 4), (3, 4), 4, True, [(1, "last", 0)]),
        case("one-chunk-less", (8,), (9,), 4, True, [(0, "chunk", 2)]),
        case("three-of-four-chunks", (9,), (12,), 3, False, [(0, "chunk", 3)]),
        case("chunks-of-one", (1, 2), (2, 3), 1, False, [(0, "chunk", 1), (1, "chunk", 4)]),
        case("row-without-tokens", (0, 4), (0, 5), 4, False, [(0, "last", 0), (1, "chunk", 1)]),
        case("nothing-is-kept", (None, None), (4, 4), 4, True, []),
        case("no-rows", (), (), 4, True, []),
    ],
)
def test_a_kept_state_is_the_last_of_a_chunk_or_computed(
    boundaries: Sequence[int | None],
    tokens: Sequence[int],
    chunk_size: int,
    flat: bool,
    expected: list[tuple[int, str, int]],
) -> None:
    assert tracking.kept_states(boundaries, tokens, chunk_size, flat) == expected


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    ("argument", "boundaries"),
    [
        ("boundaries[0]", (1, 0)),
        ("boundaries[1]", (0, 3)),
        ("boundaries[1]", (None, -2)),
        ("boundaries[1]", (None, 6)),
        ("", (None, 4)),
        ("boundaries[0]", (6, None)),
        ("", (4, None)),
        ("", (0, 0)),
    ],
)
def test_a_boundary_is_a_multiple_up_to_the_rows_tokens(
    argument: str, boundaries: Sequence[int | None], flat: bool
) -> None:
    with refused(argument):
        tracking.kept_states(boundaries, (4, 5), 2, flat)


@pytest.mark.parametrize("chunk_size", [0, -2, True, 2.0, None])
def test_a_chunk_size_is_an_int_of_at_least_1(chunk_size: Any) -> None:
    with refused("chunk_size"):
        tracking.kept_states((), (), chunk_size, True)
    with refused("chunk_size"):
        tracking.logical_chunks((), chunk_size)


@pytest.mark.parametrize(
    ("tokens", "chunk_size", "expected"),
    [
        case("whole-chunks", (9,), 4, [(0, 0), (1, 0), (2, 0)]),
        case("a-row-ends-with-its-chunk", (4, 2), 4, [(0, 0), (1, 0)]),
        case("a-chunk-of-two-rows", (3, 2), 4, [(0, 0), (0, 3), (1, 0)]),
        case("a-chunk-of-three-rows", (1, 2, 2), 4, [(0, 0), (0, 1), (0, 3), (1, 0)]),
        case("a-row-over-three-chunks", (2, 7, 1), 3, [(0, 0), (0, 2), (1, 0), (2, 0), (3, 0)]),
        case("one-token-into-a-chunk", (5,), 4, [(0, 0), (1, 0)]),
        case("empty-between", (2, 0, 1), 4, [(0, 0), (0, 2)]),
        case("empty-at-a-chunk", (4, 0), 4, [(0, 0)]),
        case("empty-first", (0, 3), 4, [(0, 0)]),
        case("chunks-of-one", (2, 1), 1, [(0, 0), (1, 0), (2, 0)]),
        case("a-row-without-tokens", (0,), 4, []),
        case("no-rows", (), 4, []),
    ],
)
def test_a_logical_chunk_begins_with_a_row_and_with_a_chunk(
    tokens: Sequence[int], chunk_size: int, expected: list[tuple[int, int]]
) -> None:
    assert tracking.logical_chunks(tokens, chunk_size) == expected


@pytest.mark.parametrize(
    ("given", "broken"),
    [
        (((1, 2), (2,)), "allocation 1: slot 2 is given, but belongs to another allocation"),
        (((1, 1), (3,)), "allocation 0: (1, 1) is given, but should be 2 slots"),
        (((1,), (3,)), "allocation 0: (1,) is given, but should be 2 slots"),
        (((1, 2, 3), (3,)), "allocation 0: (1, 2, 3) is given, but should be 2 slots"),
        (((0, 1), (3,)), "allocation 0: slot 0 is given, but should be from 1 to 3"),
        (((1, 4), (3,)), "allocation 0: slot 4 is given, but should be from 1 to 3"),
        (((5, 4), (3,)), "allocation 0: slot 5 is given, but should be from 1 to 3"),
        ((None, (3,)), "allocation 0: none of 3 free slots is given, but should be 2"),
        (((1, 2), None), "allocation 1: none of 1 free slots is given, but should be 1"),
        (((1, 2), (3,)), "nothing"),
        (((3, 1), (2,)), "nothing"),
    ],
)
def test_a_wrong_allocation_has_a_sentence(given: Any, broken: str) -> None:
    assert broken_allocation(3, (("alloc", 2), ("alloc", 1)), given) == broken


@pytest.mark.parametrize(
    ("wanted", "slots", "broken"),
    [
        (2, (3, 1), "allocation 1: (3, 1) is given, but only 1 slots are free"),
        (2, None, "nothing"),
        (1, (3,), "nothing"),
        (0, (), "nothing"),
        (0, None, "allocation 1: none of 1 free slots is given, but should be 0"),
        (0, (3,), "allocation 1: (3,) is given, but should be 0 slots"),
    ],
)
def test_more_slots_than_are_free_are_not_given(wanted: int, slots: Any, broken: str) -> None:
    assert broken_allocation(3, (("alloc", 2), ("alloc", wanted)), ((1, 2), slots)) == broken


def test_of_several_slots_of_other_allocations_the_lowest_is_named() -> None:
    operations = (("alloc", 1), ("alloc", 2), ("alloc", 3))
    wrong = broken_allocation(8, operations, ((5,), (4, 2), (4, 7, 2)))
    assert wrong == "allocation 2: slot 2 is given, but belongs to another allocation"


@pytest.mark.parametrize(
    ("again", "broken"),
    [((1, 3), "nothing"), ((2, 3), "allocation 3: slot 2 is given, but belongs to another allocation")],
)
def test_slots_of_a_freed_allocation_alone_are_given_again(again: tuple[int, ...], broken: str) -> None:
    operations = (("alloc", 1), ("alloc", 1), ("free", 0), ("alloc", 2))
    assert broken_allocation(3, operations, ((1,), (2,), None, again)) == broken


def test_all_slots_are_given_again_after_a_clear() -> None:
    operations = (("alloc", 1), ("alloc", 2), ("clear", 0), ("alloc", 3), ("left", 0))
    assert broken_allocation(3, operations, ((1,), (2, 3), None, (3, 2, 1), (0,))) == "nothing"


def test_an_allocation_without_slots_holds_and_frees_none() -> None:
    operations = (("alloc", 4), ("free", 0), ("left", 0), ("alloc", 3))
    assert broken_allocation(3, operations, (None, None, (3,), (1, 2, 3))) == "nothing"


def test_the_ends_of_a_group_of_allocations_change_no_slot() -> None:
    operations = (("begin", 0), ("alloc", 1), ("end", 0), ("left", 0), ("alloc", 2))
    assert broken_allocation(3, operations, (None, (2,), None, (2,), (3, 1))) == "nothing"


def test_slots_that_are_left_are_counted() -> None:
    operations = (("alloc", 2), ("free", 0), ("left", 0))
    assert broken_allocation(3, operations, ((1, 2), None, (3,))) == "nothing"
    wrong = broken_allocation(3, operations, ((1, 2), None, (1,)))
    assert wrong == "operation 2: (1,) slots are left, but should be 3"


def test_slots_of_an_allocation_are_not_left() -> None:
    operations = (("alloc", 1), ("left", 0))
    assert broken_allocation(3, operations, ((2,), (2,))) == "nothing"
    wrong = broken_allocation(3, operations, ((2,), None))
    assert wrong == "operation 1: None slots are left, but should be 2"


def test_slots_that_change_behind_a_later_operation_are_wrong() -> None:
    operations = [("alloc", 1), ("alloc", 1), ("free", 0)]
    given = [(3,), (2,), None]
    assert broken_allocation(3, operations, given) == "nothing"
    changed = [{0: (3,)}, {0: (3,), 1: (2,)}, {1: (3,)}]
    assert broken_allocation(3, operations, given, changed) == (
        "the slots of allocation 1 are (3,) behind operation 2, but should be (2,)"
    )


@pytest.mark.parametrize(
    ("operations", "given", "broken"),
    [
        # The sibling of allocation 0 gives back its first slot, and keeps the second.
        (("share", "part", "free"), ((1, 2), None, None, None, (2,)), "nothing"),
        (("share", "part", "free"), ((1, 2), None, None, None, (3,)), "operation 4: (3,) slots are left, but should be 2"),
        (("share", "free"), ((1, 2), None, None, (1,)), "nothing"),
        (("share", "free"), ((1, 2), None, None, (3,)), "operation 3: (3,) slots are left, but should be 1"),
        (("part",), ((1, 2), None, (2,)), "nothing"),
        (("part",), ((1, 2), None, (1,)), "operation 2: (1,) slots are left, but should be 2"),
    ],
)  # fmt: skip
def test_a_slot_is_free_when_each_of_its_owners_has_given_it_back(
    operations: tuple[str, ...], given: Any, broken: str
) -> None:
    targets = {"share": 0, "part": 1 if "share" in operations else 0, "free": 0}
    asked = [("alloc", 2), *((name, targets[name]) for name in operations), ("left", 0)]
    assert broken_allocation(3, asked, given) == broken


@pytest.mark.parametrize(
    ("wanted", "verdict", "right"), [(1, 1, True), (2, 0, True), (1, 0, False), (2, 1, False)]
)
def test_a_request_is_admitted_if_its_slots_are_free(wanted: int, verdict: int, right: bool) -> None:
    wrong = broken_allocation(3, (("alloc", 2), ("admit", wanted)), ((1, 2), (verdict,)))
    word = "admitted" if verdict else "not admitted"
    assert wrong == ("nothing" if right else f"operation 1: {wanted} slots are {word}, but 1 are free")


@pytest.mark.parametrize(
    ("points", "broken"),
    [
        ([4, 8, 9], "nothing"),
        ([2, 4, 6, 8], "nothing"),
        ([4, 7, 8], "point 7 is no boundary of blocks of 2 tokens"),
        ([2, 8, 9], "point 4 is missing in [2, 8, 9]"),
        ([4, 8, 10], "point 10 is outside of a prompt of 9 tokens"),
        ([8, 4], "points = [8, 4], but should be ascending"),
    ],
)
def test_snapshots_are_at_boundaries_and_at_each_multiple_of_the_interval(
    points: list[int], broken: str
) -> None:
    assert tracking.broken_snapshots(9, 2, 4, points) == broken


@pytest.mark.parametrize(
    ("budgets", "taken", "broken"),
    [
        ((9, 3, 9, 9), (4, 3, 1, 1), "nothing"),
        ((9,), (5,), "step 0 ends at 5, behind 4, the state at which is kept"),
        ((3, 9), (3, 2), "step 1 ends at 5, behind 4, the state at which is kept"),
        ((2,), (3,), "step 0 takes 3 tokens, but should take from 0 to 2"),
        ((2,), (0,), "step 0 takes no token of 9, but has room for 2"),
        ((1,), (0,), "nothing"),
    ],
)
def test_no_step_passes_a_multiple_of_the_interval(budgets: Any, taken: Any, broken: str) -> None:
    assert tracking.broken_admission(0, 9, 2, 4, budgets, taken) == broken


@pytest.mark.parametrize(
    ("pairs", "broken"),
    [
        ([(1, 11)], "nothing"),
        ([(1, 11), (2, 12), (3, 13)], "nothing"),
        ([(3, 13)], "block 1, which has the state after 4 tokens, is not sent to block 11"),
        ([(3, 11)], "block 3 of column 2 is sent to block 11 of column 0"),
        ([(1, 11), (0, 0)], "nothing"),
        ([(1, 11), (2, 0)], "block 2 of column 1 is sent to block 0 of column None"),
    ],
)
def test_the_running_block_is_sent_to_its_own_column(pairs: Any, broken: str) -> None:
    assert tracking.broken_pairing((1, 2, 3), (11, 12, 13), 4, 4, pairs) == broken
