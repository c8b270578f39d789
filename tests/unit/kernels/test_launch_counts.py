"""How a process says that kernels were launched."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.case.findings import NotExecuted
from statecheck.case.values import call
from statecheck.execution.example import ExecutionContext
from statecheck.kernels.launch import STATE
from statecheck.kernels.launch_counts import EXECUTED, NOT_EXECUTED, How, take
from statecheck.kernels.memory import Memory
from statecheck.workers.port import InWorker
from tests.helpers.modules import ROOT, module

FILE = str(Path(__file__).relative_to(ROOT))


@pytest.fixture(autouse=True)
def _nothing_was_launched_so_far(trial: ExecutionContext) -> Iterator[None]:
    if trial.port.device != "cpu":
        pytest.skip("kernels are compiled in this process, and this is about executed ones")
    take()
    yield
    take()


@triton.jit
def step_kernel(x_ptr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(x_ptr, tl.load(x_ptr) + STEP)


@triton.jit(noinline=True)
def behind(x_ptr, places):  # type: ignore[no-untyped-def]
    return x_ptr + places


@triton.jit
def passed_on_kernel(x_ptr):  # type: ignore[no-untyped-def]
    tl.store(behind(x_ptr, 1), 5)


def launched(step: int = 1) -> Counter[How]:
    """The count of a launch of `step_kernel`."""
    step_kernel[(1,)](torch.zeros(1, dtype=torch.int32), STEP=step)
    return take()


def test_launches_of_all_variants_of_a_kernel_are_counted_under_its_place() -> None:
    found = launched(1) + launched(2) + launched(2)
    _, line = inspect.getsourcelines(step_kernel.fn)
    assert found == {How("step_kernel", EXECUTED, place=f"{FILE}:{line}"): 3}


def test_launches_that_are_taken_over_are_told_once() -> None:
    launched()
    assert not take()
    assert launched().total() == 1


class _Broken(Memory):
    def load1(self, *_: object) -> Any:
        raise RuntimeError("no memory")


def test_a_launch_that_ends_in_an_error_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STATE, "memory", lambda launch: _Broken())
    with pytest.raises(RuntimeError, match="no memory"):
        launched()
    assert take().total() == 1


def test_a_kernel_that_is_not_understood_is_not_executed_and_the_reason_is_told() -> None:
    numbers = torch.zeros(2, dtype=torch.int32)
    for _ in range(3):
        with pytest.raises(NotExecuted, match="a function of its own that returns pointers"):
            passed_on_kernel[(1,)](numbers)
    (how,) = (found := take())
    assert numbers.tolist() == [0, 0]
    assert (how.kernel, how.how, found[how]) == ("passed_on_kernel", NOT_EXECUTED, 3)
    assert how.why == "a function of its own that returns pointers"


LAUNCHING = """
import torch, triton, triton.language as tl

@triton.jit
def halves_kernel(x_ptr):
    if tl.load(x_ptr) > 10:
        tl.store(x_ptr, 1)

def halve(x):
    number = torch.tensor([x])
    halves_kernel[(1,)](number)
    return int(number)
"""


@pytest.mark.slow
def test_launches_of_a_subject_in_another_process_are_counted(tmp_path: Path) -> None:
    with module(tmp_path, "toy_halves", LAUNCHING) as name, InWorker(name, "cpu") as port:
        found = []
        for x in (3, 30):
            port.begin()
            port.execute(call("halve", x=x))
            found.append(port.take_launches())
        assert not port.take_launches()
    assert [each.total() for each in found] == [1, 1]
    assert {(how.kernel, how.place) for each in found for how in each} == {
        ("halves_kernel", "toy_halves.py:4")
    }
