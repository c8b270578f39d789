"""The rules of align mode, worked by hand: a request's states step by step, and every decision on its way.

In the pool of the steps below, every block keeps a conv window of five tokens and one temporal state, one byte each.
The byte of a temporal state is the number of tokens behind it, the bytes of a window are the numbers of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from oracle.align import buffers, context, decisions, pointers, runner
from oracle.align.context import CacheGroup, StateMetadata, StateSpec, StateView, TableView
from oracle.align.decisions import AfterStep, Boundary, Slots
from oracle.align.memory import Move, Piece, Place, StateTensor, apply_moves, moved, state_copy
from oracle.align.pointers import Entry
from oracle.align.runner import Forgotten, RunnerRequest
from oracle.errors import Refused
from oracle.layout import StateGeometry, Unrepresentable
from oracle.profile import DOCUMENTS
from properties.harness.case.values import (
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
    Fake,
    Function,
    NumPy,
    Record,
    Refusal,
    Returned,
    Rows,
    Tensor,
    Value,
    View,
    call,
    int32,
    int64,
    record,
)
from properties.harness.expectations import answer

BLOCK, DRAFTS, WINDOW, WIDTH = 4, 2, 3, 5
PAGE = 8
NEVER = 0xEE
CONV = StateTensor("pool", StateGeometry(12, (WIDTH, 1), 1, PAGE), "conv")
TEMPORAL = StateTensor("pool", StateGeometry(12, (1,), 1, PAGE, WIDTH), "temporal")
STATES = (CONV, TEMPORAL)
SPEC = StateSpec(BLOCK, ((WIDTH, 1), (1, 1, 1)), DRAFTS)
GROUPS = (CacheGroup(("layer",), SPEC),)
Runner = Literal["V1", "V2"]


def case(name: str, *values: object) -> Any:
    return pytest.param(*values, id=name)


@contextmanager
def refused(argument: str) -> Iterator[None]:
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.argument == argument, f"{caught.value}: but should name {argument}"


@dataclass
class Scenario:
    """One request: `table` has its blocks, column j's is block j + 1 unless told; `run` is -1 where nothing was run yet.

    A step copies, forwards and copies again, with V1's rules or V2's; `forward` is the model's part of it.
    """

    rules: Runner
    computed: int = 0
    run: int = -1
    accepted: int = 1
    table: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    memory: dict[str, Any] = field(default_factory=lambda: {"pool": bytes([NEVER]) * PAGE * 12})

    def temporal(self, column: int) -> int:
        return int(self.memory["pool"][PAGE * self.table[column] + WIDTH])

    def window(self, column: int) -> list[int]:
        start = PAGE * self.table[column]
        return list(self.memory["pool"][start : start + WIDTH])

    def write(self, column: int, window: Sequence[int] = (), state: int | None = None) -> None:
        pool, start = bytearray(self.memory["pool"]), PAGE * self.table[column]
        pool[start : start + len(window)] = bytes(window)
        if state is not None:
            pool[start + WIDTH] = state
        self.memory["pool"] = bytes(pool)

    def before(self, length: int) -> None:
        """The copy before a forward."""
        if self.rules == "V1":
            remembered = {} if self.run < 0 else {"r": self.run}
            plan = runner.preprocess(
                remembered,
                Forgotten(),
                ["r"],
                [self.accepted],
                {"r": length},
                {"r": RunnerRequest((self.table,), self.computed)},
                BLOCK,
                DRAFTS,
                1,
            )
            moves, self.run, self.accepted = list(plan.moves), plan.state_idx["r"], plan.counts[0]
        else:
            # A request that is added to a slot is given the column of its last computed token.
            column = decisions.column_of(self.computed, BLOCK) if self.run < 0 else self.run
            slots = Slots((column,), (self.accepted,), (9,), (9,))
            slots = decisions.advanced(slots, [0], [0, length], [self.computed], BLOCK, DOCUMENTS)
            moves = decisions.precopy_moves([0], slots.columns, slots.src_col, slots.src_off, DOCUMENTS)
            self.run, self.accepted = slots.columns[0], slots.counts[0]
        self.memory = apply_moves(self.memory, STATES, "SD", [[self.table]], moves, DOCUMENTS)

    def forward(self, length: int, drafts: int) -> None:
        """Read the state of exactly the computed tokens; a decode keeps one per token, a prompt's chunk the last."""
        first, end = self.computed, self.computed + length
        if first > 0:
            assert self.temporal(self.run + self.accepted - 1) == first
            newest = self.window(self.run)[self.accepted - 1 : self.accepted - 1 + WINDOW]
            assert newest == list(range(first - WINDOW, first))
        if length == 1 + drafts:
            self.write(self.run, range(first - WINDOW + 1, end))
            for token in range(length):
                self.write(self.run + token, state=first + 1 + token)
        else:
            self.write(self.run, range(end - WINDOW, end), end)

    def after(self, length: int, drafts: int, accepted: int) -> None:
        """The copy after sampling."""
        done = self.computed + length - drafts + accepted - 1
        if self.rules == "V1":
            vectors = ([accepted], [self.run], [length], [self.computed], [drafts])
            decided = decisions.after_v1_steps(*vectors, BLOCK)[0]
        else:
            decided = decisions.after_v2_steps([0], [accepted], [self.run], [done], BLOCK, DOCUMENTS)[0]
        moves = [] if decided.move is None else [decided.move]
        self.memory = apply_moves(self.memory, STATES, "SD", [[self.table]], moves, DOCUMENTS)
        self.computed, self.accepted = done, decided.accepted

    def step(self, length: int, drafts: int = 0, accepted: int = 1) -> None:
        self.before(length)
        self.forward(length, drafts)
        self.after(length, drafts, accepted)


RUNNERS = pytest.mark.parametrize("rules", ["V1", "V2"])


def after_prompt(rules: Runner) -> Scenario:
    """Ten tokens, in chunks of eight and two."""
    scenario = Scenario(rules)
    scenario.step(8)
    scenario.step(2)
    return scenario


@RUNNERS
def test_a_prompt_of_ten_tokens_publishes_eight_and_goes_on_from_them(rules: Runner) -> None:
    scenario = Scenario(rules, table=(0, 2, 3, 4, 5))
    scenario.step(8)
    assert (scenario.run, scenario.temporal(1), scenario.window(1)[:3], scenario.accepted) == (
        1,
        8,
        [5, 6, 7],
        1,
    )
    scenario.before(2)
    assert (scenario.run, scenario.temporal(2), scenario.window(2)[:3]) == (2, 8, [5, 6, 7])
    scenario.forward(2, 0)
    scenario.after(2, 0, 1)
    assert (scenario.temporal(1), scenario.temporal(2), scenario.window(2)[:3]) == (8, 10, [7, 8, 9])
    assert (scenario.computed, scenario.accepted) == (10, 1)


@RUNNERS
def test_accepted_drafts_cross_a_boundary(rules: Runner) -> None:
    scenario = after_prompt(rules)
    scenario.before(3)
    assert (scenario.run, scenario.temporal(3)) == (3, 10)
    scenario.forward(3, 2)
    assert [scenario.temporal(column) for column in (3, 4, 5)] == [11, 12, 13]
    assert scenario.window(3) == [8, 9, 10, 11, 12]
    old = scenario.window(2)[4]
    scenario.after(3, 2, 3)
    assert (scenario.temporal(2), scenario.window(2)) == (12, [9, 10, 11, 12, old])
    assert (scenario.computed, scenario.accepted) == (13, 3)


