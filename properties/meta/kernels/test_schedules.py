"""Orders of programs: every program runs once, as itself; races show, and nothing else does."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.kernels import launch as launching
from properties.harness.kernels import triton_mode
from properties.harness.kernels.launch import Launched
from properties.harness.kernels.memory import Memory
from properties.harness.kernels.orders import courses
from properties.harness.kernels.orders.schedule import REORDERED, program_schedule, switches_told
from properties.harness.kernels.source.tiles import AssertionFailedError

pytestmark = pytest.mark.usefixtures("executed")

SEEDS = range(12)
ORDERS = ("", "reversed", *(f"shuffled:{seed}" for seed in SEEDS))
SPELLED = ("switches:", "switches:1>1", "switches:0>5,2>1,1>9,0>3", "switches:1>7,1>6,1>5,1>4,1>3,1>2")
INTERLEAVED = (*(f"{kind}:{seed}" for kind in ("interleaved", "priorities") for seed in SEEDS), *SPELLED)
WARPS = (
    *(f"warps:{seed}" for seed in SEEDS),
    "warpswitches:4:",
    "warpswitches:4:1>1,1>2,0>3",
    "warpswitches:2:0>1",
)
ALL = ORDERS + INTERLEAVED + WARPS


@triton.jit
def arrivals_kernel(order_ptr, next_ptr):  # type: ignore[no-untyped-def]
    """Every program writes down the number under which it came."""
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(order_ptr + program, tl.atomic_add(next_ptr, 1))


@triton.jit
def reset_kernel(count_ptr, seen_ptr):  # type: ignore[no-untyped-def]
    """A race: every program of a row reads the row's count, which the first of them resets."""
    row, column = tl.program_id(0), tl.program_id(1)
    count = tl.load(count_ptr + row)
    if column == 0:
        tl.store(count_ptr + row, 1)
    tl.store(seen_ptr + row * tl.num_programs(1) + column, count)


@triton.jit
def sum_kernel(in_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """No race: each program reads a block and writes its own element."""
    program = tl.program_id(0)
    total = tl.zeros((), tl.int32)
    for i in range(SIZE):
        total += tl.load(in_ptr + program * SIZE + i)
    tl.store(out_ptr + program, total)


@triton.jit
def lost_update_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    """A race that no order of whole programs shows: add one in two accesses."""
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)


@triton.jit
def counted(sum_ptr):  # type: ignore[no-untyped-def]
    return tl.atomic_add(sum_ptr, 1)


@triton.jit
def atomic_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    """The same without the race, and in a function that the kernel calls."""
    counted(sum_ptr)


