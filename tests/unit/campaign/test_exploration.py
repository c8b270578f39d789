"""Explorations, in a worker of this process: what they count, find, keep and tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from statecheck.campaign import worker as worker_module
from statecheck.campaign.tasks import (
    CallBegan,
    ExampleFailed,
    ExamplesRun,
    Explore,
    Explored,
    Found,
    SearchEnded,
    Setting,
)
from statecheck.campaign.worker import Exploration, Worker
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.case import CHANCE
from statecheck.case.findings import Access, OverflowedOffset, RaceBetweenPrograms
from statecheck.case.values import Raised, call
from statecheck.diagnose import diagnosis
from statecheck.diagnose.diagnosis import Confirmation
from statecheck.diagnose.replay import ends_earlier
from statecheck.execution import profiles
from statecheck.execution.example import Example, ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.kernels.launch_counts import EXECUTED, How
from statecheck.subject import KnownDefectMatcher
from statecheck.subject.known import Condition
from statecheck.subject.profile import DOCUMENTS
from statecheck.workers.port import NoWorkerError
from subjects import KnownDeviation, Symptom
from tests.helpers.cases import Pipe, a_case, a_property, toy
from tests.helpers.modules import module

NAME = "toys/divide"
TOY = """
import os
import sys
from dataclasses import replace

from subjects import Condition, KnownDeviation, Subject, Symptom


def divide(x, y):
    return x + 1 if x >= 50 else x