def after_crossing(rules: Runner) -> Scenario:
    scenario = after_prompt(rules)
    scenario.step(3, 2, 3)
    return scenario


@RUNNERS
def test_a_step_in_the_same_column_reads_at_the_accepted_offset(rules: Runner) -> None:
    scenario = after_crossing(rules)
    before = scenario.memory
    scenario.before(3)
    assert (scenario.memory, scenario.run, scenario.accepted) == (before, 3, 3)
    scenario.forward(3, 2)
    assert [scenario.temporal(column) for column in (3, 4, 5)] == [14, 15, 16]
    assert scenario.window(3) == [11, 12, 13, 14, 15]
    before = scenario.memory
    scenario.after(3, 2, 1)
    assert (scenario.memory, scenario.computed, scenario.accepted) == (before, 14, 1)


@RUNNERS
def test_a_boundary_one_token_further_on_is_copied_with_a_bias_of_one(rules: Runner) -> None:
    scenario = after_crossing(rules)
    scenario.step(3, 2, 1)
    scenario.step(3, 2, 2)
    assert (scenario.run, scenario.temporal(3), scenario.window(3)[:3]) == (4, 16, [13, 14, 15])
    assert [scenario.temporal(column) for column in (4, 5, 6)] == [15, 16, 17]
    assert (scenario.computed, scenario.accepted) == (16, 2)
    # The next forward reads the temporal state of column 5 and the rows from 1 on: see `forward`.
    scenario.step(3, 2, 3)
    assert (scenario.run, scenario.computed, scenario.accepted) == (4, 19, 3)


@RUNNERS
def test_a_boundary_that_the_running_state_is_on_is_copied_without_a_bias(rules: Runner) -> None:
    scenario = after_crossing(rules)
    for accepted in (1, 2, 3):
        scenario.step(3, 2, accepted)
    assert [scenario.temporal(column) for column in (4, 5, 6)] == [17, 18, 19]
    window = scenario.window(4)
    scenario.before(3)
    assert (scenario.run, scenario.temporal(5), scenario.window(5)[:3]) == (5, 19, window[2:])
    assert scenario.accepted == 1
    scenario.forward(3, 2)
    scenario.after(3, 2, 1)
    assert (scenario.temporal(4), scenario.window(4)[:3]) == (20, [17, 18, 19])
    assert (scenario.computed, scenario.accepted) == (20, 1)


@RUNNERS
def test_everything_accepted_up_to_the_boundary_comes_to_the_front_of_its_own_column(rules: Runner) -> None:
    scenario = Scenario(rules, computed=5, run=1)
    scenario.write(1, [2, 3, 4], 5)
    scenario.before(3)
    scenario.forward(3, 2)
    assert scenario.window(1) == [3, 4, 5, 6, 7]
    scenario.after(3, 2, 3)
    assert (scenario.temporal(1), scenario.window(1)) == (8, [5, 6, 7, 6, 7])
    assert (scenario.computed, scenario.accepted) == (8, 1)
    scenario.before(3)
    assert (scenario.run, scenario.temporal(2), scenario.window(2)) == (2, 8, [5, 6, 7, 6, 7])


@RUNNERS
def test_a_prefix_hit_is_copied_and_left_as_it_is(rules: Runner) -> None:
    scenario = Scenario(rules, computed=20, table=(0, 0, 0, 0, 4, 9, 10, 11))
    scenario.write(4, [17, 18, 19], 20)
    shared = scenario.window(4)
    scenario.step(3, 2, 2)
    assert (scenario.window(4), scenario.temporal(4)) == (shared, 20)
    assert (scenario.run, [scenario.temporal(column) for column in (5, 6, 7)]) == (5, [21, 22, 23])
    assert (scenario.computed, scenario.accepted) == (22, 2)


@RUNNERS
def test_a_resumed_request_starts_from_the_column_that_it_hits(rules: Runner) -> None:
    scenario = Scenario(rules, computed=4)
    scenario.write(0, [1, 2, 3], 4)
    scenario.step(4)
    assert (scenario.run, scenario.temporal(1), scenario.window(1)[:3], scenario.accepted) == (
        1,
        8,
        [5, 6, 7],
        1,
    )
    assert scenario.temporal(0) == 4


@RUNNERS
def test_a_request_without_drafts_moves_back_to_the_column_before(rules: Runner) -> None:
    scenario = Scenario(rules, computed=6, run=2)
    scenario.write(2, [3, 4, 5], 6)
    scenario.step(3, 2, 1)
    assert (scenario.run, [scenario.temporal(column) for column in (2, 3, 4)]) == (2, [7, 8, 9])
    scenario.before(1)
    assert (scenario.run, scenario.temporal(1), scenario.window(1)[:3]) == (1, 7, [4, 5, 6])
    scenario.forward(1, 0)
    scenario.after(1, 0, 1)
    assert (scenario.temporal(1), scenario.window(1)[:3], scenario.accepted) == (8, [5, 6, 7], 1)
    scenario.before(3)
    assert (scenario.run, scenario.temporal(2)) == (2, 8)


@pytest.mark.parametrize(
    ("tokens", "size", "column"),
    [(0, 4, -1), (1, 4, 0), (4, 4, 0), (5, 4, 1), (8, 4, 1), (13, 4, 3), (1, 1, 0), (7, 1, 6)],
)
def test_tokens_are_in_a_column(tokens: int, size: int, column: int) -> None:
    assert decisions.column_of(tokens, size) == column


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
    ],
)
def test_a_boundary_is_the_last_multiple_that_accepted_states_reach(
    first: int, last: int, expected: Boundary | None
) -> None:
    assert decisions.boundary(first, last, BLOCK) == expected


def test_a_boundary_at_every_token_is_each_token_s_own() -> None:
    assert decisions.boundary(7, 7, 1) == Boundary(6, 0)


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


def test_rows_after_a_v1_step_are_decided_each_for_itself() -> None:
    found = decisions.after_v1_steps([3, 1, 3], [3, 1, 1], [3, 8, 3], [10, 0, 5], [2, 0, 2], BLOCK)
    assert found == [AfterStep(3, Move(0, 3, 2, 1)), AfterStep(1, None), AfterStep(1, Move(2, 1, 1, 2))]


def test_slots_after_a_v2_step_are_those_of_the_batch() -> None:
    # Slot 1 crosses, slot 3 ends in place, slots 0 and 2 are of nobody in this batch and would be due.
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
    # Rows: slot 2 crosses with bias 2, slot 0 is new, a row without a slot, slot 3 stays; slot 1 is of nobody.
    before = Slots((-1, 7, 4, 3), (1, 2, 3, 3), (50, 51, 52, 53), (60, 61, 62, 63))
    found = decisions.advanced(before, [2, 0, -1, 3], [0, 3, 8, 10, 13], [0, 99, 19, 13], BLOCK, DOCUMENTS)
    assert found == Slots((1, 7, 5, 3), (1, 2, 1, 3), (-1, 51, 4, 3), (0, 61, 2, 2))


def test_a_count_of_zero_before_a_v2_step_is_no_bias() -> None:
    found = decisions.advanced(Slots((1,), (0,), (9,), (9,)), [0], [0, 1], [7], BLOCK, DOCUMENTS)
    assert found == Slots((1,), (0,), (1,), (0,))


