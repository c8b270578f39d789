"""The orders of the interpreter, which scripts contain and which launches have that cannot be executed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.case.switches import for_interpreter
from properties.harness.kernels import interpreted, schedules
from properties.harness.kernels import launch as launching
from properties.harness.kernels.orders.schedule import program_schedule
from properties.harness.kernels.source.ir import NotUnderstoodError
from properties.meta.toy_kernels import move_kernel

pytestmark = pytest.mark.usefixtures("executed")

SEEDS = range(12)
INTERLEAVED = tuple(f"interleaved:{seed}" for seed in SEEDS)
ALL = ("reversed", "shuffled:1", *INTERLEAVED, *(f"warps:{seed}" for seed in SEEDS))


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@triton.jit
def arrivals_kernel(order_ptr, next_ptr):  # type: ignore[no-untyped-def]
    tl.store(order_ptr + tl.program_id(0), tl.atomic_add(next_ptr, 1))


@triton.jit
def lost_update_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)


@triton.jit
def failing_kernel(out_ptr, wrong):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, 1)
    if program == wrong:
        tl.arange(0, 3)
    tl.store(out_ptr + program, 2)


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def launch(schedule: str, kernel: Any, programs: int, *arguments: Any) -> None:
    with schedules.interpreted_in_order(schedule):
        interpreted.launch(kernel, (programs, 1, 1), arguments)


def arrivals(schedule: str, programs: int) -> list[int]:
    order = zeros(programs)
    launch(schedule, arrivals_kernel, programs, order, zeros(1))
    return order.tolist()


def updates(schedule: str) -> int:
    total = zeros(1)
    launch(schedule, lost_update_kernel, 10, total)
    return int(total)


def moved(schedule: str, *, barrier: bool) -> list[int]:
    data = torch.arange(24, dtype=torch.int32)
    launch(schedule, move_kernel, 1, data, 3, 16, barrier)
    return data.tolist()


@pytest.mark.parametrize("schedule", ["", *ALL])
def test_every_program_of_a_grid_runs_once(schedule: str) -> None:
    assert [sorted(arrivals(schedule, count)) for count in (1, 5, 20)] == [list(range(n)) for n in (1, 5, 20)]


def test_programs_run_in_the_order_that_was_asked_for() -> None:
    assert arrivals("", 4) == [0, 1, 2, 3]
    assert arrivals("reversed", 4) == [3, 2, 1, 0]
    assert len({tuple(arrivals(f"shuffled:{seed}", 6)) for seed in SEEDS}) > 8


def test_an_update_in_two_accesses_is_lost_between_interleaved_programs() -> None:
    found = [updates(schedule) for schedule in INTERLEAVED]
    assert {updates("reversed"), updates("shuffled:1")} == {10}
    assert len({*found} - {10}) > 2
    assert [updates(schedule) for schedule in INTERLEAVED] == found


def test_a_move_without_a_barrier_goes_wrong_between_warps_and_with_one_does_not() -> None:
    right = [*range(3, 19), *range(16, 24)]
    found = [(moved(f"warps:{seed}", barrier=True), moved(f"warps:{seed}", barrier=False)) for seed in SEEDS]
    assert all(with_barrier == right for with_barrier, _ in found)
    assert sum(without != right for _, without in found) > 3


@pytest.mark.parametrize("schedule", ALL)
def test_the_exception_of_a_program_ends_the_others(schedule: str) -> None:
    out = zeros(20)
    with pytest.raises(triton.runtime.interpreter.InterpreterError):
        launch(schedule, failing_kernel, 20, out, 7)
    assert {*out.tolist()} <= {0, 1, 2}
    assert out[7] == 1 or schedule.startswith("warps")


@pytest.mark.parametrize("schedule", ["reversed", "interleaved:1", "warps:1"])
def test_afterwards_the_interpreter_is_as_it_was(schedule: str) -> None:
    interpreter = triton.runtime.interpreter
    plain = interpreter.GridExecutor.__call__
    arrivals(schedule, 3)
    assert interpreter.GridExecutor.__call__ is plain
    assert not [name for name in vars(interpreter.interpreter_builder) if name.startswith("create_")]


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


@pytest.mark.parametrize("wrong", ["random", "interleaved:", "warps", "Reversed", "switches:1>1"])
def test_what_the_interpreter_does_not_know_is_refused(wrong: str) -> None:
    with (
        pytest.raises(ValueError, match=r"^schedule = .*, but should be"),
        schedules.interpreted_in_order(wrong),
    ):
        pass


def test_single_operations_are_drawn_where_the_interpreter_cannot_count_them() -> None:
    assert for_interpreter("reversed") == "reversed"
    assert for_interpreter("switches:") == ""
    assert for_interpreter("switches:1>2").startswith("interleaved:")
    assert for_interpreter("switches:1>2") != for_interpreter("switches:1>3")
    assert for_interpreter("priorities:3").startswith("interleaved:")
    assert for_interpreter("warpswitches:4:1>1").startswith("warps:")


def test_a_launch_that_cannot_be_executed_follows_the_schedule_in_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def refuse(*_: Any) -> Any:
        raise NotUnderstoodError("anything")

    monkeypatch.setattr(launching, "compiled", refuse)
    lost_update_kernel.device_caches.clear()
    found = set()
    try:
        for schedule in ("reversed", *INTERLEAVED, "switches:1>1", "priorities:1"):
            total = zeros(1)
            with program_schedule(schedule):
                lost_update_kernel[(10,)](total)
            found.add(int(total))
    finally:
        lost_update_kernel.device_caches.clear()
    assert 10 in found
    assert len(found) > 3
