"""Workers that do not go on: the coordinator sees it from outside, and decides by what the worker could have done meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from statecheck.campaign.pages.summary import verdict
from statecheck.campaign.processes import clock as clock_module
from statecheck.campaign.processes import handle
from statecheck.campaign.processes.clock import ActivityClock, Reading
from statecheck.campaign.processes.tasks import Explore, Replay
from statecheck.campaign.record import CampaignRecord
from statecheck.case import Case
from statecheck.case.values import call
from statecheck.workers.log import State
from tests.campaign.pretended import Actor, passes, pretended
from tests.helpers.cases import a_case
from tests.helpers.faulty import EXACT

DIVIDES = call("divide", x=6, y=3)

pytestmark = pytest.mark.usefixtures("default_signals")


def code_of(record: CampaignRecord) -> int:
    return verdict(record).exit_code


# The clock.


class Machine:
    """A process as the system describes it, at moments of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.reading = 100.0, Reading("R", 0.0, 0.0)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(clock_module, "read", lambda pid: self.reading)

    def passes(self, seconds: float, reading: Reading) -> None:
        self.now, self.reading = self.now + seconds, reading


@pytest.mark.parametrize(
    ("reading", "counted"),
    [
        (Reading("R", 0.1, 0.4), 0.1),
        (Reading("R", 0.5, 0.0), 0.5),
        (Reading("S", 0.0, 0.0), 0.5),
        (Reading("T", 0.0, 0.0), 0.5),
        (Reading("R", 0.1, None), 0.1),
        (Reading("S", 0.1, None), 0.5),
        (Reading("", 0.0, None), 0.5),
    ],
    ids=[
        "others had the CPU",
        "it had the CPU",
        "it slept",
        "it was stopped",
        "others, no schedstat",
        "slept, no schedstat",
        "no /proc",
    ],
)
def test_time_in_which_others_had_the_cpu_does_not_count(
    monkeypatch: pytest.MonkeyPatch, reading: Reading, counted: float
) -> None:
    machine = Machine(monkeypatch)
    clock = ActivityClock(1)
    machine.reading = Reading(reading.state, 0.0, None if reading.delayed is None else 0.0)
    clock.look("call", 100.0)
    machine.passes(0.5, reading)
    assert clock.look("call", 100.0) == pytest.approx(counted)
    assert clock.stopped is (reading.state == "T")


def test_the_clock_starts_with_a_call_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, idle = Machine(monkeypatch), Reading("S", 0.0, 0.0)
    clock = ActivityClock(1)
    machine.passes(0.5, idle)
    assert clock.look("first call", 100.4) == pytest.approx(0.1)
    machine.passes(0.5, idle)
    assert clock.look("between calls", 100.6) == pytest.approx(0.4)
    machine.passes(0.5, idle)
    assert clock.look("second call", 101.5) == pytest.approx(0.0)


def test_time_in_which_the_coordinator_did_not_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    clock = ActivityClock(1)
    clock.look("call", 100.0)
    machine.passes(600.0, Reading("S", 0.0, 0.0))
    assert clock.look("call", 100.0) <= 1.0


def test_a_reading_of_a_process_is_what_the_system_says() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.kill(process.pid, signal.SIGSTOP)
        while (reading := clock_module.read(process.pid)).state not in ("T", ""):
            time.sleep(0.01)
        process.kill()
    assert reading.used >= 0.0
    assert clock_module.read(10_000_000) == Reading("", 0.0, None)


# Campaigns.


def in_call(task: Explore, actor: Actor, state: State = State.CALL) -> None:
    actor.leave_running(task, DIVIDES, state=state)
    actor.hang()


def hangs_once(state: State) -> Callable[[Explore, Actor], None]:
    """Passes, and then does not go on."""
    begun: list[Explore] = []

    def body(task: Explore, actor: Actor) -> None:
        begun.append(task)
        if len(begun) == 2:
            in_call(task, actor, state)
        passes(task, actor)

    return body


def test_a_call_that_runs_when_the_budget_ends_gets_its_time_and_is_a_hang_then(tmp_path: Path) -> None:
    record, _ = pretended(tmp_path, hangs_once(State.CALL), only=EXACT, budget=0.2, grace=0.1, time_limit=1.0)
    (bucket,) = record.buckets
    assert "hang: no answer within 1 s" in bucket.message
    assert Case.from_data(bucket.case).calls == (DIVIDES,)
    assert (record.properties[0].status, code_of(record)) == ("FALSIFIED", 1)
    assert Path(bucket.corpus).is_file()


@pytest.mark.parametrize("state", [State.BETWEEN_CALLS, State.ASKED], ids=lambda state: state.name)
def test_an_example_that_runs_when_its_time_is_over_is_not_finished(tmp_path: Path, state: State) -> None:
    body = hangs_once(state)
    record, _ = pretended(tmp_path, body, only=EXACT, budget=0.2, grace=0.1, time_limit=0.1)
    (one,) = record.properties
    assert (one.status, one.compared > 0, code_of(record)) == ("not finished", True, 2)
    (left,) = (tmp_path / "reports").glob("campaigns/*/pending/*.unfinished.json")
    assert Case.load(left).calls == (DIVIDES,)
    assert str(left) in one.detail
    result = verdict(record)
    assert (result.word, result.reasons) == ("INCOMPLETE", ("1 property: not finished.",))