def test_the_precopy_skips_fresh_slots_unchanged_columns_and_rows_without_a_slot() -> None:
    found = decisions.precopy_moves([3, -1, 0, 2, 1], [5, 1, 3, 2], [4, -1, 3, 1], [2, 0, 1, 0], DOCUMENTS)
    assert found == [Move(0, 1, 2, 0), Move(2, 4, 5, 2)]


@pytest.mark.parametrize(
    ("state", "layout", "bias", "expected"),
    [
        case("temporal", TEMPORAL, "SD", 2, [(45, 37, 1)]),
        case("sd-rows", CONV, "SD", 3, [(19, 32, 1), (20, 33, 1)]),
        case("sd-all-rows", CONV, "SD", 0, [(16 + row, 32 + row, 1) for row in range(5)]),
        case("sd-no-row-left", CONV, "SD", 5, []),
    ],
)
def test_a_copy_is_made_of_rows_or_of_a_block(
    state: StateTensor, layout: str, bias: int, expected: list[tuple[int, int, int]]
) -> None:
    # Column 1 is block 2 and column 2 is block 4; column 3 is block 5, two drafts behind column 1.
    found = state_copy(state, layout, [0, 2, 4, 5], Move(0, 1, 2, bias), DOCUMENTS)
    assert [(piece.source.offset, piece.target.offset, piece.length) for piece in found] == expected


def test_channels_first_move_channel_by_channel() -> None:
    state = StateTensor("pool", StateGeometry(3, (2, 4), 2, 40, 6), "conv")
    found = state_copy(state, "DS", [1, 2], Move(0, 0, 1, 1), DOCUMENTS)
    # Channels of 4 rows of 2 bytes: the rows 1, 2 and 3 of each, 8 bytes apart.
    assert found == (
        Piece(Place("pool", 48), Place("pool", 86), 6),
        Piece(Place("pool", 56), Place("pool", 94), 6),
    )
    assert state_copy(state, "DS", [1, 2], Move(0, 0, 1, 4), DOCUMENTS) == ()


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


def test_what_a_conv_state_does_not_read_does_not_stop_it() -> None:
    # The accepted column is past the row and the running one is not: only the temporal state has nothing to copy.
    move = Move(0, 1, 0, 1)
    assert state_copy(CONV, "SD", (1, 2), move, DOCUMENTS)
    assert not state_copy(TEMPORAL, "SD", (1, 2), move, DOCUMENTS)


def test_rows_move_within_a_block_as_through_a_temporary() -> None:
    pool = bytes(range(24))
    found = apply_moves({"pool": pool}, [CONV], "SD", [[(1,)]], [Move(0, 0, 0, 2)], DOCUMENTS)
    assert found["pool"] == bytes([*range(8), 10, 11, 12, 11, 12, *range(13, 24)])


def test_channels_move_within_a_block_as_through_a_temporary() -> None:
    state = StateTensor("pool", StateGeometry(2, (2, 3), 1, 8), "conv")
    found = apply_moves({"pool": bytes(range(16))}, [state], "DS", [[(1,)]], [Move(0, 0, 0, 1)], DOCUMENTS)
    assert found["pool"] == bytes([*range(8), 9, 10, 10, 12, 13, 13, 14, 15])


def test_neighbours_and_padding_keep_their_bytes() -> None:
    pool = bytes(range(40))
    found = apply_moves({"pool": pool}, STATES, "SD", [[(1, 2, 3)]], [Move(0, 0, 1, 1)], DOCUMENTS)
    # Rows 1..4 of block 1, then its own last row; the temporal state of block 2; two bytes of padding.
    assert found["pool"] == bytes([*range(16), 9, 10, 11, 12, 20, 21, 22, 23, *range(24, 40)])
    found = apply_moves({"pool": pool}, STATES, "SD", [[(1, 2, 3)]], [Move(0, 0, 2, 1)], DOCUMENTS)
    assert found["pool"] == bytes([*range(24), 9, 10, 11, 12, 28, 21, 30, 31, *range(32, 40)])


def test_each_group_has_a_table_of_its_own() -> None:
    other = replace(TEMPORAL, group=1)
    tables = [[(1, 2)], [(3, 4)]]
    found = apply_moves(
        {"pool": bytes(range(40))}, [TEMPORAL, other], "SD", tables, [Move(0, 0, 1)], DOCUMENTS
    )
    assert found["pool"] == bytes([*range(21), 13, *range(22, 37), 29, 38, 39])


def test_a_pool_may_be_known_in_part() -> None:
    known = {5 + PAGE: 7, 5 + 3 * PAGE: 9}
    state = replace(TEMPORAL, geometry=replace(TEMPORAL.geometry, num_blocks=4))
    found = apply_moves({"pool": known}, [state], "SD", [[(1, 3)]], [Move(0, 0, 1)], DOCUMENTS)
    assert found == {"pool": {13: 7, 29: 7}}
    assert known[29] == 9
    with pytest.raises(AssertionError, match="outside every window"):
        apply_moves({"pool": known}, [state], "SD", [[(1, 2)]], [Move(0, 0, 1)], DOCUMENTS)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        case("apart", (0, 10), (4, 14), False),
        case("same-source", (0, 10), (0, 14), False),
        case("both-write", (0, 10), (4, 13), True),
        case("reads-what-the-other-writes", (0, 10), (12, 20), True),
        case("written-by-the-other", (12, 20), (0, 10), True),
        case("swap", (0, 10), (10, 0), True),
    ],
)
def test_copies_that_meet_have_no_answer(one: tuple[int, int], other: tuple[int, int], meet: bool) -> None:
    copies = [(Piece(Place("pool", source), Place("pool", target), 4),) for source, target in (one, other)]
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


