"""Fates of a worker have the same name every time, and a time limit."""

from __future__ import annotations

import pytest

from statecheck.case.raised import Fault, death, fault_of_error, hang, wants_memory
from statecheck.case.values import Raised
from statecheck.workers.port import Patience
from statecheck.workers.server import out_of_memory
from tests.helpers.processes import run_fresh
from tests.helpers.slow import slow_after


@pytest.mark.parametrize(("longest", "limit"), [(0.0, 2.0), (0.1, 2.0), (0.5, 5.0), (20.0, 30.0)])
def test_after_a_hang_the_limit_is_ten_times_the_longest_call(longest: float, limit: float) -> None:
    patience = Patience(30.0)
    patience.healthy(longest)
    patience.healthy(0.01)
    assert patience.limit == 30.0
    patience.hung()
    assert patience.limit == limit
    # A new property has all the time again.
    patience.reset()
    assert patience.limit == 30.0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA error: an illegal memory access was encountered\nSearch for", "illegal access"),
        ("Triton Error [CUDA]: an illegal memory access was encountered", "illegal access"),
        ("CUDA error: misaligned address", "misaligned access"),
        ("CUDA error: unspecified launch failure", "launch failure"),
        ("CUDA error: device-side assert triggered", "launch failure"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "out of memory"),
        ("something never seen before", "launch failure"),
    ],
)
def test_an_error_of_the_device_has_a_kind(text: str, kind: str) -> None:
    assert fault_of_error(text).kind == kind


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (0, Fault("worker died", "the process ended with exit code 0")),
        (-9, Fault("worker died", "the process ended by SIGKILL", killed=True)),
        (-11, Fault("worker died", "the process ended by SIGSEGV")),
        (-63, Fault("worker died", "the process ended by signal 63")),
    ],
)
def test_the_status_of_a_dead_process_has_a_kind(status: int, fault: Fault) -> None:
    assert death(status) == fault


def test_a_hang_is_a_kind_of_its_own_and_no_fault() -> None:
    assert hang(2).outcome == Raised("hang", "no answer within 2 s", kind="hang")
    assert death(-11).outcome == Raised("worker died", "the process ended by SIGSEGV", kind="fault")


def test_only_a_process_that_was_killed_is_tried_again() -> None:
    assert [death(status).from_outside for status in (-9, -11, 9)] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "message", "wanted"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'", True),
        ("AcceleratorError", "CUDA error: an illegal memory access was encountered", False),
        ("RuntimeError", "Triton Error [CUDA]: out of memory", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("RuntimeError", "Triton Error [CUDA]: an illegal memory access was encountered", False),
        ("RuntimeError", "the pool of ships is out of memory", False),
        ("ValueError", "blocks = 3, but should be 2: out of memory", False),
    ],
)
def test_a_lack_of_memory_has_many_names(name: str, message: str, wanted: bool) -> None:
    assert wants_memory(name, message) is wanted


def test_a_lack_of_memory_is_tried_again_as_others_may_have_it() -> None:
    assert fault_of_error("CUDA error: out of memory").from_outside
    assert not fault_of_error("CUDA error: an illegal memory access was encountered").from_outside


@pytest.mark.parametrize(
    ("free", "own", "crowded"), [(10, 66, False), (10, 65, True), (75, 0, True), (76, 0, False)]
)
def test_a_lack_of_memory_that_other_processes_hold_is_not_the_subjects(
    monkeypatch: pytest.MonkeyPatch, free: int, own: int, crowded: bool
) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (free, 100))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda: own)
    fault = out_of_memory()
    assert fault.crowded is crowded
    assert fault.from_outside
    assert fault.outcome.not_offered is crowded


_FORKS = """
import os, sys
from types import ModuleType
from statecheck.case.values import call
from statecheck.execution.in_process import InProcess
from subjects import Subject

def divide(x, y):
    pid = os.fork()
    if pid == 0:
        {child}
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

toy = ModuleType("toy")
toy.divide = divide
print(InProcess(Subject("toy", toy), "cpu").execute(call("divide", x=1, y=2)).value, flush=True)
"""


@pytest.mark.parametrize(
    ("child", "code"),
    slow_after(1, [("sys.exit(3)", 3), ("sys.exit()", 0), ("return 5", 0), ("raise ValueError", 1)]),
    ids=str,
)
def test_a_process_that_the_subject_forks_ends_with_its_call(child: str, code: int) -> None:
    assert run_fresh("-c", _FORKS.format(child=child)).stdout == f"{code}\n"