def cdiv(x, y):
    while x >= 20 and y == 1:
        pass
    if x >= 20 and y == 2:
        os._exit(9)
    return -(-x // y)


WRONG = (Symptom("value", "divide", "result"), Symptom("value", "divide", ("hundreds", "new ones", "small")))
RACES = Symptom("race", "divide", "the call", "RaceBetweenPrograms")
OVERFLOWS = Symptom("memory", "divide", "the call", "OverflowedOffset")


def _within(low, high):
    held = Condition(lambda case, _: low <= case.calls[-1].named["x"] < high)
    return tuple(replace(one, condition=held) for one in WRONG)


SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (
        KnownDeviation("toys/divide", "bug 1", _within(50, 100), id="fifties"),
        KnownDeviation("toys/divide", "bug 2", _within(100, 200), id="hundreds", title="From a hundred on"),
        KnownDeviation("toys/divide", "bug 3", RACES, id="race"),
        KnownDeviation("toys/divide", "bug 4", OVERFLOWS, id="overflow"),
    ),
)
"""
"""Wrong from 50 on: known up to 200, and new beyond. What the sanitizer finds is known too."""


def divides_by_one(trial: Example, x: int) -> None:
    trial.agrees(call("divide", x=x, y=1))


@pytest.fixture
def make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: ExecutionContext
) -> Iterator[Callable[..., Worker]]:
    """Makes a worker in this process, whose one property is `body` on the toy."""
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path / "hypothesis"))
    monkeypatch.setattr("torch.set_num_threads", lambda many: None)

    def made(
        body: Callable[..., None] = divides_by_one, *, most: int = 10_000, least: int = 0, **setting: Any
    ) -> Worker:
        # Of the run's device: this process's kernels are interpreted or compiled, once and for all.
        fields: dict[str, Any] = {
            "device": trial.port.device,
            "reports": str(tmp_path / "reports"),
            "kept": str(tmp_path / "kept"),
            "isolated": False,
            "time_limit": 0.3,
        }
        worker = Worker(
            Setting("", "toy_explored", **fields | setting),
            Pipe(),  # type: ignore[arg-type]
        )
        workers.append(worker)
        tested = a_property(body, strategies={"x": st.integers(least, most)})
        worker.properties = {tested.id: tested}
        return worker

    workers: list[Worker] = []
    with module(tmp_path, "toy_explored", TOY):
        yield made
    for worker in workers:
        worker.close()
    profiles.load()


Make = Callable[..., Worker]


def said(worker: Worker) -> list[Any]:
    pipe = worker.events._pipe
    assert isinstance(pipe, Pipe)
    return pipe.sent


def explored(worker: Worker, task: Explore | None = None, **changes: Any) -> Explored:
    worker.run(replace(task or Explore(NAME, 1, 200), **changes))
    end = said(worker)[-1]
    assert isinstance(end, Explored)
    return end


def first(ended: Explored) -> Found:
    return ended.found[0]


def x_of(found: Found) -> Any:
    return Case.from_data(found.case).calls[0].named["x"]


def text_of(report: str) -> str:
    return (Path(report) / "report.md").read_text(encoding="utf-8")


def kept_in(folder: Path) -> set[str]:
    """Buckets in the corpus."""
    return {bucket_of(Case.load(path)).id for path in (folder / "kept").glob("*.json")}


def in_hand(worker: Worker) -> list[Path]:
    return sorted(worker.pending.glob("toys-divide.*.json"))


# What it counts.


def test_examples_are_counted_once_in_progress_and_end_together(make: Make, monkeypatch: Any) -> None:
    monkeypatch.setattr(worker_module, "_PROGRESS_SECONDS", 0.0)

    def half(trial: Example, x: int) -> None:
        if x % 2:
            trial.agrees(call("divide", x=x, y=1))

    worker = make(half, most=40)
    end = explored(worker, max_examples=30)
    progress = [message for message in said(worker) if isinstance(message, ExamplesRun)]
    assert len(progress) > 5
    assert sum(event.examples for event in progress) + end.counts.examples == 30
    compared = sum(event.compared for event in progress) + end.counts.compared
    assert 0 < compared < 30


def test_launches_before_a_task_are_reported_with_the_task(make: Make, monkeypatch: Any) -> None:
    first, second = (How("copy", EXECUTED, "", f"copy.py:{line}") for line in (3, 5))
    waiting = [Counter({first: 1}), Counter({second: 2})]
    monkeypatch.setattr(Worker, "take_launches", lambda worker: waiting.pop(0) if waiting else Counter())
    end = explored(make(most=9), max_examples=5)
    # What was launched before the task is reported too, or else it would be lost.
    assert end.launched == {first: 1, second: 2}


def test_no_example_is_drawn_after_enough_compared_ones(make: Make) -> None:
    drawn, worker = _drawing(make())
    assert explored(worker, enough=3).counts.compared == len(drawn) == 3


def test_a_search_without_the_simplest_example_begins_with_a_random_one(make: Make) -> None:
    seen: list[int] = []

    def body(trial: Example, x: int) -> None:
        seen.append(x)
        divides_by_one(trial, x)

    drawn, worker = _drawing(make(body))
    ended = [explored(worker, seed=seed, max_examples=9, enough=1, simplest=False) for seed in range(20)]
    assert all((end.status, end.counts.examples, end.counts.compared) == ("passed", 1, 1) for end in ended)
    # The simplest example is not drawn first. It can be drawn by chance.
    assert (drawn, len(seen)) == (seen, 20)
    assert seen.count(0) < 10


def _drawing(worker: Worker) -> tuple[list[int], Worker]:
    """The values that the worker draws from now on, and the worker."""
    drawn: list[int] = []

    def noted(x: int) -> int:
        drawn.append(x)
        return x

    strategies = {"x": st.integers(0, 9).map(noted)}
    worker.properties = {NAME: replace(worker.properties[NAME], strategies=strategies)}
    return drawn, worker


def test_a_search_without_the_simplest_example_shrinks_to_the_simplest_example(make: Make) -> None:
    worker = make(least=200)
    for seed in range(5):
        found = first(explored(worker, seed=seed, max_examples=9, enough=1, simplest=False))
        assert (x_of(found), found.shrunk) == (200, True)


def test_a_failure_is_shrunk_though_the_patience_of_its_exploration_is_over(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _no_patience_after(monkeypatch, lambda x: x >= 200)
    assert x_of(first(explored(make(found)))) == 200


def test_a_failure_is_shrunk_until_the_deadline_of_its_exploration(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def fails(x: int) -> bool:
        failed.extend([x] if x >= 200 else [])
        return x >= 200

    found = first(explored(make(_no_patience_after(monkeypatch, fails, deadline=True))))
    assert [x_of(found)] == failed
    assert "The time was up while smaller inputs were tried: there may be one" in text_of(found.report)


@pytest.mark.parametrize(
    ("task", "note"),
    [
        ({"shrinking": 0.0}, "The time was up while smaller inputs were tried: there may be one"),
        ({"as_found": True}, "this input was neither shrunk nor run again"),
    ],
    ids=str,
)
def test_a_failing_input_is_shrunk_as_far_as_the_task_says(
    make: Make, monkeypatch: pytest.MonkeyPatch, task: dict[str, Any], note: str
) -> None:
    tried: list[int] = []

    def fails(trial: Example, x: int) -> None:
        tried.append(x)
        divides_by_one(trial, x)

    if "as_found" in task:
        monkeypatch.setattr("statecheck.diagnose.diagnosis.confirm", lambda *_: pytest.fail("run again"))
    found = first(explored(make(fails), **task))
    assert (x_of(found), found.shrunk) == (tried[-1], False)
    assert note in text_of(found.report)


@pytest.mark.parametrize("deadline", [False, True], ids=["patience", "deadline"])
def test_an_example_that_runs_when_the_time_is_up_is_run_to_its_end(
    make: Make, monkeypatch: pytest.MonkeyPatch, deadline: bool
) -> None:
    seen: list[int] = []
    begins = _no_patience_after(monkeypatch, lambda x: True, deadline=deadline)

    def body(trial: Example, x: int) -> None:
        begins(trial, x)
        divides_by_one(trial, x)
        seen.append(x)

    end = explored(make(body, most=9))
    assert (end.status, end.late, len(seen), end.counts.compared) == ("passed", True, 1, 1)


def _no_patience_after(
    monkeypatch: pytest.MonkeyPatch, is_it: Callable[[int], bool], *, deadline: bool = False
) -> Callable[..., None]:
    """A body whose exploration has had its time once there was such an input."""
    running: list[Exploration] = []
    run = Exploration.run

    def noted(exploration: Exploration) -> Explored:
        running.append(exploration)
        return run(exploration)

    monkeypatch.setattr(Exploration, "run", noted)

    def body(trial: Example, x: int) -> None:
        try:
            divides_by_one(trial, x)
        finally:
            if is_it(x):
                running[-1]._until = 0.0
                running[-1]._search_deadline = 0.0 if deadline else running[-1]._search_deadline

    return body


# What it finds.


def test_a_failure_is_shrunk_reported_and_kept(make: Make, tmp_path: Path) -> None:
    worker = make()
    end = explored(worker, seed=123)
    found = first(end)
    case = Case.load(Path(found.report) / "case.json")
    assert (end.status, end.detail, case.steps) == ("falsified", case.message, (call("divide", x=200, y=1),))
    assert (case.seed, found.shrunk, found.note) == (123, True, "Repeated in 3 of 3 fresh workers.")
    assert kept_in(tmp_path) == {bucket_of(case).id} == {found.buckets[0]}
    assert in_hand(worker) == []
    assert "Known defect" not in text_of(found.report)


def test_a_failing_input_is_on_disk_before_it_is_shrunk_further(make: Make) -> None:
    latest: list[int] = []

    def body(trial: Example, x: int) -> None:
        if latest:
            (path,) = in_hand(worker)
            assert Case.load(path).calls[0].named["x"] == min(latest)
        if x >= 200:
            latest.append(x)
        divides_by_one(trial, x)

    worker = make(body)
    assert explored(worker).status == "falsified"
    # Every input after the first has looked for the one before it.
    assert len(latest) >= 2


def test_an_input_is_pending_while_it_is_diagnosed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Case] = []

    def look(*_: object) -> Confirmation:
        (pending,) = in_hand(worker)
        seen.append(Case.load(pending))
        return Confirmation(2, 3, ("as before", "", "as before"))

    monkeypatch.setattr(diagnosis, "confirm", look)
    worker = make(isolated=True, as_new=True)
    found = first(explored(worker))
    assert seen[0].steps == (call("divide", x=50, y=1),)
    assert Case.load(Path(found.report) / "case.json").depends_on == CHANCE
    assert "**did not repeat in 1 of 3**" in text_of(found.report)
    assert in_hand(worker) == []


def test_a_bucket_that_was_met_is_gone_past_and_counted(make: Make) -> None:
    met = first(explored(make(as_new=True))).buckets[0]
    end = explored(make(as_new=True), known=frozenset({met}))
    assert (end.status, end.found) == ("passed", ())
    assert end.failing[met] > 5


def test_the_output_of_a_property_stays_out_of_the_display(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    explored(make(lambda trial, x: print("noise")))
    assert capsys.readouterr().out == ""


# Failures of several kinds.


def fails_by(kinds: int) -> Callable[..., None]:
    """A body that fails in so many ways, and in most of them while it is shrunk."""
    least = 7 * 1000 + 3

    def body(trial: Example, x: int) -> None:
        trial.run(call("divide", x=min(x, 9), y=1))
        trial.holds(x < least, f"x = {x}", place=f"kind {'abcdefghijklmnopqrstuvwxyz'[x % kinds]}")

    return body


def test_failures_of_several_kinds_all_end_in_the_corpus(make: Make, tmp_path: Path) -> None:
    end = explored(make(fails_by(3)))
    own, *others = end.found
    assert others
    assert own.shrunk
    assert {(found.shrunk, found.note) for found in others} == {(False, worker_module._NOT_SHRUNK)}
    assert kept_in(tmp_path) == {found.buckets[0] for found in end.found} == set(end.failing)
    assert all(Path(found.corpus).is_file() for found in end.found)


def test_of_very_many_kinds_of_failures_some_are_kept(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_MOST_BESIDE", 2)
    end = explored(make(fails_by(26)))
    assert len(end.failing) > 4
    # The smallest may have been met when there was no room any more.
    assert len(kept_in(tmp_path)) == len(end.found) in {3, 4}
    assert any(f"{NAME}: fails in more than 2 ways at once" in warning for warning in end.warnings)


# Errors of the harness.


def test_an_error_of_a_property_leaves_its_input(make: Make, tmp_path: Path) -> None:
    def body(trial: Example, x: int) -> None:
        trial.run(call("divide", x=4, y=1))
        raise IndexError(x)

    end = explored(make(body))
    assert (end.status, end.found) == ("error", ())
    assert "the property has to be repaired" in end.detail
    (path,) = (tmp_path / "reports" / "errors").glob("*.json")
    assert [step.function for step in Case.load(path).calls] == ["divide"]


def test_an_error_while_shrinking_keeps_the_case_in_hand(make: Make, tmp_path: Path) -> None:
    failed: list[int] = []

    def body(trial: Example, x: int) -> None:
        if failed and x < failed[0]:
            raise RecursionError("too deep")
        if x >= 200:
            failed.append(x)
        divides_by_one(trial, x)

    end = explored(make(body))
    found = first(end)
    assert (end.status, x_of(found)) == ("falsified", failed[0])
    assert "An error ended the search for a smaller input: " in text_of(found.report)
    assert kept_in(tmp_path) == {found.buckets[0]}
    assert any("an error ended the search for a smaller input" in warning for warning in end.warnings)


def test_a_failure_that_does_not_repeat_is_kept_and_reported_as_such(make: Make, tmp_path: Path) -> None:
    shown: list[int] = []

    def body(trial: Example, x: int) -> None:
        shown.append(x)
        divides_by_one(trial, x if len(shown) == 20 else 1)

    end = explored(make(body, least=200, most=300))
    assert end.status == "falsified"
    assert "did not fail when it was run again" in text_of(first(end).report)
    assert kept_in(tmp_path) == {first(end).buckets[0]}


def test_a_failure_counts_though_its_report_cannot_be_written(make: Make, tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("in place of the folder")
    end = explored(make())
    assert (end.status, first(end).report) == ("falsified", "")
    assert kept_in(tmp_path) == {first(end).buckets[0]}
    assert [warning for warning in end.warnings if "could not be written" in warning]


# Known defects.


def test_examples_that_show_each_known_defect_are_counted(make: Make) -> None:
    seen: list[int] = []

    def body(trial: Example, x: int) -> None:
        seen.append(x)
        divides_by_one(trial, x)

    end = explored(make(body, most=199))
    fifties, hundreds = sum(50 <= x < 100 for x in seen), sum(x >= 100 for x in seen)
    assert (end.status, end.known) == ("passed", {"fifties": fifties, "hundreds": hundreds})
    assert min(fifties, hundreds) > 0


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("sanitized", [True, False])
def test_a_task_says_whether_the_sanitizer_watches_more_than_bounds(make: Make, sanitized: bool) -> None:
    seen: set[bool] = set()

    def body(trial: Example, **_: int) -> None:
        assert isinstance(trial.context.port, InProcess)
        assert trial.context.port.watched is not None
        seen.add(trial.context.port.watched.bounds_only)

    explored(make(body), max_examples=5, sanitized=sanitized)
    assert seen == {not sanitized}


STORED = Access("store", (0, 0, 0), "k", "", None, 0, 4, "kernels.py:1", "kernels.py:1", 1)


def racing(*_: int, **__: int) -> int:
    raise RaceBetweenPrograms("programs race", STORED)


def overflowing(*_: int, **__: int) -> int:
    raise OverflowedOffset("an offset has more than 32 bits", STORED)


@pytest.mark.parametrize(("divide", "hides"), [(racing, True), (overflowing, False)])
def test_a_known_finding_hides_what_is_behind_it_unless_its_access_goes_elsewhere(
    divide: Callable[..., int], hides: bool, make: Make
) -> None:
    worker = make(most=99)
    assert not explored(worker).hidden
    worker.watched = InProcess(toy(divide=divide), "cpu")
    assert explored(worker).hidden == hides


def test_a_finding_without_the_sanitizer_names_the_known_defect_that_hid_it(make: Make) -> None:
    worker = make(lambda trial, x: trial.holds(trial.run(call("divide", x=min(x, 9), y=1)) is None, "no"))
    worker.watched = InProcess(toy(divide=racing), "cpu")
    found = first(explored(worker, max_examples=5, sanitized=False))
    assert "ends earlier, with the known defect race, bug 3" in text_of(found.report)


def test_a_case_that_the_sanitizer_ends_has_its_finding() -> None:
    case = a_case(steps=(call("divide", x=5, y=2), call("divide", x=6, y=2)))
    ended = ends_earlier(case, InProcess(toy(divide=racing), "cpu"))
    assert ended is not None
    assert ended.actual == (
        Raised("RaceBetweenPrograms", "programs race", kind="race", access=STORED.fields),
    )
    assert ended.calls == (call("divide", x=5, y=2),)
    assert ends_earlier(a_case(), InProcess(toy(divide=lambda x, y: 2), "cpu")) is None


# What it tells while it runs.


@pytest.mark.parametrize("isolated", [False, True])
def test_each_call_is_told_before_it_begins(
    make: Make, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    monkeypatch.setattr(worker_module, "BEAT_SECONDS", -1.0)
    worker = make(most=9)
    explored(worker, max_examples=3, isolated=isolated)
    assert sum(isinstance(event, CallBegan) for event in said(worker)) == 3


def test_the_end_of_the_search_is_told_before_the_report(make: Make) -> None:
    worker = make()
    explored(worker)
    kinds = [type(event) for event in said(worker)]
    assert kinds.index(ExampleFailed) < kinds.index(SearchEnded) < kinds.index(Explored)


@pytest.mark.slow
def test_faults_of_isolated_calls_are_counted(make: Make) -> None:
    ends = make(lambda trial, x: trial.agrees(call("cdiv", x=x, y=2)), least=20, most=99)
    assert (explored(ends, max_examples=3, isolated=True).faults > 0, explored(make(most=9)).faults) == (
        True,
        0,
    )


@pytest.mark.parametrize(("isolated", "status"), [(True, "passed"), (False, "error")])
def test_an_example_for_which_no_worker_gets_ready_is_no_finding(
    make: Make, monkeypatch: pytest.MonkeyPatch, isolated: bool, status: str
) -> None:
    worker = make(isolated=isolated)
    why = "no worker gets ready: it was killed"

    def no_worker(**_: object) -> None:
        raise NoWorkerError(why)

    monkeypatch.setattr(worker.isolated_port()._workers, "worker", no_worker)
    end = explored(worker, isolated=True)
    # Where the campaign runs all of the subject in such processes, its device is of no use any more.
    assert (end.status, end.gone or end.detail, end.found) == (status, why, ())
    assert bool(end.gone) is isolated


def test_a_case_is_in_the_corpus_where_a_condition_of_a_known_defect_raises(make: Make) -> None:
    worker = make()
    raising = Condition(lambda case, _: case.calls[0].named["missing"])
    known = KnownDeviation(NAME, "bug", Symptom("value", "divide", "result", condition=raising), id="raises")
    worker.known_defects = KnownDefectMatcher((known,), DOCUMENTS)
    end = explored(worker)
    assert (end.status, x_of(first(end)), Path(first(end).corpus).is_file()) == ("falsified", 50, True)
    message = "a condition of known defect raises raised KeyError: 'missing': the case counts as new"
    assert end.warnings == (message,)