def test_stale_aliases_of_moved_columns_are_not_touched() -> None:
    # The allocator moved columns 1 and 2 on, the worker's row still has their blocks at the old places too.
    moves = {8: Move(0, 0, 2), 12: Move(0, 2, 4)}
    rows = {8: (1, 2, 3, 2, 4), 12: (1, 2, 3, 2, 4, 2, 5)}
    ends = {8: (4, 12), 12: (12, 20)}
    for key, move in moves.items():
        computed, end = ends[key]
        previous, run = decisions.column_of(computed, BLOCK), decisions.column_of(end, BLOCK)
        assert decisions.before_step(0, previous, run, 1) == move
        copy = state_copy(TEMPORAL, "SD", rows[key], move, DOCUMENTS)[0]
        blocks = (copy.source.offset // PAGE, copy.target.offset // PAGE)
        assert blocks == {8: (1, 3), 12: (3, 4)}[key]


@pytest.mark.parametrize(
    ("state", "layout", "expected"),
    [
        # Blocks of 64 bytes with padding; float32 rows of 3 channels, half-precision channels of 5 rows.
        case(
            "conv-sd",
            (StateView((4, 5, 3), (16, 3, 1), 4), "conv"),
            "SD",
            StateMetadata(64, 4, 3, 5, 1),
        ),
        case(
            "conv-ds",
            (StateView((4, 3, 5), (32, 5, 1), 2), "conv"),
            "DS",
            StateMetadata(64, 2, 1, 5, 1, 3, 10),
        ),
        case(
            "temporal",
            (StateView((4, 2, 3, 4), (64, 12, 4, 1), 1), "temporal"),
            "DS",
            StateMetadata(64, 1, 24, 0, 1),
        ),
    ],
)
def test_a_context_describes_a_state(
    state: tuple[StateView, Literal["conv", "temporal"]], layout: str, expected: StateMetadata
) -> None:
    view, kind = state
    assert context.metadata_of(view.state(kind, 1), layout) == expected


VIEWS = (StateView((4, WIDTH, 1), (PAGE, 1, 1), 1, "pool"), StateView((4, 1), (PAGE, 1), 1, "pool", WIDTH))


def bound(layers: Mapping[str, Sequence[StateView]], **changes: Any) -> tuple[StateTensor, ...]:
    usual: dict[str, Any] = {"kinds": ["conv", "temporal"], "num_state_types": 2, "layout": "SD"}
    return context.bound_states(changes.pop("groups", GROUPS), layers, **usual | changes)


def test_states_follow_each_other_by_group_layer_and_state_without_gaps() -> None:
    groups = (
        CacheGroup(("a", "b"), SPEC),
        CacheGroup(("attention",)),
        CacheGroup(("c",), replace(SPEC, shapes=SPEC.shapes[:1])),
    )
    found = bound({"a": VIEWS[:1], "b": VIEWS, "c": VIEWS}, groups=groups)
    assert [(state.kind, state.group) for state in found] == [
        ("conv", 0),
        ("conv", 0),
        ("temporal", 0),
        ("conv", 1),
        ("temporal", 1),
    ]
    entries = context.metadata(found, "SD", 6)
    assert entries[5] == StateMetadata()
    assert [entry.conv_width for entry in entries] == [5, 5, 0, 5, 0, 0]


@pytest.mark.parametrize(
    ("argument", "layers", "changes"),
    [
        case("missing", "forward_context", {}, {}),
        case("more-states", "forward_context['layer'].kv_cache", {"layer": (*VIEWS, VIEWS[1])}, {}),
        case(
            "more-than-slots", "forward_context['layer'].kv_cache", {"layer": VIEWS}, {"num_state_types": 1}
        ),
        case("conv-flat", "forward_context['layer'].kv_cache[0]", {"layer": VIEWS[1:]}, {}),
        case(
            "temporal-flat",
            "forward_context['layer'].kv_cache[1]",
            {"layer": (VIEWS[0], StateView((4,), (1,), 1))},
            {},
        ),
        case(
            "gaps",
            "forward_context['layer'].kv_cache[0]",
            {"layer": (StateView((4, WIDTH, 2), (64, 3, 1), 1),)},
            {},
        ),
        case(
            "few-rows",
            "forward_context['layer'].kv_cache[0]",
            {"layer": (StateView((4, 2, 8), (64, 8, 1), 1),)},
            {},
        ),
        case(
            "few-rows-ds",
            "forward_context['layer'].kv_cache[0]",
            {"layer": (StateView((4, 8, 2), (64, 2, 1), 1),)},
            {"layout": "DS"},
        ),
        case("copies-what", "mamba_state_copy_funcs[1]", {"layer": VIEWS}, {"kinds": ["conv", None]}),
    ],
)
def test_a_context_refuses_states(
    argument: str, layers: dict[str, tuple[StateView, ...]], changes: dict[str, Any]
) -> None:
    with refused(argument):
        bound(layers, **changes)


TABLE = TableView("int32", (3, 4), (6, 1))


@pytest.mark.parametrize(
    ("argument", "tables", "groups"),
    [
        case("too-few", "block_tables", [TABLE], 2),
        case("long", "block_tables[0]", [replace(TABLE, dtype="int64")], 1),
        case("flat", "block_tables[0]", [TableView("int32", (4,), (1,))], 1),
        case("columns-apart", "block_tables[1]", [TABLE, replace(TABLE, strides=(6, 2))], 2),
        case("other-stride", "block_tables[1]", [TABLE, replace(TABLE, strides=(8, 1))], 2),
        case("other-width", "block_tables[1]", [TABLE, replace(TABLE, shape=(3, 5))], 2),
    ],
)
def test_a_context_refuses_tables(argument: str, tables: list[TableView], groups: int) -> None:
    with refused(argument):
        context.require_tables(tables, groups)


def test_tables_with_one_column_have_no_column_stride() -> None:
    context.require_tables([replace(TABLE, shape=(3, 1), strides=(6, 9))], 1)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        case("no-requests", "max_num_reqs", {"max_num_reqs": 0}),
        case("no-states", "num_state_types", {"num_state_types": 0}),
        case("two-boundaries", "num_speculative_blocks", {"spec": replace(SPEC, num_speculative_blocks=4)}),
        case("rows-for-two", "shapes[0]", {"spec": replace(SPEC, shapes=((2, 9), (1, 1)))}),
        case(
            "rows-for-two-ds", "shapes[0]", {"spec": replace(SPEC, shapes=((9, 2), (1, 1))), "layout": "DS"}
        ),
        case("third-conv", "shapes[2]", {"spec": replace(SPEC, shapes=((5, 1), (5, 1), (2, 5), (1, 1)))}),
        case("only-conv", "shapes[0]", {"spec": replace(SPEC, shapes=((2, 9),))}),
    ],
)
def test_no_context_is_created(argument: str, changes: dict[str, Any]) -> None:
    groups = (CacheGroup(("layer",), changes.pop("spec", SPEC)),)
    usual: dict[str, Any] = {"max_num_reqs": 1, "num_state_types": 2, "layout": "SD"}
    with refused(argument):
        context.require_context(groups=groups, **usual | changes)


def test_as_many_tokens_as_a_block_may_be_accepted() -> None:
    exact = StateSpec(3, ((3, 1), (1, 1)), 2)
    context.require_context(1, 2, (CacheGroup(("layer",), exact),), "SD")


def test_mamba_groups_are_those_with_a_mamba_specification() -> None:
    groups = (
        CacheGroup(("a",)),
        CacheGroup(("b",), SPEC),
        CacheGroup(("c",), replace(SPEC, shapes=((1, 1),))),
    )
    assert context.mamba_groups(groups) == ((1, 2), SPEC)


@pytest.mark.parametrize(
    "specs",
    [
        case("none", (None, None)),
        case("block-sizes", (SPEC, replace(SPEC, block_size=8))),
        case("drafts", (SPEC, None, replace(SPEC, num_speculative_blocks=1))),
        case("modes", (SPEC, replace(SPEC, mode="all"))),
    ],
)
def test_mamba_groups_that_differ_are_refused(specs: tuple[StateSpec | None, ...]) -> None:
    with refused("kv_cache_config"):
        context.mamba_groups([CacheGroup(("layer",), spec) for spec in specs])


def test_lists_have_room_for_every_copy_of_a_step() -> None:
    groups = (CacheGroup(("a", "b"), SPEC), CacheGroup(("x",)), CacheGroup(("c",), SPEC))
    assert context.copy_capacity(4, groups, 2, DOCUMENTS) == 24


@pytest.mark.parametrize(
    ("address", "signed"),
    [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1), (0xFFFF800000000000, -(2**47))],
)
def test_an_address_keeps_its_bits(address: int, signed: int) -> None:
    assert context.as_int64(address) == signed


BLOCKS = ((7, 3, 5, 2),)


