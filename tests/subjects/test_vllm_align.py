"""What releases of vLLM do differently in align mode: their rules, their contract, and what tells their defects apart."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lab.tests.known_lint import failing
from oracle.align.context import CacheGroup, StateSpec, copy_capacity, num_slots
from oracle.align.decisions import Slots, advanced, after_v2_steps, precopy_moves
from oracle.align.memory import Move, StateTensor, state_copy
from oracle.errors import Refused
from oracle.layout import StateGeometry
from oracle.profile import DOCUMENTS, Profile
from properties.strategies.align.afters import After
from properties.strategies.align.cache import Filling
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.requests import Sampled
from properties.strategies.align.setup import Setup
from statecheck.case import Case, Failure
from statecheck.case.values import (
    Call,
    Let,
    Name,
    Raised,
    Record,
    Returned,
    Tensor,
    View,
    int32,
)
from statecheck.execution.run import Follower, rules_of
from subjects import LAYOUT_VARIABLE, KnownDeviation, Subject, load
from subjects.vllm_conditions import CONDITIONS
from subjects.vllm_conditions.calls import raw
from tests.helpers.cases import a_case
from tests.helpers.declared import entries
from tests.helpers.planted import broken_subject, defect_named

SUBJECT = Path(__file__).parents[2] / "subjects" / "vllm"
POSTPROCESS = "MambaSpecDecodeGPUContext.run_fused_postprocess_align"


def part(name: str) -> ModuleType:
    """A module of the adapter that needs no release; its package does."""
    spec = importlib.util.spec_from_file_location(f"vllm_{name}", SUBJECT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OUTSIDE = part("outside_align")


def release(*numbers: int) -> Profile:
    return Profile(**OUTSIDE.align_rules(numbers))


@pytest.mark.parametrize(
    ("field", "before", "since"),
    [
        ("pointer_dtype", ((0, 23, 0), "int64"), ((0, 24, 0), "uint64")),
        ("tables_by_slot", ((0, 31, 0), False), ((0, 32, 0), True)),
    ],
)
def test_rules_change_with_a_release(field: str, before: Any, since: Any) -> None:
    assert [getattr(release(*numbers), field) for numbers, _ in (before, since)] == [before[1], since[1]]


@pytest.mark.parametrize(
    ("profile", "precopied", "published"),
    [(DOCUMENTS, [0, 1], 0), (release(0, 33, 0), [2, 1], 2)],
    ids=["by row", "by slot"],
)
def test_a_row_s_blocks_are_found_at_its_place_in_the_batch_or_in_its_slot(
    profile: Profile, precopied: list[int], published: int
) -> None:
    """Two rows go from column 0 to column 1, in slots 2 and 1; a request in slot 2 accepts a draft on the boundary of block 0."""
    moves = precopy_moves((2, 1), (9, 1, 1), (9, 0, 0), (0, 0, 0), profile)
    assert [move.row for move in moves] == precopied
    decided = after_v2_steps((2,), (0, 0, 2), (0, 0, 0), (0, 0, 4), 4, profile)
    assert decided[2].move is not None
    assert decided[2].move.row == published


def advance(slot: int, profile: Profile) -> Slots:
    return advanced(Slots((0,), (1,), (7,), (7,)), (slot,), (0, 1), (4,), 4, profile)


def copied(row: tuple[int, ...], profile: Profile) -> Any:
    state = StateTensor("pool", StateGeometry(3, (4,), 1, 4, 0), "temporal")
    return state_copy(state, "SD", row, Move(0, 0, 1), profile)


def test_rows_without_a_slot_and_null_blocks_are_skipped() -> None:
    assert advance(-1, DOCUMENTS).columns == (0,)
    assert copied((0, 2), DOCUMENTS) == ()


@pytest.mark.parametrize(
    ("function", "wrong", "argument"),
    [(advance, -1, r"idx_mapping\[0\]"), *((copied, row, "block_table") for row in ((0, 2), (2, 0), (2,)))],
)
def test_they_are_refused_where_the_release_does_not_look(function: Any, wrong: Any, argument: str) -> None:
    with pytest.raises(Refused, match=argument):
        function(wrong, release(0, 25, 1))


GROUPS = (
    CacheGroup(("layer0",), StateSpec(4, ((1, 1), (1,)))),
    CacheGroup(("layer1",), StateSpec(4, ((1, 1),))),
)


@pytest.mark.parametrize(("profile", "slots"), [(DOCUMENTS, 4), (release(0, 29, 0), 3)])
def test_layers_with_fewer_states_leave_slots_unused_until_0_28(profile: Profile, slots: int) -> None:
    assert num_slots(GROUPS, 2, profile) == slots
    assert copy_capacity(3, GROUPS, 2, profile) == 3 * slots


def stepped(counts: tuple[int, ...], left: bytes) -> Case:
    """V2's postprocess of two blocks of two bytes, which is to make `counts` of a count of 2, and to change the second block."""
    call = Call(POSTPROCESS, (("num_accepted_tokens_gpu", Name("counts")),), observes=("counts", "pool0"))
    pages = Let("pages", View("pool0", "uint8", (2, 2), (2, 1)))

    def after(content: bytes) -> Returned:
        return Returned(None, after=(("counts", int32(counts)), ("pool0", replace(POOL, elements=content))))

    return a_case(
        subject="vllm",
        steps=(Let("counts", int32((2,))), Let("pool0", POOL), pages, call),
        expected=(after(b"\1\2\2\1"),),
        actual=(after(left),),
        failure=Failure("value", "pool0 differs", function=POSTPROCESS, call=0, place="pool0[3]"),
    )


