"""The rules of align mode, worked by hand: a request's states step by step, and every decision on its way.

In the pool of the steps below, every block keeps a conv window of five tokens and one temporal state, one byte each.
The byte of a temporal state is the number of tokens behind it, the bytes of a window are the numbers of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from oracle.align import context, decisions, runner
from oracle.align.decisions import AfterStep, Boundary, Slots
from oracle.align.memory import Move, Piece, Place, StateTensor, apply_moves, moved, state_copy
from oracle.align.runner import Forgotten, RunnerRequest
from oracle.errors import Refused
from oracle.layout import StateGeometry
from oracle.variants import DOCUMENTS
from tests.oracle.worked import CONV, PAGE, STATES, TEMPORAL, WIDTH, case, refused

BLOCK, DRAFTS, WINDOW = 4, 2, 3
NEVER = 0xEE
Runner = Literal["V1", "V2"]


@dataclass
class Scenario:
    """One request: `table` has its blocks, column j's is block j + 1 unless it is given; `run` is -1 where nothing was run yet.

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


@pytest.mark.parametrize(
    ("address", "signed"),
    [
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (2**63, -(2**63)),
        (2**64 - 1, -1),
        (0xFFFF800000000000, -(2**47)),
    ],
)
def test_an_address_keeps_its_bits(address: int, signed: int) -> None:
    assert context.as_int64(address) == signed
    for wrong in (-1, 2**64):
        with refused("address"):
            context.as_int64(wrong)