def test_entries_are_bytes_from_a_block_to_a_block() -> None:
    found = pointers.entries(STATES, "SD", BLOCKS, 1, 0, 2)
    # Conv: rows 2.. of block 3 to block 7. Temporal: block 2, two columns on, to block 7.
    assert found == (
        Entry(Place("pool", 26), Place("pool", 56), 3),
        Entry(Place("pool", 21), Place("pool", 61), 1),
    )


def test_entries_of_a_state_in_no_pool_are_addresses() -> None:
    view = StateView((8, 6), (100, 1), 4, "", 2**63)
    found = pointers.entries([view.state("temporal", 0)], "DS", BLOCKS, 1, 0, 0)
    assert found == (Entry(Place("", 2**63 + 1200), Place("", 2**63 + 2800), 24),)


def test_entries_of_channels_first_are_whole_blocks() -> None:
    state = StateTensor("pool", StateGeometry(8, (2, 4), 2, 40), "conv")
    assert pointers.entries([state], "DS", BLOCKS, 0, 1, 0) == (
        Entry(Place("pool", 280), Place("pool", 120), 16),
    )
    with pytest.raises(Unrepresentable):
        pointers.entries([state], "DS", BLOCKS, 0, 1, 1)


def test_nothing_is_listed_for_a_state_that_stays() -> None:
    assert pointers.entries(STATES, "SD", BLOCKS, 2, 2, 0) == ()
    assert len(pointers.entries(STATES, "SD", BLOCKS, 2, 2, 1)) == 2


@pytest.mark.parametrize(
    ("argument", "blocks", "columns"),
    [
        case("source-negative", "src_col", BLOCKS, (-1, 0, 0)),
        case("destination-negative", "dst_col", BLOCKS, (0, -1, 0)),
        case("bias-negative", "bias", BLOCKS, (0, 1, -1)),
        case("source-past", "src_col", BLOCKS, (4, 0, 0)),
        case("destination-past", "dst_col", BLOCKS, (0, 4, 0)),
        case("accepted-past", "bias", BLOCKS, (2, 0, 2)),
        case("null-source", "block_ids[1]", ((7, 0, 5, 2),), (1, 0, 1)),
        case("null-accepted", "block_ids[2]", ((7, 3, 0, 2),), (1, 0, 1)),
        case("null-destination", "block_ids[0]", ((0, 3, 5, 2),), (1, 0, 1)),
        case("no-such-block", "block_ids[0]", ((12, 3, 5, 2),), (1, 0, 1)),
    ],
)
def test_entries_are_refused(
    argument: str, blocks: tuple[tuple[int, ...], ...], columns: tuple[int, int, int]
) -> None:
    with refused(argument):
        pointers.entries(STATES, "SD", blocks, *columns)


def test_lists_take_what_they_have_room_for() -> None:
    pointers.require_capacity(22, 2, 24)
    with refused("bufs.offset"):
        pointers.require_capacity(23, 2, 24)


def test_entries_are_copied_as_through_a_temporary_and_empty_ones_not_at_all() -> None:
    listed = [
        Entry(Place("pool", 0), Place("pool", 1), 4),
        Entry(Place("pool", 7), Place("other", 0), 2),
        Entry(Place("", 5), Place("", 9), 0),
        Entry(Place("pool", 0), Place("pool", 0), -3),
    ]
    found = pointers.memory_after({"pool": b"abcdefghi", "other": b"xyz"}, listed)
    assert found == {"pool": b"aabcdfghi", "other": b"hiz"}


@pytest.mark.parametrize(("argument", "lengths"), [("dst_ptrs", (2, 3, 2)), ("sizes", (2, 2, 1))])
def test_lists_of_different_lengths_are_refused(argument: str, lengths: tuple[int, ...]) -> None:
    with refused(argument):
        pointers.require_lists(lengths)


def planned(
    state_idx: dict[str, int] | None = None,
    *,
    forgotten: Forgotten = Forgotten(),  # noqa: B008 - it is frozen
    req_ids: Sequence[str] = ("a", "b", "c"),
    counts: Sequence[int] = (1, 3, 1),
    scheduled: Mapping[str, int] | None = None,
    max_num_reqs: int = 3,
    **computed: int,
) -> runner.StepPlan:
    """Row a is new, row b has decoded in column 3 and goes on in column 4, row c has a hit of two blocks."""
    tokens = {"a": 0, "b": 16, "c": 8} | computed
    requests = {name: RunnerRequest(BLOCKS, number) for name, number in tokens.items()}
    return runner.preprocess(
        {"b": 3} if state_idx is None else state_idx,
        forgotten,
        req_ids,
        counts,
        {"a": 5, "b": 3, "c": 1} if scheduled is None else scheduled,
        requests,
        BLOCK,
        DRAFTS,
        max_num_reqs,
    )


def test_a_step_is_planned_row_by_row() -> None:
    found = planned({"b": 3, "x": 9})
    assert found.state_idx == {"b": 4, "x": 9, "a": 1, "c": 2}
    assert found.counts == (1, 1, 1)
    assert found.moves == (Move(1, 3, 4, 2), Move(2, 1, 2, 0))


def test_a_count_stays_where_the_column_does() -> None:
    found = planned({"b": 4, "a": 1, "c": 2}, a=6, scheduled={"a": 1, "b": 3, "c": 1}, counts=(2, 3, 1))
    assert (found.counts, found.moves) == ((2, 3, 1), ())


def test_a_forgotten_request_is_found_by_its_computed_tokens() -> None:
    # Preempted and resumed after column 5, with four tokens left: column 0 is where its state is.
    found = planned({"b": 5}, forgotten=Forgotten(resumed=["b"]), b=4, counts=(1, 1, 1))
    assert found.moves[0] == Move(1, 0, 1, 0)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        case("more-rows", "req_ids", {"max_num_reqs": 2}),
        case("twice", "req_ids", {"req_ids": ("a", "a")}),
        case("unknown", "requests['d']", {"req_ids": ("a", "d"), "scheduled": {"a": 1, "d": 1}}),
        case("not-scheduled", "num_scheduled_tokens['b']", {"scheduled": {"a": 5, "c": 1}}),
        case("no-token", "num_scheduled_tokens['b']", {"scheduled": {"a": 5, "b": 0, "c": 1}}),
        case("no-count", "num_accepted_tokens_cpu", {"counts": (1, 1)}),
        case("count-0", "num_accepted_tokens_cpu[1]", {"counts": (1, 0, 1)}),
        case("count-4", "num_accepted_tokens_cpu[2]", {"counts": (1, 1, 4)}),
        case("negative", "requests['c'].num_computed_tokens", {"c": -1}),
        case("column", "mamba_state_idx['a']", {"state_idx": {"a": -2}}),
    ],
)
def test_a_step_is_refused(argument: str, changes: dict[str, Any]) -> None:
    with refused(argument):
        planned(**changes)


def test_a_copy_needs_columns_and_blocks_of_its_request() -> None:
    plan = runner.StepPlan({}, (1,), (Move(0, 1, 2, 1),))
    for blocks, argument in ((((1, 2, 3),), None), (((1, 2),), "block_ids"), (((1, 2, 0),), "block_ids[2]")):
        requests = {"a": RunnerRequest(blocks, 8)}
        if argument is None:
            runner.require_blocks(plan, ["a"], requests, STATES)
        else:
            with refused(argument):
                runner.require_blocks(plan, ["a"], requests, STATES)