POOL = Tensor("uint8", (4,), b"\1\2\3\4")


def test_a_count_is_reset_where_the_rules_change_it() -> None:
    in_place = CONDITIONS["count_in_place"]
    assert in_place.inputs(stepped((1,), b"\1\2\3\4"), DOCUMENTS)
    assert not in_place.inputs(stepped((2,), b"\1\2\3\4"), DOCUMENTS)
    assert not in_place.outcome(stepped((1,), b"\1\2\2\1"), DOCUMENTS)


def broken(name: str, tested: str, folder: Path) -> Case:
    """The first case in which a planted defect leaves wrong bytes."""
    with broken_subject(defect_named(name).variant, folder) as subject:
        case = failing(subject, tested, lambda one: one.failure is not None and one.failure.part == "pool")
    assert case is not None
    return case


def entry(name: str) -> KnownDeviation:
    """The entry of that id."""
    (found,) = [one for one in entries() if one.id == name]
    return found


def in_session(case: Case, where: str) -> Case:
    """The case as a session of requests in rows or slots states it: at the end of its last call."""
    assert case.failure is not None
    name = f"requests_in_{where}_read_and_publish_the_states_of_exactly_their_tokens"
    return replace(case, property_name=name, failure=replace(case.failure, place="stored"))


def with_pools(case: Case, change: Callable[[bytes], bytes]) -> Case:
    """The case with other bytes in the pools that its last call left."""
    *before, last = case.actual
    assert isinstance(last, Returned)
    after = (
        (name, replace(held, elements=change(held.elements)) if name.startswith("pool") else held)
        for name, held in last.after
    )
    return replace(case, actual=(*before, replace(last, after=tuple(after))))


@pytest.mark.usefixtures("executed")
def test_the_count_in_place_leaves_what_was_there_before_and_nothing_else(tmp_path: Path) -> None:
    case = broken(
        "the first program sets the counts, not the last",
        "an_accepted_state_on_a_boundary_is_stored_for_requests_in_slots",
        tmp_path,
    )
    assert CONDITIONS["count_in_place"](case, DOCUMENTS)
    assert not CONDITIONS["count_in_place"](with_pools(case, lambda held: held[::-1]), DOCUMENTS)


def case_pool(case: Case) -> bytes:
    """The first pool before the last call."""
    return next(raw(step.value) for step in case.steps if isinstance(step, Let) and step.name == "pool0")


TWO_GROUPS = Setup((Group((Kept("conv", (3, 1)),)),) * 2, ("conv",), block_size=3, num_spec=1, shared=True)
COLLAPSES, MOVES_ON = Sampled(1, 2, 1, 2), Sampled(2, 2, 1, 2)
"""Requests that accept a draft: up to the end of their column, where the count is set back, and beyond it."""
FIRST, SECOND, BEHIND = {3, 4}, {9, 10}, {24, 25, 26}
"""Bytes that are copied for the first group of one request, for the second, and for the second of another one behind it."""