@triton.jit
def index_kernel(seen_ptr, scratch_ptr):  # type: ignore[no-untyped-def]
    """Who a program is must not change while others run."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.load(scratch_ptr)
    place = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)
    tl.store(seen_ptr + place, (x * 100 + y) * 100 + z + 1)


@triton.jit(debug=True)
def failing_kernel(out_ptr, wrong):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, 1)
    tl.device_assert(program != wrong, "the wrong one")
    tl.store(out_ptr + program, 2)


@triton.jit
def lock_kernel(lock_ptr, sum_ptr):  # type: ignore[no-untyped-def]
    """Add one in two accesses, under a lock: who has to wait is not asked for ever."""
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def launch(schedule: str, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constexprs: Any) -> None:
    with program_schedule(schedule):
        kernel[grid](*arguments, **constexprs)


def arrivals(schedule: str, *grid: int) -> list[int]:
    order = zeros(prod(grid))
    launch(schedule, arrivals_kernel, grid, order, zeros(1))
    return order.tolist()


@pytest.mark.parametrize("grid", [*((size, 1) for size in range(1, 21)), (4, 5), (1, 20), (40, 2)], ids=str)
@pytest.mark.parametrize("schedule", ["", "reversed", "shuffled:1", "interleaved:1", "warps:1"])
def test_every_program_of_a_grid_runs_once(grid: tuple[int, ...], schedule: str) -> None:
    assert sorted(arrivals(schedule, *grid)) == list(range(prod(grid)))


@pytest.mark.parametrize("schedule", ["", "reversed", "shuffled:3", "interleaved:3"])
def test_an_empty_grid_has_no_program(schedule: str) -> None:
    assert arrivals(schedule, 0, 3) == []


def test_without_a_schedule_programs_run_in_row_major_order() -> None:
    assert arrivals("", 2, 3) == [0, 1, 2, 3, 4, 5]


def test_reversed_runs_the_last_program_first() -> None:
    assert arrivals("reversed", 2, 3) == [5, 4, 3, 2, 1, 0]


def test_seeds_pick_different_orders_and_each_always_the_same() -> None:
    found = [arrivals(f"shuffled:{seed}", 3, 3) for seed in SEEDS]
    assert len({tuple(order) for order in found}) > 8
    assert found == [arrivals(f"shuffled:{seed}", 3, 3) for seed in SEEDS]


def test_every_launch_of_a_call_has_an_order_of_its_own() -> None:
    first, second, counter = zeros(8), zeros(8), zeros(2)
    with program_schedule("shuffled:0"):
        arrivals_kernel[(8, 1)](first, counter)
        arrivals_kernel[(8, 1)](second, counter[1:])
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("schedule", ALL)
def test_a_program_stays_who_it_is_while_others_run(schedule: str) -> None:
    grid = (2, 3, 4)
    seen = zeros(prod(grid))
    launch(schedule, index_kernel, grid, seen, zeros(1))
    wanted = [(x * 100 + y) * 100 + z + 1 for x, y, z in product(*map(range, grid))]
    assert seen.tolist() == wanted


def resets(schedule: str) -> list[int]:
    seen = zeros(2 * 4)
    launch(schedule, reset_kernel, (2, 4), torch.tensor([3, 5], dtype=torch.int32), seen)
    return seen.tolist()


def updates(schedule: str, kernel: Any = lost_update_kernel) -> int:
    total = zeros(1)
    launch(schedule, kernel, (10,), total)
    return int(total)


def test_a_value_that_a_sibling_resets_is_read_differently_in_different_orders() -> None:
    after_the_reset = [3, 1, 1, 1, 5, 1, 1, 1]
    before_the_reset = [3, 3, 3, 3, 5, 5, 5, 5]
    assert (resets(""), resets("reversed")) == (after_the_reset, before_the_reset)
    assert len({tuple(resets(schedule)) for schedule in INTERLEAVED}) > 2


def test_an_update_in_two_accesses_is_lost_between_interleaved_programs_alone() -> None:
    assert {updates(schedule) for schedule in ORDERS} == {10}
    assert len({updates(schedule) for schedule in INTERLEAVED} - {10}) > 2


def test_an_interleaving_is_the_same_every_time() -> None:
    assert [updates(one) for one in INTERLEAVED] == [updates(one) for one in INTERLEAVED]
    assert [resets(one) for one in INTERLEAVED] == [resets(one) for one in INTERLEAVED]


@pytest.mark.parametrize("schedule", ALL)
def test_without_a_race_every_schedule_has_the_same_result(schedule: str) -> None:
    out, numbers = zeros(20), torch.arange(60, dtype=torch.int32)
    launch(schedule, sum_kernel, (20,), numbers, out, SIZE=3)
    assert out.tolist() == numbers.reshape(20, 3).sum(1).tolist()
    assert updates(schedule, atomic_kernel) == 10


def locked(schedule: str) -> int:
    lock, total = zeros(1), zeros(1)
    launch(schedule, lock_kernel, (4,), lock, total)
    return int(total)


def test_who_waits_for_a_lock_does_not_keep_its_holder_from_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courses, "PATIENCE", 50)
    assert {locked(schedule) for schedule in (*INTERLEAVED, "switches:1>3", "switches:1>2,9>1")} == {4}


def outcome(schedule: str, wrong: int, programs: int = 20) -> tuple[str, list[int]]:
    """The message of the exception, and what was written by then."""
    out = zeros(programs)
    with pytest.raises(AssertionFailedError) as caught:
        launch(schedule, failing_kernel, (programs,), out, wrong)
    return str(caught.value), out.tolist()


@pytest.mark.parametrize("wrong", [0, 7, 19])
def test_the_exception_of_a_program_surfaces_as_it_does_without_a_schedule(wrong: int) -> None:
    plain = outcome("", wrong)
    assert plain[1] == [2] * wrong + [1] + [0] * (19 - wrong)
    for schedule in ALL:
        assert outcome(schedule, wrong)[0] == plain[0]


def test_after_an_exception_no_further_program_begins() -> None:
    assert outcome("reversed", 7)[1] == [0] * 7 + [1] + [2] * 12


@pytest.mark.parametrize("schedule", INTERLEAVED)
def test_after_an_exception_the_other_programs_end_where_they_stand(schedule: str) -> None:
    written = outcome(schedule, 7)[1]
    assert written[7] == 1
    assert {*written} <= {0, 1, 2}


@pytest.mark.parametrize("schedule", ["reversed", "shuffled:1", "interleaved:1", "warps:1", "switches:1>2"])
def test_afterwards_launches_run_as_before(schedule: str) -> None:
    plain = launching.STATE.runner
    for end in (lambda: arrivals(schedule, 3, 2), lambda: outcome(schedule, 1)):
        end()
        assert launching.STATE.runner is plain
    assert arrivals("", 2, 2) == [0, 1, 2, 3]


class Noting(Memory):
    """Who makes each operation: a program, by its number, or a warp of it."""

    def __init__(self, launch: Launched, made: list[tuple[int, str]]) -> None:
        super().__init__()
        self.launch, self.made = launch, made

    def note(self, kind: str) -> None:
        x, y, z = self.program
        _, rows, layers = self.launch.grid
        self.made.append((1000 * self.warp + (x * rows + y) * layers + z, kind))

    def load1(self, *arguments: Any) -> Any:
        self.note("load")
        return super().load1(*arguments)

    def store1(self, *arguments: Any) -> None:
        self.note("store")
        super().store1(*arguments)

    def rmw(self, *arguments: Any) -> Any:
        self.note("atomic")
        return super().rmw(*arguments)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    noted: list[tuple[int, str]] = []
    monkeypatch.setattr(launching.STATE, "memory", lambda launch: Noting(launch, noted))
    return noted


def turns(made: list[tuple[int, str]]) -> list[int]:
    """The program of each operation, and none of them left for the next one who asks."""
    found = [program for program, _ in made]
    made.clear()
    return found


def test_a_program_stops_before_each_operation(made: list[tuple[int, str]]) -> None:
    arrivals("switches:1>1,1>0", 2, 1)
    assert made == [(0, "atomic"), (1, "atomic"), (0, "store"), (1, "store")]


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("switches:", [0, 0, 0, 1, 1, 1, 2, 2, 2]),
        ("switches:2>1,1>2", [0, 0, 1, 2, 2, 2, 0, 1, 1]),
        ("switches:0>2", [2, 2, 2, 0, 0, 0, 1, 1, 1]),
        ("switches:4>0", [0, 0, 0, 1, 2, 2, 2, 1, 1]),
        ("switches:1>0", [0, 0, 0, 1, 1, 1, 2, 2, 2]),
        ("switches:1>7", [0, 2, 2, 2, 0, 0, 1, 1, 1]),
        ("switches:99>1,1>2", [0, 0, 0, 1, 1, 1, 2, 2, 2]),
        ("switches:8>0,0>1", [0, 0, 0, 1, 1, 1, 2, 2, 2]),
    ],
)
def test_switches_are_made_after_so_many_operations_or_are_those_to_another_one(
    made: list[tuple[int, str]], schedule: str, wanted: list[int]
) -> None:
    launch(schedule, sum_kernel, (3,), torch.arange(6, dtype=torch.int32), zeros(3), SIZE=2)
    assert turns(made) == wanted


def test_the_launches_of_a_call_have_their_own_switches(made: list[tuple[int, str]]) -> None:
    with program_schedule("switches:1>1;;0>1"):
        for _ in range(4):
            arrivals_kernel[(2, 1)](zeros(2), zeros(1))
    assert turns(made) == [0, 1, 1, 0, *(0, 0, 1, 1), *(1, 1, 0, 0), *(0, 0, 1, 1)]


@pytest.mark.parametrize("schedule", [one for one in ALL if one])
def test_a_schedule_is_told_as_the_switches_that_it_made(made: list[tuple[int, str]], schedule: str) -> None:
    """Of all launches of a context; and these run the same programs again, operation by operation."""

    def run(schedule: str) -> list[int]:
        with program_schedule(schedule):
            arrivals_kernel[(20, 1)](zeros(20), zeros(1))
            lost_update_kernel[(5,)](zeros(1))
        return turns(made)

    with switches_told() as told:
        first = run(schedule)
    (spelled,) = told
    assert spelled.startswith(("switches:", "warpswitches:"))
    assert run(spelled) == first


def test_priorities_change_at_most_three_times_between_programs(made: list[tuple[int, str]]) -> None:
    """Beside the switches to who has the next priority, when a program ends."""
    for seed in range(50):
        launch(f"priorities:{seed}", sum_kernel, (4,), torch.arange(40, dtype=torch.int32), zeros(4), SIZE=10)
        found = turns(made)
        assert 3 <= sum(one != other for one, other in pairwise(found)) <= 6


def test_priorities_change_in_many_places_of_a_launch(made: list[tuple[int, str]]) -> None:
    places = set()
    for seed in range(100):
        launch(f"priorities:{seed}", lost_update_kernel, (2,), zeros(1))
        places.add(tuple(turns(made)))
    assert len(places) == 6


def test_a_launch_counts_as_reordered_if_its_programs_were() -> None:
    def reordered(schedule: str, programs: int = 3) -> int:
        before = REORDERED.launches
        arrivals(schedule, programs, 1)
        return REORDERED.launches - before

    assert [reordered(one) for one in ("", "switches:", "switches:99>1")] == [0, 0, 0]
    assert [reordered(one) for one in ("reversed", "switches:1>1", "priorities:1", "warps:1")] == [1, 1, 1, 1]
    assert [reordered(one, 1) for one in ("reversed", "interleaved:1", "warps:1")] == [0, 0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "random",
            "shuffled",
            "interleaved:",
            "warps",
            "shuffled:a b",
            "Reversed",
            " ",
            "switches",
            "every:",
        ),
        *(
            "switches:1",
            "switches:1>",
            "switches:1>2,",
            "switches:-1>2",
            "warpswitches:1>2",
            "warpswitches:0:1>2",
        ),
    ],
)
def test_an_unknown_schedule_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^schedule = .*, but should be"), program_schedule(wrong):
        pass


def test_schedules_do_nothing_where_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_mode, "executes", lambda: False)
    for schedule in ("reversed", "switches:1>1", "priorities:3"):
        assert arrivals(schedule, 3, 1) == [0, 1, 2]