def test_both_ways_of_copying_leave_the_same_bytes() -> None:
    plan = runner.StepPlan({}, (1, 1), (Move(0, 1, 2, 1), Move(1, 0, 1, 0)))
    blocks = {"a": (1, 2, 3, 4), "b": (5, 6)}
    requests = {name: RunnerRequest((own,), 8) for name, own in blocks.items()}
    memory = {"pool": bytes(range(96))}
    by_lists = runner.copied_by_lists(memory, plan, ["a", "b"], requests, STATES, "SD")
    by_tables = runner.copied_by_tables(memory, plan, STATES, "SD", [list(blocks.values())], DOCUMENTS)
    assert by_lists == by_tables
    # Rows 1.. of block 2 go to block 3, whose temporal state is its own; block 5 goes to block 6.
    expected = bytearray(range(96))
    expected[24:28], expected[48:54] = bytes([17, 18, 19, 20]), bytes(range(40, 46))
    assert by_lists["pool"] == bytes(expected)


@pytest.mark.parametrize(
    ("forgotten", "left"),
    [
        case("nobody", Forgotten(), {"a": 1, "b": 2, "c": 3}),
        case("finished", Forgotten(finished=["a"]), {"b": 2, "c": 3}),
        case("preempted", Forgotten(preempted=["b"]), {"a": 1, "c": 3}),
        case("resumed", Forgotten(resumed=["c"]), {"a": 1, "b": 2}),
        case("all-kinds", Forgotten(["a", "x"], ["b"], ["c", "b"]), {}),
    ],
)
def test_columns_of_requests_that_left_are_forgotten(forgotten: Forgotten, left: dict[str, int]) -> None:
    assert runner.cleaned({"a": 1, "b": 2, "c": 3}, forgotten) == left


def test_rows_are_staged_in_batch_order() -> None:
    rows = runner.staged_rows(["b", "a", "c"], 2, 4)
    found = runner.staged(rows, {"a": 1, "b": 2}, {"a": 3, "b": 1}, {"a": [-1, -1]}, {"a": 8, "b": 9, "c": 0})
    assert found == ((2, 1), (1, 3), (9, 8), (0, 2))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        case("column", "mamba_state_idx['a']", {"state_idx": {}}),
        case("no-column", "mamba_state_idx['a']", {"state_idx": {"a": -1}}),
        case("scheduled", "num_scheduled_tokens['a']", {"scheduled": {"b": 1}}),
        case("computed", "requests['a']", {"computed": {}}),
        case("too-many-tokens", "requests['a']", {"computed": {"a": 2**31}}),
    ],
)
def test_rows_without_an_entry_are_not_staged(argument: str, changes: dict[str, Any]) -> None:
    usual = {"state_idx": {"a": 0}, "scheduled": {"a": 1}, "drafts": {}, "computed": {"a": 0}}
    with refused(argument):
        runner.staged(["a"], **usual | changes)


@pytest.mark.parametrize("num_reqs", [-1, 3])
def test_rows_that_are_not_there_are_not_staged(num_reqs: int) -> None:
    with refused("num_reqs"):
        runner.staged_rows(["a", "b", "c"], num_reqs, 2)


def test_mode_all_remembers_the_last_column_of_full_decodes() -> None:
    lengths = {"a": (6, 3), "b": (6, 2), "c": (0, 3), "d": (5, 3)}
    found = decisions.last_scheduled_columns({"b": 7, "a": 0, "x": 1}, lengths, BLOCK, DRAFTS)
    assert found == {"a": 2, "x": 1, "c": 0, "d": 1}
    assert decisions.last_scheduled_columns({"b": 7}, lengths, BLOCK, 0) == {"b": 7}


def test_a_part_of_a_buffer_is_copied() -> None:
    assert buffers.copied_elements((4, 3), 2) == 6
    assert buffers.copied_elements((4, 3), None) == 12
    assert buffers.overwritten((1, 2, 3), (7, 8)) == (7, 8, 3)
    for rows in (-1, 5):
        with refused("n"):
            buffers.copied_elements((4, 3), rows)


@pytest.mark.parametrize(
    ("argument", "size", "dtype"),
    [("dtype", (4,), "bfloat16"), ("size", (), "int32"), ("size[1]", (4, -1), "int32")],
)
def test_a_buffer_is_refused(argument: str, size: tuple[int, ...], dtype: str) -> None:
    with refused(argument):
        buffers.require_buffer(size, dtype, with_numpy=True)
    buffers.require_buffer((0,), "bfloat16", with_numpy=False)


VIEW_CONV = View("pool0", "uint8", (12, WIDTH, 1), (PAGE, 1, 1))
VIEW_TEMPORAL = View("pool0", "uint8", (12, 1), (PAGE, 1), WIDTH)
COPY_FUNCS = (Function("get_conv_copy_spec"), Function("get_temporal_copy_spec"))
LAYERS = {"layer": record("Layer", kv_cache=[VIEW_CONV, VIEW_TEMPORAL])}
POOL = Tensor("uint8", (96,), bytes(range(96)))


def config(attention: bool = False) -> Record:
    spec = record(
        "MambaSpec",
        block_size=BLOCK,
        shapes=((WIDTH, 1), (1,)),
        dtypes=(DType("uint8"), DType("uint8")),
        mamba_cache_mode="align",
        num_speculative_blocks=DRAFTS,
    )
    groups = [record("KVCacheGroupSpec", layer_names=["layer"], kv_cache_spec=spec)]
    if attention:
        other = record("FullAttentionSpec", block_size=16)
        groups.insert(0, record("KVCacheGroupSpec", layer_names=["other"], kv_cache_spec=other))
    return record("KVCacheConfig", num_blocks=12, kv_cache_tensors=[], kv_cache_groups=groups)


def created(max_num_reqs: int = 3) -> Call:
    return call(
        "MambaSpecDecodeGPUContext.create",
        bind="ctx",
        max_num_reqs=max_num_reqs,
        kv_cache_config=config(),
        num_state_types=2,
        device=Device(),
        make_buffer=BufferMaker(),
    )


def initialized(context_: Value, table: Tensor, layers: Mapping[str, Record] = LAYERS) -> Call:
    return call(
        "MambaSpecDecodeGPUContext.initialize_from_forward_context",
        updates="ctx",
        self=context_,
        kv_cache_config=config(),
        forward_context=layers,
        mamba_state_copy_funcs=COPY_FUNCS,
        block_tables=[table],
    )


def after(asked: Call, **memory: Value) -> dict[str, Value]:
    """What an answer says that changes."""
    found = answer(asked, memory)
    assert isinstance(found, Returned), found
    return dict(found.after)