def undone(
    places: set[int], *requests: Sampled, counts: bool = True, stale: bool = False, device: str = "cpu"
) -> Case:
    """V2's postprocess of a model with two groups that share a pool, with the bytes at these places as they were before.

    If `stale`, a cell of the first group's table without an owner names the second group's block.
    """
    batch = After(TWO_GROUPS, requests or (COLLAPSES,), filling=Filling(stale=stale, spare_columns=1))
    steps = (*batch.prepared(), *batch.slotwise())
    *before, last = (
        asked.expected for _, asked in Follower(rules_of(DOCUMENTS)).follow(steps) if asked is not None
    )
    assert isinstance(last, Returned)
    after = dict(last.after)
    held, pool = batch.cache.contents("pool0"), after["pool0"]
    assert all(held[at] != pool.elements[at] for at in places)
    found = bytes(held[at] if at in places else byte for at, byte in enumerate(pool.elements))
    left = after | {"pool0": replace(pool, elements=found)}
    if not counts:
        left["counts"] = next(step.value for step in steps if isinstance(step, Let) and step.name == "counts")
    return a_case(
        subject="vllm",
        device=device,
        steps=steps,
        expected=(*before, last),
        actual=(*before, replace(last, after=tuple(left.items()))),
        failure=Failure("value", "pool0 differs", function=POSTPROCESS, call=2, place="pool0[9]"),
    )


def test_a_state_that_was_not_copied_is_the_one_of_the_count_in_place() -> None:
    case = undone(SECOND, stale=True)
    (first, second) = (
        step.value.rows() for step in case.steps if isinstance(step, Let) and "table" in step.name
    )
    assert second[0][0] in first[0]
    assert CONDITIONS["count_in_place"](case, DOCUMENTS)
    assert entry("accepted-count-in-place").shows_in(in_session(case, "slots"), DOCUMENTS)


@pytest.mark.parametrize(
    ("places", "requests", "counts"),
    [
        (FIRST, (), True),
        (FIRST | SECOND, (), True),
        ({min(SECOND)}, (), True),
        (SECOND, (), False),
        (BEHIND, (COLLAPSES, MOVES_ON), True),
    ],
    ids=["the first state's", "all states'", "a part", "the count as well", "of a count that stays"],
)
def test_other_copies_that_are_missing_are_not_the_count_in_place_s(
    places: set[int], requests: tuple[Sampled, ...], counts: bool
) -> None:
    case = undone(places, *requests, counts=counts)
    assert CONDITIONS["count_in_place"].inputs(case, DOCUMENTS)
    assert not CONDITIONS["count_in_place"].outcome(case, DOCUMENTS)


@pytest.mark.parametrize(
    ("places", "known"),
    [(SECOND, True), ({min(SECOND)}, True), ({max(FIRST)}, True), (FIRST, False)],
    ids=["all of the second", "a part of the second", "a part of the first", "all of the first"],
)
def test_warps_that_come_late_leave_a_part_undone_of_the_first_state_too(
    places: set[int], known: bool
) -> None:
    assert CONDITIONS["count_in_place"](undone(places, device="cuda"), DOCUMENTS) == known


@pytest.mark.parametrize(
    ("places", "requests", "device", "known"),
    [
        (SECOND, (), "cuda", True),
        (SECOND, (), "cpu", False),
        ({max(FIRST)} | SECOND, (), "cuda", True),
        (BEHIND, (COLLAPSES, MOVES_ON), "cuda", False),
    ],
    ids=["beside", "program by program", "within", "a copy of a count that stays"],
)
def test_a_shift_is_known_beside_states_that_were_not_copied_because_of_the_count(
    places: set[int], requests: tuple[Sampled, ...], device: str, known: bool
) -> None:
    """A request can show both: one warp sets the count back, and another one reads rows that are overwritten."""
    case = undone(places, *requests, device=device)
    shifted = with_pools(case, lambda pool: pool[:3] + case_pool(case)[5:6] + pool[4:])
    assert CONDITIONS["shift_within_a_block"](shifted, DOCUMENTS) == known


@pytest.mark.usefixtures("executed")
def test_a_shift_goes_wrong_warp_by_warp_in_blocks_that_move_within_themselves(tmp_path: Path) -> None:
    case = broken(
        "rows slide from the wrong end", "rows_move_within_their_block_as_through_a_temporary", tmp_path
    )
    shifted = CONDITIONS["shift_within_a_block"]
    compiled = replace(case, device="cuda")
    assert shifted(compiled, DOCUMENTS)
    assert entry("shift-within-a-block").shows_in(in_session(compiled, "rows"), DOCUMENTS)
    assert not shifted(case, DOCUMENTS)
    assert not shifted(with_pools(compiled, lambda held: held[::-1]), DOCUMENTS)


class RowsFirst(Subject):
    """The implementation, for which rows come first whatever the layout is."""

    @contextmanager
    def environment(self, variables: dict[str, str]) -> Iterator[None]:
        with super().environment({name: value for name, value in variables.items() if value != "DS"}):
            yield