def test_an_example_that_comes_to_its_end_in_its_time_limit_counts(tmp_path: Path) -> None:
    begun: list[Explore] = []

    def slow(task: Explore, actor: Actor) -> None:
        begun.append(task)
        if len(begun) == 2:
            actor.leave_running(task, DIVIDES, state=State.CALL)
            time.sleep(1.0)
        passes(task, actor)

    record, _ = pretended(tmp_path, slow, only=EXACT, budget=0.2, grace=0.1, time_limit=20.0)
    assert (record.properties[0].status, code_of(record)) == ("passed", 0)
    assert record.examples == sum(task.max_examples for task in begun)


def test_a_worker_that_ends_itself_in_a_call_is_a_finding_with_its_input(tmp_path: Path) -> None:
    def ends(task: Explore, actor: Actor) -> None:
        if task.isolated:
            passes(task, actor)
            return
        actor.leave_running(task, DIVIDES, state=State.CALL)
        actor.die(0)

    record, _ = pretended(tmp_path, ends, only=EXACT, budget=1.0)
    (bucket,) = record.buckets
    assert "worker died: exit code 0" in bucket.message
    assert (record.properties[0].status, code_of(record)) == ("FALSIFIED", 1)


def test_a_worker_that_was_killed_in_a_call_is_no_finding(tmp_path: Path) -> None:
    def is_killed(task: Explore, actor: Actor) -> None:
        if not task.isolated:
            actor.leave_running(task, DIVIDES, state=State.CALL)
            actor.die(-9)
        passes(task, actor)

    record, _ = pretended(tmp_path, is_killed, only=EXACT, budget=1.0)
    assert (record.buckets, record.properties[0].status) == ([], "passed")


def test_a_property_whose_worker_died_without_time_for_another_is_not_finished(tmp_path: Path) -> None:
    begun: list[Explore] = []

    def dies(task: Explore, actor: Actor) -> None:
        begun.append(task)
        if len(begun) == 2:
            time.sleep(0.4)
            actor.die(-9)
        passes(task, actor)

    record, _ = pretended(tmp_path, dies, only=EXACT, budget=0.3, grace=2.0)
    assert (record.properties[0].status, code_of(record)) == ("not finished", 2)


def test_a_replay_that_hangs_is_a_failure_of_its_case(tmp_path: Path) -> None:
    case = a_case(property_name=EXACT, subject="impl")
    path = case.save(tmp_path / "corpus" / "one.json")

    def hangs(_: Replay, actor: Actor) -> None:
        in_call(Explore(EXACT, 1, 1), actor)

    record, _ = pretended(tmp_path, passes, only=EXACT, replay=hangs, budget=2.0, time_limit=0.2)
    assert [(replay.file, replay.verdict) for replay in record.corpus] == [(path.name, "FAILED")]
    assert code_of(record) == 1


def test_a_worker_that_does_not_go_on_outside_of_a_call_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "_OWN_SECONDS", 0.1)
    body = hangs_once(State.BETWEEN_CALLS)
    record, given = pretended(tmp_path, body, only=EXACT, budget=3.0, time_limit=0.1)
    assert any("a worker did not go on for" in trouble for trouble in record.troubles)
    assert record.properties[0].status == "passed"
    assert given[2].isolated


def test_a_worker_that_is_never_ready_is_replaced_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[Actor] = []

    def never_ready(actor: Actor, *_: object) -> None:
        spawned.append(actor)
        actor.die(3)

    monkeypatch.setattr(Actor, "say", never_ready)
    record, given = pretended(tmp_path, passes, only=EXACT, budget=20.0)
    assert (given, len(spawned), code_of(record)) == ([], 3, 2)
    assert record.troubles == [
        "a worker died with exit code 3 before it was ready",
        "the canary was not run: the campaign ended before its turn",
    ]
    assert record.seconds < 20.0


# Exceptions of the harness.


def fails(times: int) -> Callable[[Explore, Actor], None]:
    """Ends so many explorations in an unexpected exception."""
    begun: list[Explore] = []

    def body(task: Explore, actor: Actor) -> None:
        from statecheck.campaign.processes.tasks import Explored

        begun.append(task)
        if len(begun) <= times:
            actor.say(Explored(EXACT, "error", 0.1, "Traceback\nOSError: no such folder"))
        else:
            passes(task, actor)

    return body


def test_an_unexpected_exception_is_tried_again_in_another_worker(tmp_path: Path) -> None:
    pids: list[int] = []

    def body(task: Explore, actor: Actor) -> None:
        pids.append(actor.pid)
        failing(task, actor)

    failing = fails(1)
    record, given = pretended(tmp_path, body, only=EXACT, budget=0.7)
    assert (record.properties[0].status, code_of(record)) == ("passed", 0)
    # The retry comes after the other visits of the first pass.
    assert given[0].seed in [task.seed for task in given[1:]]
    assert pids[0] not in pids[1:]
    (trouble,) = record.troubles
    assert trouble.endswith("OSError: no such folder")