def test_the_answer_of_a_launch_follows_the_context_back_to_its_creation() -> None:
    old, new = int32([[9, 9, 9, 9]]), int32([[1, 2, 3, 4]])
    bound_once = initialized(created(), old)
    # Bound a second time, which changes nothing; the table has other contents by now.
    again = initialized(bound_once, int32([[5, 5]]))
    launch = call(
        "MambaSpecDecodeGPUContext.run_fused_postprocess",
        self=again,
        num_reqs=1,
        num_accepted_tokens_gpu=int32([3, 9]),
        mamba_state_idx_gpu=int32([1]),
        num_scheduled_tokens_gpu=int32([3]),
        num_computed_tokens_gpu=int32([6]),
        num_draft_tokens_gpu=int32([2]),
    )
    found = after(launch, pool0=POOL, table0=new.storage())
    # 7, 8 and 9 tokens: the boundary is 8, in column 1 itself, one token further on.
    expected = bytearray(range(96))
    expected[16:20], expected[21] = bytes([17, 18, 19, 20]), 29
    assert found["pool0"].elements == bytes(expected)
    assert found["ctx.num_accepted_tokens_out"] == int32([1, 0, 0])


def test_the_answer_of_a_launch_in_slots_changes_the_counts_in_their_place() -> None:
    counts = Tensor("int32", (3,), (8, 3, 2, 3, 8), None, 1)
    launch = call(
        "MambaSpecDecodeGPUContext.run_fused_postprocess_align",
        self=initialized(created(), int32([[5, 6, 7, 8], [1, 2, 3, 4]])),
        num_reqs=2,
        num_accepted_tokens_gpu=counts,
        state_idx_gpu=int32([1, 0, 0]),
        new_num_computed_tokens_gpu=int32([9, 8, 8]),
        idx_mapping=int32([-1, 0]),
    )
    found = after(launch, pool0=POOL, counts=counts.storage())
    assert found["counts"] == int32([8, 1, 2, 3, 8])
    assert [i for i in range(96) if found["pool0"].elements[i] != i] == [16, 17, 18, 19, 21]


def test_the_answer_of_a_launch_knows_a_large_pool_by_the_pages_of_its_blocks() -> None:
    far = 2**32
    state = View("pool0", "uint8", (12, 1), (far, 1), WIDTH)
    layers = {"layer": record("Layer", kv_cache=[replace(VIEW_CONV, strides=(far, 1, 1)), state])}
    launch = call(
        "MambaSpecDecodeGPUContext.run_fused_precopy",
        self=initialized(created(), int32([[4, 2]]), layers),
        num_reqs=1,
        state_idx_gpu=int32([1]),
        src_col_gpu=int32([0]),
        token_bias_gpu=int32([0]),
        idx_mapping=int32([0]),
    )
    page = Tensor("uint8", (PAGE,), bytes(range(PAGE)))
    other = replace(page, elements=bytes([NEVER]) * PAGE)
    found = after(launch, pool0=None, pool0_block4=page, pool0_block2=other)
    moved_to = replace(page, elements=bytes([*range(6), NEVER, NEVER]))
    assert found == {"pool0_block2": moved_to, "pool0_block4": page}


def test_the_answer_of_a_launch_before_anything_is_bound_is_that_nothing_happens() -> None:
    names = ("state_idx_gpu", "src_col_gpu", "token_bias_gpu", "idx_mapping")
    vectors = tuple((name, int32([0])) for name in names)
    launch = Call(
        "MambaSpecDecodeGPUContext.run_fused_precopy", (("self", created()), ("num_reqs", 1), *vectors)
    )
    assert answer(launch) == Returned(None)
    many = replace(launch, arguments=(("self", created()), ("num_reqs", 4), *vectors))
    assert answer(many) == Refusal("num_reqs")


def test_the_answer_of_initialisation_is_what_each_vector_holds() -> None:
    states = [Fake("uint8", (12, WIDTH, 1), (PAGE, 1, 1), 2**63), Fake("float32", (12, 2), (PAGE, 1), 64)]
    found = after(initialized(created(), int32([[1, 2]]), {"layer": record("Layer", kv_cache=states)}))
    assert found["ctx.state_base_addrs"] == int64([-(2**63), 64])
    assert found["ctx.state_block_strides"] == int64([8, 32])
    assert found["ctx.state_elem_sizes"] == int32([1, 4])
    assert found["ctx.state_conv_widths"] == int32([5, 0])
    assert found["ctx.state_inner_sizes"] == int64([1, 2])
    assert (found["ctx.block_table_stride_req"], found["ctx.is_initialized"]) == (2, True)
    assert "ctx.block_table_ptrs" not in found


def launched(kernel: str, arguments: Mapping[str, Value], **constexprs: Value) -> Call:
    return call("harness.launch", kernel=kernel, grid=(2,), arguments=dict(arguments), constexprs=constexprs)


def test_the_answer_of_the_preprocess_kernel_is_what_each_vector_holds() -> None:
    # Slot 1 goes on from column 1 to column 2, slot 0 is skipped; the third row is not one of the two.
    vectors = {
        "columns": int32([7, 1, 7]),
        "counts": int32([7, 3, 7]),
        "src_col": int32([50, 51, 52]),
        "bias": int32([60, 61, 62]),
    }
    arguments = {
        "idx_mapping_ptr": int32([-1, 1, 2]),
        "state_idx_ptr": vectors["columns"],
        "num_computed_tokens_ptr": int32([9, 8, 9]),
        "query_start_loc_ptr": int32([0, 2, 4, 9]),
        "num_accepted_tokens_ptr": vectors["counts"],
        "src_col_ptr": vectors["src_col"],
        "src_off_ptr": vectors["bias"],
        "num_reqs": 2,
    }
    asked = launched("preprocess_mamba_align_fused_kernel", arguments, BLOCK_SIZE=1, MAMBA_BLOCK_SIZE=4)
    assert after(asked, **vectors) == {
        "columns": int32([7, 2, 7]),
        "counts": int32([7, 1, 7]),
        "src_col": int32([50, 1, 52]),
        "bias": int32([60, 2, 62]),
    }


def test_the_answer_of_a_kernel_is_that_of_the_method_that_launches_it() -> None:
    context_ = initialized(created(), int32([[1, 2, 3, 4]]))
    owned = {"state_base_addrs_ptr": Attribute(context_, "state_base_addrs"), "num_reqs": 1}
    precopy = launched(
        "precopy_mamba_align_fused_kernel",
        {
            **owned,
            "mamba_state_idx_ptr": int32([1]),
            "src_col_ptr": int32([0]),
            "token_bias_ptr": int32([0]),
            "idx_mapping_ptr": None,
        },
    )
    assert after(precopy, pool0=POOL)["pool0"].elements[16:22] == bytes(range(8, 14))
    counts = int32([3])
    by_slot = {
        **owned,
        "num_accepted_tokens_ptr": counts,
        "mamba_state_idx_ptr": int32([1]),
        "num_computed_tokens_ptr": int32([8]),
        "idx_mapping_ptr": int32([0]),
    }
    kernel = "postprocess_mamba_fused_kernel"
    found = after(launched(kernel, by_slot, PRECOMPUTED_NEW_COMPUTED=True), pool0=POOL, counts=counts)
    assert found["counts"] == int32([1])
    by_row = by_slot | {
        "num_computed_tokens_ptr": int32([5]),
        "num_scheduled_tokens_ptr": int32([3]),
        "num_draft_tokens_ptr": int32([2]),
        "idx_mapping_ptr": None,
    }
    by_row_found = after(launched(kernel, by_row), pool0=POOL, counts=counts)
    assert by_row_found["ctx.num_accepted_tokens_out"] == int32([1, 0, 0])
    # 6, 7 and 8 tokens: two tokens further on, within column 1.
    assert by_row_found["pool0"] == found["pool0"]
    assert found["pool0"].elements[16:22] == bytes([18, 19, 20, 19, 20, 37])


