"""Workers that die or are silent for too long: their explorations are repeated in an isolated process, with the same seed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from statecheck.campaign.pool import Gpu, WorkerHandle
from statecheck.campaign.record import CampaignRecord, CorpusRecord
from statecheck.campaign.summary import verdict
from statecheck.campaign.tasks import (
    CallBegan,
    Explore,
    Explored,
    Replay,
    Replayed,
    RunCanary,
    SearchEnded,
    Task,
)
from statecheck.util import limits
from tests.helpers.cases import a_case
from tests.helpers.faulty import EXACT
from tests.unit.campaign.pretended import Actor, Body, found_in, passes, pretended

pytestmark = pytest.mark.usefixtures("default_signals")


def code_of(record: CampaignRecord) -> int:
    return verdict(record).exit_code


# A silent worker.


@pytest.mark.parametrize(
    ("task", "time_limit"),
    [
        (Explore(EXACT, 1, 1), 30.0),
        # The limit of the subject's calls is none of the canary's.
        (RunCanary("canary"), 0.5),
    ],
)
def test_time_in_which_the_coordinator_or_the_worker_did_not_run_does_not_count(
    monkeypatch: pytest.MonkeyPatch, task: Task, time_limit: float
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    waited = 0.0
    waits = SimpleNamespace(look=lambda most: min(waited, most))
    process = SimpleNamespace(pid=1, core_waits=lambda: waits)
    pipe = SimpleNamespace(send=lambda task: None)
    worker = WorkerHandle(cast(Any, process), cast(Any, pipe), Gpu(""), ready=True)
    worker.assign(task)
    now += 600.0
    assert worker.overdue(time_limit) is None
    for _ in range(600):
        now += 0.5
        waited += 0.49
        assert worker.overdue(time_limit) is None
    for _ in range(60):
        now += 0.5
        lost = worker.overdue(time_limit)
    assert lost is not None
    assert (lost.why, lost.from_outside) == ("no answer within 30.2 s", False)


def test_a_worker_with_a_thread_that_waits_for_a_core_all_the_time_is_lost_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    process = SimpleNamespace(pid=1, core_waits=lambda: SimpleNamespace(look=lambda most: most))
    pipe = SimpleNamespace(send=lambda task: None)
    worker = WorkerHandle(cast(Any, process), cast(Any, pipe), Gpu(""), ready=True)
    worker.assign(Explore(EXACT, 1, 1))
    looks = 0
    while worker.overdue(1.0) is None and looks < 100:
        now, looks = now + 0.5, looks + 1
    assert 2 < looks < 100


def hangs(task: Explore, actor: Actor) -> None:
    """No answer, where the subject runs in the worker's process."""
    if not task.isolated:
        actor.hang()
    passes(task, actor)


def test_a_silent_exploration_is_repeated_in_an_isolated_process_with_its_seed(tmp_path: Path) -> None:
    def finds(task: Explore, actor: Actor) -> None:
        if task.isolated and not task.known:
            actor.say(found_in(task, faults=1))
        else:
            hangs(task, actor)

    record, given = pretended(tmp_path, finds, only=EXACT, budget=1.0, time_limit=0.1)
    assert [(task.isolated, task.seed) for task in given[:2]] == [
        (False, given[0].seed),
        (True, given[0].seed),
    ]
    assert (record.properties[0].status, code_of(record), len(record.buckets)) == ("FALSIFIED", 1, 1)


def test_a_hang_that_is_not_repeated_is_an_error_with_its_seed(tmp_path: Path) -> None:
    record, given = pretended(tmp_path, hangs, only=EXACT, budget=1.0, time_limit=0.1)
    (row,) = record.properties
    assert (row.status, code_of(record)) == ("ERROR", 2)
    assert row.detail == f"not again with this seed: no answer within 0.3 s (seed {given[0].seed})"


def test_a_fault_in_the_isolated_process_explains_the_hang(tmp_path: Path) -> None:
    """Such as one that is declared as known."""

    def known(task: Explore, actor: Actor) -> None:
        if task.isolated:
            actor.passes(task, task.max_examples, faults=1)
        else:
            actor.hang()

    record, _ = pretended(tmp_path, known, only=EXACT, budget=1.0, time_limit=0.1)
    assert (record.properties[0].status, code_of(record)) == ("passed", 0)


def test_a_hang_that_there_is_no_time_to_repeat_is_not_finished(tmp_path: Path) -> None:
    begun: list[Explore] = []

    def hangs_late(task: Explore, actor: Actor) -> None:
        begun.append(task)
        if len(begun) == 2:
            actor.hang()
        passes(task, actor)

    record, given = pretended(tmp_path, hangs_late, only=EXACT, budget=0.2, grace=0.1, time_limit=0.5)
    (row,) = record.properties
    assert (row.status, row.compared > 0, code_of(record)) == ("not finished", True, 2)
    assert row.detail == f"not repeated for want of time: no answer within 0.7 s (seed {given[1].seed})"
    result = verdict(record)
    assert (result.word, result.reasons) == ("INCOMPLETE", ("1 property: not finished.",))


