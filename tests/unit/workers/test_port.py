"""The port whose subject runs in a worker: the same outcomes as in this process, and faults as outcomes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from statecheck.case.values import Device, Outcome, Overwrite, Raised, Returned, Step, call
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import Executor
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.workers.forkserver import CoreWaits, server_for
from statecheck.workers.port import InWorker, WorkerProcess
from subjects import load
from tests.helpers.faulty import FAULTY
from tests.helpers.modules import module
from tests.helpers.processes import alive


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with module(tmp_path_factory.mktemp("faulty"), "toy_faulty", FAULTY) as name:
        yield name


@pytest.fixture
def port(faulty: str, device: str) -> Iterator[InWorker]:
    with InWorker(faulty, device, time_limit=20.0) as made:
        made.begin()
        yield made


def fault(kind: str, message: str) -> Raised:
    return Raised(kind, message, kind="fault")


def segmentation_fault(device: str) -> Raised:
    """The outcome of a kernel that touches memory that is not there."""
    if device == "cpu":
        return fault("worker died", "the process ended by SIGSEGV")
    return fault("illegal access", "memory was touched that is not there")


def added(port: Executor, x: int) -> Outcome | None:
    return port.execute(call("add_one", x=x))


@dataclass
class Recording:
    """A port that remembers what each example did."""

    port: InProcess
    examples: list[list[tuple[Step, Outcome | None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device = self.port.device

    def begin(self) -> None:
        self.examples.append([])
        self.port.begin()

    def execute(self, step: Step) -> Outcome | None:
        outcome = self.port.execute(step)
        self.examples[-1].append((step, outcome))
        return outcome

    def waiting_refused(self) -> Any:
        return self.port.waiting_refused()


def recorded(name: str, device: str, many: int) -> Recording:
    recording = Recording(InProcess(load("impl"), device))
    load_properties()[name].explore(ExecutionContext(load("impl"), recording), seed=1, max_examples=many)
    return recording


SAMPLED = {
    "varlen-chunks/partition": 20,
    "temporal-copy/start": 20,
    "v1-postprocess/boundary": 3,
    "divide/exact": 20,
    "builder/no-stale-step": 3,
}


@pytest.mark.parametrize(("name", "many"), SAMPLED.items())
def test_outcomes_in_a_worker_are_those_in_this_process(name: str, many: int, device: str) -> None:
    recording = recorded(name, device, many)
    with InWorker("impl", device) as port:
        for example in recording.examples:
            port.begin()
            assert [(step, port.execute(step)) for step, _ in example] == example


def test_an_exception_of_the_subject_stays_what_it_is(port: InWorker) -> None:
    assert port.execute(call("complain", x=3)) == Raised("ValueError", "x = 3, but should be 0 [complain]")
    assert (added(port, 1), port.restarts) == (Returned(2), 0)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (call("leave", code=7), "the process ended with exit code 7"),
        (call("be_killed", signal=int(signal.SIGABRT)), "the process ended by SIGABRT"),
        (call("be_killed", signal=int(signal.SIGBUS)), "the process ended by SIGBUS"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.function,
)
def test_the_end_of_the_worker_is_the_outcome_of_the_call(port: InWorker, step: Step, message: str) -> None:
    assert port.execute(step) == fault("worker died", message)


def test_memory_that_is_not_there_ends_the_call_in_a_fault(port: InWorker, device: str) -> None:
    assert port.execute(call("touch_nothing", device=Device())) == segmentation_fault(device)


def test_a_call_that_never_ends_is_a_hang(faulty: str, device: str) -> None:
    with InWorker(faulty, device, time_limit=1.0) as port:
        port.begin()
        assert added(port, 1) == Returned(2)
        assert port.execute(call("never_end", device=Device())) == Raised(
            "hang", "no answer within 1 s", kind="hang"
        )


def test_seconds_in_which_a_call_had_no_core_do_not_count_as_hanging(
    faulty: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    monkeypatch.setattr(CoreWaits, "look", lambda _, most: 0.9 * (time.monotonic() - began))
    with InWorker(faulty, device, time_limit=1.0) as port:
        port.begin()
        assert port.execute(call("compile_and_sleep", seconds=3)) == Returned(None)


def test_after_a_fault_the_rest_of_the_example_is_not_run(port: InWorker, device: str) -> None:
    port.execute(call("touch_nothing", device=Device()))
    assert port.execute(Overwrite("nothing", (1,))) is None
    ended = segmentation_fault(device)
    assert added(port, 1) == ended
    assert port.faults == {ended.exception: 1}


def test_the_example_after_a_fault_runs_in_a_fresh_worker(port: InWorker) -> None:
    port.execute(call("touch_nothing", device=Device()))
    port.begin()
    assert (added(port, 1), port.restarts) == (Returned(2), 1)


def test_a_spare_worker_takes_over_at_once(port: InWorker) -> None:
    added(port, 1)
    spare = port.pids[1]
    port.execute(call("leave", code=7))
    port.begin()
    added(port, 1)
    assert port.pids[0] == spare
    assert port.pids[1] != spare


def test_a_spare_worker_that_was_killed_is_no_fault_of_an_example(port: InWorker) -> None:
    added(port, 1)
    for pid in port.pids:
        kill(pid)
    port.begin()
    assert (added(port, 2), dict(port.faults)) == (Returned(3), {})


def test_a_worker_that_was_killed_between_examples_is_replaced_without_a_word(port: InWorker) -> None:
    added(port, 1)
    kill(port.pids[0])
    port.begin()
    assert (added(port, 2), port.restarts, dict(port.faults)) == (Returned(3), 1, {})


def test_an_example_whose_worker_was_killed_from_outside_is_run_again(port: InWorker) -> None:
    port.execute(call("remember", x=1))
    kill(port.pids[0])
    assert port.execute(call("remember", x=2)) == Returned([1, 2])
    assert (port.restarts, dict(port.faults)) == (1, {})


@pytest.mark.slow
def test_an_example_whose_workers_and_their_server_were_killed_is_run_again(port: InWorker) -> None:
    port.execute(call("remember", x=1))
    kill(server_for(port.device).pid)
    assert port.execute(call("remember", x=2)) == Returned([1, 2])


def test_a_call_that_is_killed_every_time_has_ended_its_worker(port: InWorker) -> None:
    assert port.execute(call("be_killed", signal=int(signal.SIGKILL))) == fault(
        "worker died", "the process ended by SIGKILL"
    )
    assert (port.restarts, port.faults) == (2, {"worker died": 1})


def kill(pid: int) -> None:
    """End a worker from outside, and wait until it has let go of its end of the channel."""
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.01)


def test_a_subject_that_cannot_be_imported_is_no_fault(device: str) -> None:
    with InWorker("no_such_module", device) as port:
        port.begin()
        with pytest.raises(ValueError, match=r"^subject = 'no_such_module', but should be"):
            added(port, 1)


def test_a_step_that_the_harness_cannot_run_is_no_fault(port: InWorker) -> None:
    port.execute(Overwrite("unknown", (1,)))
    with pytest.raises(KeyError, match="unknown"):
        added(port, 1)
    assert added(port, 1) == Returned(2)


def test_waiting_is_refused_in_the_worker_too(port: InWorker, device: str) -> None:
    with port.waiting_refused():
        outcome = port.execute(call("wait", device=Device()))
    if device == "cpu":
        assert outcome == Returned(0)
    else:
        assert isinstance(outcome, Raised)
        assert outcome.exception == "RuntimeError"
    assert port.execute(call("wait", device=Device())) == Returned(0)


def test_compiling_does_not_count_as_hanging(faulty: str, device: str) -> None:
    with InWorker(faulty, device, time_limit=0.5) as port:
        port.begin()
        assert port.execute(call("compile_slowly", seconds=1)) == Returned(1)
        assert port.execute(call("compile_and_sleep", seconds=60)) == Raised(
            "hang", "no answer within 0.5 s", kind="hang"
        )


def test_an_answer_that_was_not_waited_for_is_not_taken_for_the_next(port: InWorker) -> None:
    added(port, 1)
    worker = port._workers.worker()
    assert isinstance(worker, WorkerProcess)
    worker._send("example", True, ((False, (call("add_one", x=10),)),))
    port.begin()
    assert added(port, 1) == Returned(2)
