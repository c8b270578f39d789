"""Any function in a worker."""

from __future__ import annotations

import pytest
import torch

from statecheck.case.faults import Fault
from statecheck.execution.example import Bench
from statecheck.workers.run_in_worker import run_in_worker


@pytest.fixture(scope="module")
def device(trial: Bench) -> str:
    return trial.port.device


def test_a_worker_stays_for_the_next_function(device: str) -> None:
    pid = run_in_worker("os:getpid", device=device)
    with pytest.raises(ZeroDivisionError, match="division by zero") as error:
        run_in_worker("operator:truediv", 1, 0, device=device)
    assert "in the worker:" in error.value.__notes__[0]
    assert run_in_worker("os:getpid", device=device) == pid


@pytest.mark.parametrize(
    ("function", "arguments", "fault"),
    [
        ("os:_exit", (3,), Fault("worker died", "exit code 3")),
        ("ctypes:string_at", (0,), Fault("illegal access", "memory was touched that is not there")),
        ("time:sleep", (60,), Fault("hang", "no answer within 0.5 s")),
    ],
)
def test_the_end_of_the_worker_is_what_a_function_comes_to(
    function: str, arguments: tuple[int, ...], fault: Fault, device: str
) -> None:
    assert run_in_worker(function, *arguments, device=device, time_limit=0.5) == fault
    assert run_in_worker("operator:add", 1, 2, device=device) == 3


def test_a_function_without_a_module_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match=r"^function = 'sleep', but should be package.module:function"):
        run_in_worker("sleep", 1, device=device)


def test_a_device_that_does_not_work_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("the GPU works")
    with pytest.raises(
        RuntimeError, match=r"^no worker for cuda gets ready: worker died: cuda does not work: "
    ):
        run_in_worker("os:getpid", device="cuda")
