"""Orders of programs: every program runs once, as itself; races show, and nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness import schedules
from properties.harness.schedules import program_schedule

pytestmark = pytest.mark.usefixtures("interpreted")

SEEDS = range(12)
ORDERS = ("", "reversed", *(f"shuffled:{seed}" for seed in SEEDS))
INTERLEAVED = tuple(f"interleaved:{seed}" for seed in SEEDS)
WARPS = tuple(f"warps:{seed}" for seed in SEEDS)
ALL = ORDERS + INTERLEAVED + WARPS


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


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


@triton.jit
def failing_kernel(out_ptr, wrong):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, 1)
    if program == wrong:
        tl.arange(0, 3)
    tl.store(out_ptr + program, 2)


@triton.jit
def waiting_kernel(flag_ptr):  # type: ignore[no-untyped-def]
    while tl.load(flag_ptr) == 0:
        pass


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


def outcome(schedule: str, wrong: int, programs: int = 20) -> tuple[str, str, list[int]]:
    """Type and cause of the exception, and what was written by then."""
    out = zeros(programs)
    with pytest.raises(triton.runtime.interpreter.InterpreterError) as caught:
        launch(schedule, failing_kernel, (programs,), out, wrong)
    return caught.typename, str(caught.value), out.tolist()


@pytest.mark.parametrize("wrong", [0, 7, 19])
def test_the_exception_of_a_program_surfaces_as_it_does_without_a_schedule(wrong: int) -> None:
    plain = outcome("", wrong)
    assert plain[2] == [2] * wrong + [1] + [0] * (19 - wrong)
    for schedule in ALL:
        assert outcome(schedule, wrong)[:2] == plain[:2]


def test_after_an_exception_no_further_program_begins() -> None:
    assert outcome("reversed", 7)[2] == [0] * 7 + [1] + [2] * 12


@pytest.mark.parametrize("schedule", INTERLEAVED)
def test_after_an_exception_the_other_programs_end_where_they_stand(schedule: str) -> None:
    written = outcome(schedule, 7)[2]
    assert written[7] == 1
    assert {*written} <= {0, 1, 2}


@pytest.mark.parametrize("schedule", ["reversed", "shuffled:1", "interleaved:1", "warps:1"])
def test_afterwards_the_interpreter_is_as_it_was(schedule: str) -> None:
    interpreter = triton.runtime.interpreter
    plain = interpreter.GridExecutor.__call__
    for end in (lambda: arrivals(schedule, 3, 2), lambda: outcome(schedule, 1)):
        end()
        assert interpreter.GridExecutor.__call__ is plain
        assert not [name for name in vars(interpreter.interpreter_builder) if name.startswith("create_")]
    assert arrivals("", 2, 2) == [0, 1, 2, 3]


def test_who_else_listens_to_accesses_still_hears_them() -> None:
    builder = triton.runtime.interpreter.interpreter_builder
    heard: list[str] = []

    def listen(*arguments: Any) -> Any:
        heard.append("store")
        return type(builder).create_masked_store(builder, *arguments)

    builder.create_masked_store = listen
    try:
        updates("interleaved:4")
        assert builder.create_masked_store is listen
    finally:
        del builder.create_masked_store
    assert heard == ["store"] * 10


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_ends_every_thread(interruption: type[BaseException]) -> None:
    builder = triton.runtime.interpreter.interpreter_builder

    def interrupt(*_: Any) -> Any:
        raise interruption

    builder.create_masked_store = interrupt
    try:
        with pytest.raises(interruption):
            updates("interleaved:4")
    finally:
        del builder.create_masked_store


def test_an_interruption_of_who_waits_for_a_launch_ends_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = 0.1) -> bool:
            super().wait(timeout)
            raise KeyboardInterrupt

    monkeypatch.setattr(schedules, "Event", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch("interleaved:4", waiting_kernel, (5,), zeros(1))


@pytest.mark.parametrize(
    "wrong", ["random", "shuffled", "interleaved:", "warps", "shuffled:a b", "Reversed", " "]
)
def test_an_unknown_schedule_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^schedule = .*, but should be"), program_schedule(wrong):
        pass


def test_schedules_do_nothing_where_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "_interprets", lambda: False)
    assert arrivals("reversed", 3, 1) == [0, 1, 2]