def test_an_example_that_never_ends_though_its_calls_do_is_not_finished(tmp_path: Path) -> None:
    def never_ends(_: Explore, actor: Actor) -> None:
        while not actor.dismissed.wait(0.05):
            actor.say(CallBegan())

    record, given = pretended(tmp_path, never_ends, only=EXACT, budget=0.2, grace=0.1, time_limit=0.3)
    (row,) = record.properties
    assert (row.status, code_of(record)) == ("not finished", 2)
    assert row.detail == f"an example was still running when the time was up (seed {given[0].seed})"


def waits(task: Explore, actor: Actor) -> None:
    time.sleep(1.0)
    passes(task, actor)


def calls(task: Explore, actor: Actor) -> None:
    for _ in range(10):
        actor.say(CallBegan())
        time.sleep(0.1)
    passes(task, actor)


def reports(task: Explore, actor: Actor) -> None:
    actor.say(SearchEnded())
    waits(task, actor)


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (waits, {"time_limit": 20.0}),
        (calls, {"time_limit": 0.2}),
        (reports, {"time_limit": 0.2}),
        (waits, {"time_limit": 0.2, "isolated": True}),
    ],
    ids=["one call in its time", "many calls", "a report", "calls in an isolated process"],
)
def test_a_slow_exploration_is_waited_for(tmp_path: Path, body: Body, options: dict[str, Any]) -> None:
    record, given = pretended(tmp_path, body, only=EXACT, budget=0.2, grace=3.0, **options)
    assert (record.properties[0].status, record.warnings, code_of(record)) == ("passed", [], 0)
    assert record.examples == sum(task.max_examples for task in given)


def test_other_work_than_calls_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OTHER_WORK", 0.1)

    def hangs_in_its_report(task: Explore, actor: Actor) -> None:
        actor.say(SearchEnded())
        hangs(task, actor)

    record, given = pretended(tmp_path, hangs_in_its_report, only=EXACT, budget=1.0, time_limit=0.1)
    assert "a worker did not go on within 0.2 s" in record.warnings[0]
    assert given[1].isolated


# A worker that dies.


@pytest.mark.parametrize(
    ("code", "status", "exit_code"), [(0, "ERROR", 2), (-11, "ERROR", 2), (-9, "passed", 0)]
)
def test_a_death_that_is_not_repeated_is_an_error_unless_another_process_caused_it(
    tmp_path: Path, code: int, status: str, exit_code: int
) -> None:
    def dies(task: Explore, actor: Actor) -> None:
        if not task.isolated:
            actor.die(code)
        passes(task, actor)

    record, given = pretended(tmp_path, dies, only=EXACT, budget=1.0)
    assert (record.buckets, record.properties[0].status, code_of(record)) == ([], status, exit_code)
    assert record.warnings == [f"{EXACT}: a worker died with exit code {code} (seed {given[0].seed})"]


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


@pytest.mark.parametrize("end", [Actor.hang, Actor.die])
def test_a_replay_that_hangs_or_dies_is_repeated_in_an_isolated_process(
    tmp_path: Path, end: Callable[[Actor], None]
) -> None:
    case = a_case(property_id=EXACT, subject="impl")
    path = case.save(tmp_path / "corpus" / "one.json")

    def replay(task: Replay, actor: Actor) -> None:
        if not task.isolated:
            end(actor)
        actor.say(Replayed(CorpusRecord(path.name, "FAILED", "it ends"), case.to_data()))

    record, _ = pretended(tmp_path, passes, only=EXACT, replay=replay, budget=2.0, time_limit=0.2)
    assert [(replay.file, replay.verdict) for replay in record.corpus] == [(path.name, "FAILED")]
    assert code_of(record) == 1


def test_a_worker_that_is_never_ready_is_replaced_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[Actor] = []

    def never_ready(actor: Actor, *_: object) -> None:
        spawned.append(actor)
        actor.die(3)

    monkeypatch.setattr(Actor, "say", never_ready)
    record, given = pretended(tmp_path, passes, only=EXACT, budget=300.0)
    assert (given, len(spawned), code_of(record)) == ([], 3, 2)
    assert record.warnings == [
        "a worker died with exit code 3 before it was ready",
        "the canary was not run: the campaign ended before its turn",
    ]
    assert record.seconds < 300.0


# Exceptions of the harness.


def fails(times: int) -> Callable[[Explore, Actor], None]:
    """Ends so many explorations in an unexpected exception."""
    begun: list[Explore] = []

    def body(task: Explore, actor: Actor) -> None:
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
    (warning,) = record.warnings
    assert warning.endswith("OSError: no such folder")