@pytest.mark.usefixtures("executed")
def test_channels_that_are_taken_for_rows_are_told_from_other_wrong_bytes() -> None:
    name = "an_accepted_state_on_a_boundary_is_stored_in_the_column_of_its_block"
    wrong = RowsFirst("impl", load("impl").module)
    case = failing(wrong, name, lambda one: one.failure is not None and one.failure.part == "pool")
    assert case is not None
    one = entry("channel-first-taken-for-rows")
    assert one.shows_in(case, DOCUMENTS)
    assert one.shows_in(in_session(case, "rows"), DOCUMENTS)
    assert not one.shows_in(with_pools(case, lambda held: held[::-1]), DOCUMENTS)


@pytest.mark.usefixtures("executed")
def test_channels_that_are_taken_for_rows_may_move_too_far_within_their_block(tmp_path: Path) -> None:
    slides = defect_named("rows slide from the wrong end")
    name = "rows_move_within_their_block_as_through_a_temporary"
    one = entry("channel-first-taken-for-rows")

    def as_rows(case: Case) -> bool:
        fails = case.failure is not None and case.failure.part == "pool"
        return fails and any((LAYOUT_VARIABLE, "DS") in call.environment for call in case.calls)

    with broken_subject(slides.variant, tmp_path) as subject:
        plain = failing(RowsFirst("impl", load("impl").module), name, as_rows)
        case = failing(RowsFirst(subject.name, subject.module), name, as_rows)
    assert plain is not None
    assert case is not None
    assert one.shows_in(plain, DOCUMENTS)
    assert one.shows_in(case, DOCUMENTS)
    assert not one.shows_in(with_pools(case, lambda held: held[::-1]), DOCUMENTS)


@pytest.mark.parametrize(("layout", "known"), [("DS", True), ("SD", False)])
@pytest.mark.parametrize("number", [0, None], ids=["a call", "a scenario"])
def test_a_step_that_cannot_be_prepared_is_of_the_channel_first_layout(
    number: int | None, layout: str, known: bool
) -> None:
    """Of a scenario the failure does not say which call it was: it ended with it."""
    step = Call("preprocess_mamba", (), environment=((LAYOUT_VARIABLE, layout),))
    failure = Failure("refusal", "it raised", function="preprocess_mamba", call=number, place="the call")
    case = a_case(steps=(step,), actual=(Raised("AssertionError", "DS conv state"),), failure=failure)
    assert CONDITIONS["channel_first_step"](case, DOCUMENTS) == known


@pytest.mark.parametrize(
    ("states", "bias", "known"),
    [(1, 2, True), (1, 1, False), (2, 2, False)],
    ids=["unused", "inside", "used"],
)
def test_the_table_is_read_behind_its_end_for_states_that_a_layer_lacks(
    states: int, bias: int, known: bool
) -> None:
    state = View("pool0", "uint8", (2, 2), (2, 1))
    bound = (
        ("forward_context", {"layer0": Record("Layer", (("kv_cache", [state] * states),))}),
        ("mamba_state_copy_funcs", ("conv", "temporal")),
        ("block_tables", [Tensor("int32", (1, 2), (1, 2))]),
    )
    initialize = Call("MambaSpecDecodeGPUContext.initialize_from_forward_context", (), bound)
    moves = (("src_col_gpu", int32((0,))), ("token_bias_gpu", int32((bias,))))
    precopy = Call("MambaSpecDecodeGPUContext.run_fused_precopy", (), moves)
    failure = Failure("memory", "loads", function=precopy.function, call=1, place="block_tables[0]")
    case = a_case(
        steps=(initialize, precopy),
        expected=(Returned(None), Returned(None)),
        actual=(Returned(None), Raised("OutsideView", "loads")),
        failure=failure,
    )
    assert CONDITIONS["unused_slot"](case, DOCUMENTS) is known


@pytest.mark.parametrize(
    ("num_reqs", "reasons"), [(0, ["a step that a runner takes has a request"]), (1, [])]
)
def test_a_step_without_requests_is_outside_before_a_context_is_bound(
    num_reqs: int, reasons: list[str]
) -> None:
    buffers = Call("MambaBuffers.create", (("with_postprocess_align", True),), bind="bufs")
    call = Call("postprocess_mamba_align_gpu", (("bufs", buffers), ("num_reqs", num_reqs)))
    assert [one.reason for one in OUTSIDE.outside_of((0, 25, 1)) if one.holds(call)] == reasons
