"""Orders of programs: every program runs once, as itself; races show, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels import launch as launching
from statecheck.kernels import orders, triton_mode
from statecheck.kernels.memory import Memory, ObservedMemory
from statecheck.kernels.orders import REORDERED, program_schedule
from statecheck.kernels.sanitizer.touches import Observer, Touch
from statecheck.kernels.source.tiles import AssertionFailedError
from tests.unit.kernels.order_toys import ALL, INTERLEAVED, KINDS, TOYS, arrivals_kernel, sum_kernel, zeros

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit(debug=True)
def failing_kernel(out_ptr, wrong):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, 1)
    tl.device_assert(program != wrong, "the wrong one")
    tl.store(out_ptr + program, 2)


def launch(schedule: str, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constexprs: Any) -> None:
    with program_schedule(schedule):
        kernel[grid](*arguments, **constexprs)


def arrivals(schedule: str, *grid: int) -> list[int]:
    order = zeros(prod(grid))
    launch(schedule, arrivals_kernel, grid, order, zeros(1))
    return order.tolist()


@pytest.mark.parametrize("grid", [*((size, 1) for size in range(1, 21)), (4, 5), (1, 20), (40, 2)], ids=str)
@pytest.mark.parametrize("schedule", ["", "reversed", "switches:0>7,1>3"])
def test_every_program_of_a_grid_runs_once(grid: tuple[int, ...], schedule: str) -> None:
    assert sorted(arrivals(schedule, *grid)) == list(range(prod(grid)))


@pytest.mark.parametrize("schedule", ["", "reversed", "switches:1>2"])
def test_an_empty_grid_has_no_program(schedule: str) -> None:
    assert arrivals(schedule, 0, 3) == []


def test_programs_may_run_with_the_last_one_first() -> None:
    assert arrivals("reversed", 2, 3) == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TOYS)
def test_orders_show_races_and_nothing_else(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "PATIENCE", 50)
    toy = TOYS[name]
    assert toy.after("") == toy.left
    found = [toy.after(schedule) for schedule in KINDS[kind]]
    assert any(left != toy.left for left in found) is (kind in toy.differs)
    assert [toy.after(schedule) for schedule in KINDS[kind]] == found, "an order is the same every time"


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


@pytest.mark.parametrize("schedule", ["reversed", "switches:1>2"])
def test_afterwards_launches_run_as_before(schedule: str) -> None:
    plain = launching.STATE.runner
    for end in (lambda: arrivals(schedule, 3, 2), lambda: outcome(schedule, 1)):
        end()
        assert launching.STATE.runner is plain
    assert arrivals("", 2, 2) == [0, 1, 2, 3]


def operations(launch: Callable[[], object]) -> list[tuple[int, str]]:
    """Which program makes each operation of the launches of a call, and of which kind it is."""
    made: list[tuple[int, str]] = []

    class Operations(Observer):
        def __init__(self, launched: launching.Launched) -> None:
            self._programs = list(launched.programs())

        def before(self, touch: Touch) -> None:
            made.append((self._programs.index(touch.program), touch.kind))

    def memory(launched: launching.Launched) -> Memory:
        return ObservedMemory(Operations(launched))

    with launching.running(memory=memory):
        launch()
    return made


def turns(launch: Callable[[], object]) -> list[int]:
    """The program of each operation."""
    return [program for program, _ in operations(launch)]


def test_a_program_stops_before_each_operation() -> None:
    made = operations(lambda: arrivals("switches:1>1,1>0", 2, 1))
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
    schedule: str, wanted: list[int]
) -> None:
    numbers = torch.arange(6, dtype=torch.int32)
    assert turns(lambda: launch(schedule, sum_kernel, (3,), numbers, zeros(3), SIZE=2)) == wanted


def test_the_launches_of_a_call_have_their_own_switches() -> None:
    def call() -> None:
        with program_schedule("switches:1>1;;0>1"):
            for _ in range(4):
                arrivals_kernel[(2, 1)](zeros(2), zeros(1))

    assert turns(call) == [0, 1, 1, 0, *(0, 0, 1, 1), *(1, 1, 0, 0), *(0, 0, 1, 1)]


def test_a_launch_counts_as_reordered_if_its_programs_were() -> None:
    def reordered(schedule: str, programs: int = 3) -> int:
        before = REORDERED.launches
        arrivals(schedule, programs, 1)
        return REORDERED.launches - before

    assert [reordered(order) for order in ("", "switches:", "switches:99>1")] == [0, 0, 0]
    assert [reordered(order) for order in ("reversed", "switches:1>1")] == [1, 1]
    assert [reordered(order, 1) for order in ("reversed", "switches:1>1")] == [0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        *("random", "shuffled:1", "priorities:1", "Reversed", " ", "switches", "every:300"),
        *("switches:1", "switches:1>", "switches:1>2,", "switches:-1>2", "warps:1"),
    ],
)  # fmt: skip
def test_an_unknown_schedule_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^schedule = .*, but should be"), program_schedule(wrong):
        pass


def test_schedules_do_nothing_where_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_mode, "executes", lambda: False)
    for schedule in ("reversed", "switches:1>1"):
        assert arrivals(schedule, 3, 1) == [0, 1, 2]