def lists_created() -> Call:
    return call(
        "MambaCopyBuffers.create",
        bind="bufs",
        max_num_reqs=2,
        kv_cache_config=config(attention=True),
        copy_funcs=COPY_FUNCS,
        make_buffer=BufferMaker(),
    )


def collected(bufs: Value, src_col: int, dst_col: int, bias: int, blocks: Sequence[int] = (1, 2, 3)) -> Call:
    request = record("CachedRequestState", block_ids=[[0], list(blocks)], num_computed_tokens=8)
    return call(
        "collect_mamba_copy_meta",
        updates="bufs",
        bufs=bufs,
        kv_cache_config=config(attention=True),
        copy_funcs=COPY_FUNCS,
        group_ids=[1],
        src_col=src_col,
        dst_col=dst_col,
        bias=bias,
        req_state=request,
        forward_context=LAYERS,
    )


def test_the_answer_of_the_lists_is_everything_that_was_collected() -> None:
    first = collected(lists_created(), 0, 1, 1)
    second = collected(first, 2, 0, 0, blocks=(6, 7, 8))
    assert after(second)["bufs.offset"] == 4
    assert after(second)["bufs.sizes.np"].elements == (4, 1, 5, 1)
    found = after(call("do_mamba_copy_block", bufs=second), pool0=POOL)
    # Block 1 with a bias, its temporal state from block 2 onto itself; block 8 to block 6.
    expected = bytearray(range(96))
    expected[16:20], expected[48:54] = bytes([9, 10, 11, 12]), bytes(range(64, 70))
    assert found["pool0"].elements == bytes(expected)
    assert found["bufs.sizes.gpu"].elements == (4, 1, 5, 1)
    assert answer(collected(second, 0, 1, 0)) == Refusal("bufs.offset")
    assert answer(collected(first, 0, 3, 0)) == Refusal("dst_col")


def preprocessed(*, by_table: bool, layout: str = "SD") -> Call:
    accepted = Tensor("int32", (2,), (2, 3), on="host")
    batch: dict[str, Value] = {"req_ids": ["a", "b"], "num_accepted_tokens_cpu": NumPy(accepted)}
    if by_table:
        table = record("BlockTable", get_device_tensor=Rows(int32([[1, 2, 3, 4], [5, 6, 7, 8]])))
        batch["block_table"] = [None, table]
    blocks = {"a": [1, 2, 3, 4], "b": [5, 6, 7, 8]}
    ids = record("CachedRequestData", resumed_req_ids=["c"])
    return call(
        "preprocess_mamba",
        environment={"VLLM_SSM_CONV_STATE_LAYOUT": layout},
        scheduler_output=record(
            "SchedulerOutput",
            num_scheduled_tokens={"a": 1, "b": 3},
            scheduled_spec_decode_tokens={"b": [-1, -1]},
            finished_req_ids=[],
            preempted_req_ids=None,
            scheduled_cached_reqs=ids,
        ),
        kv_cache_config=config(attention=True),
        cache_config=record("CacheConfig", enable_prefix_caching=True),
        mamba_state_idx={"a": 2, "b": 0, "c": 5},
        input_batch=record("InputBatch", **batch),
        requests={
            name: record("CachedRequestState", block_ids=[[0], own], num_computed_tokens=count)
            for (name, own), count in zip(blocks.items(), (8, 5), strict=True)
        },
        forward_context=LAYERS,
        mamba_state_copy_funcs=COPY_FUNCS,
        copy_bufs=replace(lists_created(), bind="copy_bufs"),
    )


@pytest.mark.parametrize("by_table", [True, False])
def test_the_answer_of_preprocessing_is_the_same_by_tables_and_by_lists(by_table: bool) -> None:
    known = {
        "pool0": POOL,
        "state_idx": {"a": 2, "b": 0, "c": 5},
        "accepted": Tensor("int32", (2,), (2, 3), on="host"),
    }
    found = after(preprocessed(by_table=by_table), **known)
    assert found["state_idx"] == {"a": 2, "b": 1}
    assert found["accepted"].elements == (2, 1)
    # Row b: rows 2.. of block 5 to block 6, and the temporal state of block 7, two columns on.
    expected = bytearray(range(96))
    expected[48:51], expected[53] = bytes([42, 43, 44]), 61
    assert found["pool0"].elements == bytes(expected)
    assert found["copy_bufs.offset"] == (0 if by_table else 2)


def test_the_answer_of_preprocessing_by_lists_refuses_to_shift_channels() -> None:
    known = {"pool0": POOL, "state_idx": {"a": 2, "b": 0, "c": 5}}
    views = [View("pool0", "uint8", (12, 1, WIDTH), (PAGE, WIDTH, 1)), VIEW_TEMPORAL]
    asked = preprocessed(by_table=False, layout="DS")
    arguments = dict(asked.arguments) | {"forward_context": {"layer": record("Layer", kv_cache=views)}}
    found = answer(replace(asked, arguments=tuple(arguments.items())), known)
    assert found == Refusal("", "NotImplementedError")


def test_the_answer_of_postprocessing_binds_the_context_and_copies_counts_back() -> None:
    bufs = call(
        "MambaBuffers.create",
        bind="bufs",
        max_num_reqs=3,
        kv_cache_config=config(attention=True),
        copy_funcs=COPY_FUNCS,
        make_buffer=BufferMaker(),
        device=Device(),
        with_postprocess_align=True,
    )
    table = record("BlockTable", get_device_tensor=Rows(int32([[1, 2, 3, 4], [5, 6, 7, 8]])))
    ids = ["a", "b"]
    requests = {
        name: record("CachedRequestState", block_ids=[], num_computed_tokens=count)
        for name, count in (("a", 6), ("b", 8))
    }
    scheduled = record(
        "SchedulerOutput",
        num_scheduled_tokens={"a": 3, "b": 1},
        scheduled_spec_decode_tokens={"a": [-1, -1]},
    )
    staged = call(
        "stage_postprocess_inputs_to_gpu",
        ctx=Attribute(bufs, "postprocess_align"),
        scheduler_output=scheduled,
        req_ids=ids,
        num_reqs=2,
        requests=requests,
        mamba_state_idx={"a": 1, "b": 2},
    )
    known = after(staged)
    assert known["bufs.postprocess_align.num_computed_tokens_buf.gpu"] == int32([6, 8, 0])
    accepted = Tensor("int32", (3,), (7, 7, 7), on="host")
    done = call(
        "postprocess_mamba_align_gpu",
        bufs=bufs,
        num_reqs=2,
        num_accepted_tokens_gpu=int32([3, 1, 9]),
        num_accepted_tokens_cpu_tensor=accepted,
        input_batch=record("InputBatch", req_ids=ids, block_table=[None, table]),
        kv_cache_config=config(attention=True),
        forward_context=LAYERS,
        mamba_state_copy_funcs=COPY_FUNCS,
    )
    found = after(done, **known | {"pool0": POOL, "accepted": accepted})
    assert found["accepted"].elements == (1, 1, 7)
    assert found["bufs.postprocess_align.is_initialized"] is True
    assert found["bufs.postprocess_align.num_accepted_tokens_out"] == int32([1, 1, 0])
    assert found["pool0"].elements[16:22] == bytes([17, 18, 19, 20, 20, 29])
