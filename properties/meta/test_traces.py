"""The command `traces`: so many lives of requests, what it says of them, and how it ends."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
from rich.console import Console

from properties.engine.marks import MARKS
from properties.harness import cli, cli_traces
from properties.harness import traces as traces_module
from properties.harness.case import Case
from properties.harness.execution.example import Tally
from properties.harness.registry import load_properties
from properties.harness.traces import CHUNK, Result, Traces, heading, machines
from properties.harness.variants import broken_subject
from properties.harness.worker import Finished, Setting, Task
from properties.meta.lifecycle_breakages import LIFECYCLE

pytestmark = pytest.mark.usefixtures("interpreted")

WITHOUT_COPIES = "requests_without_copies_live_by_the_states_of_exactly_their_tokens"
SETTING = Setting("impl", "cpu", "reports")


# From the command line.


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str
    folder: Path

    @property
    def table(self) -> dict[str, str]:
        """What stands beside each moment."""
        cells = (line.split("│") for line in self.output.splitlines() if "│" in line)
        return {moment.strip(): share.strip() for moment, share in cells}

    @property
    def told(self) -> str:
        """All but how long it took."""
        return re.sub(r", \d+ s; seed", "; seed", self.output)


def traces(folder: Path, *options: str) -> Ended:
    """Run the command in this process, with a worker of its own."""
    told = io.StringIO()
    command = ["traces", "--device", "cpu", "--workers", "1", "--seed", "7", "--only", "without_copies"]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        code = cli.main([*command, "--reports", str(folder / "reports"), *options])
    return Ended(code, told.getvalue(), folder)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return traces(tmp_path_factory.mktemp("clean"), "--count", "5", "--steps", "12")


@pytest.fixture(scope="module")
def falsified(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Traces of an implementation of which a line is broken."""
    folder = tmp_path_factory.mktemp("falsified")
    with broken_subject(LIFECYCLE[1].variant, folder) as subject:
        return traces(folder, "--count", "10", "--steps", "12", "--subject", subject.name)


def test_traces_in_which_nothing_is_wrong_exit_0(clean: Ended) -> None:
    assert clean.code == 0, clean.output
    assert re.search(r"^no violation in \d+ traces, \d+ steps, \d+ s; seed 7$", clean.output, re.MULTILINE)
    assert not list(clean.folder.glob("reports/*/*"))


def test_a_run_says_how_it_was_begun(clean: Ended) -> None:
    first = "subject impl, device cpu, 5 traces of up to 12 rules, 1 workers, seed 7\n"
    assert clean.output.startswith(first)
    assert "\x1b" not in clean.output


def test_the_table_has_a_share_for_every_moment(clean: Ended) -> None:
    moments = {moment: share for moment, share in clean.table.items() if moment in MARKS}
    assert list(moments) == list(MARKS)
    assert all(re.fullmatch(r"\d+\.\d%", share) for share in moments.values())
    assert len(set(moments.values())) > 1


def test_the_table_s_columns_are_named_after_the_machines(clean: Ended) -> None:
    assert re.search(r"┃ +no copies\n", clean.output)
    assert re.search(r"┃ +\d+ traces\n", clean.output)


def test_the_same_seed_leads_to_the_same_moments(clean: Ended, tmp_path: Path) -> None:
    again = traces(tmp_path, "--count", "5", "--steps", "12")
    assert again.told == clean.told


def test_traces_in_which_something_is_wrong_exit_1(falsified: Ended) -> None:
    assert falsified.code == 1, falsified.output
    assert re.search(r"^1 violations? in \d+ traces, ", falsified.output, re.MULTILINE)


def report(ended: Ended) -> Path:
    """Where the one report is, as the command says."""
    (found,) = re.findall(r"^  report: (.*)/report\.md$", ended.output, re.MULTILINE)
    return Path(found)


def test_what_is_wrong_is_told_with_its_report(falsified: Ended) -> None:
    message = Case.load(report(falsified) / "case.json").message
    assert f"falsified: {WITHOUT_COPIES}\n  {message}\n  report: " in falsified.output


def test_a_report_has_a_picture_and_a_page(falsified: Ended) -> None:
    names = {"case.json", "report.md", "report.html", "repro.py", "timeline.svg"}
    assert {path.name for path in report(falsified).iterdir()} == names
    assert "<svg" in (report(falsified) / "report.html").read_text(encoding="utf-8")


def test_a_report_is_about_a_life_made_small(falsified: Ended) -> None:
    timeline = Case.load(report(falsified) / "case.json").timeline
    assert timeline is not None
    assert timeline.finding is not None
    assert {row.request for row in timeline.rows} == {"r0"}
    assert timeline.moments[-1].title == "step 2, before the forward: r0 computes 1"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--count", "0"], "count = 0, but should be >= 1 [traces]"),
        (["--steps", "0"], "steps = 0, but should be >= 1 [traces]"),
        (["--workers", "-1"], "workers = -1, but should be >= 1 [traces]"),
        (["--only", "chunks"], "only = 'chunks', but should match a property; there are requests_in_rows"),
        (["--only", "(rows"], "only = '(rows', but should be an expression"),
        (["--device", "gpu"], "device = 'gpu', but should be auto, cpu or cuda"),
        (["--subject", "no_such_module"], "no_such_module"),
    ],
)
def test_traces_that_cannot_be_run_as_given_are_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    ended = traces(tmp_path, *options)
    assert (ended.code, ended.output) == (3, "")
    assert said in capsys.readouterr().err


def test_options_that_cannot_be_read_are_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["traces", "--count", "many"])
    assert ended.value.code == 3
    assert "error: argument --count" in capsys.readouterr().err


def test_a_subject_without_the_functions_is_told_so(tmp_path: Path) -> None:
    ended = traces(tmp_path, "--subject", "math")
    assert f"not applicable: {WITHOUT_COPIES}: math has no Mamba1AttentionMetadataBuilder" in ended.output
    assert "no violation in 0 traces, 0 steps" in ended.output


# How traces are shared, and put together.


def made(*names: str, count: int = 60, seed: int = 1) -> Traces:
    return Traces(SETTING, names, count, steps=5, workers=1, seed=seed)


def tasks(running: Traces) -> list[Task]:
    return list(running._tasks())


@pytest.mark.parametrize(
    ("names", "count", "shares"),
    [("ab", 60, [30, 30]), ("abc", 100, [34, 33, 33]), ("ab", 1, [1, 0]), ("a", CHUNK, [CHUNK])],
)
def test_properties_get_an_equal_share(names: str, count: int, shares: list[int]) -> None:
    given = Counter[str]()
    for task in tasks(made(*names, count=count)):
        assert 0 < task.max_examples <= CHUNK
        given[task.property] += task.max_examples
    assert [given[name] for name in names] == shares


def test_every_task_has_a_seed_of_its_own_that_derives_from_the_run_s() -> None:
    first, again, other = (tasks(made("a", "b", count=500, seed=seed)) for seed in (1, 1, 5000))
    assert first == again
    assert len({task.seed for task in first}) == len(first) == 500 // CHUNK
    assert not {task.seed for task in first} & {task.seed for task in other}


def test_the_machines_are_the_properties_with_a_heading() -> None:
    tested = load_properties()
    found = [heading(tested[name]) for name in machines(tested)]
    assert found == ["rows", "slots", "no copies", "greedy rows", "greedy slots"]


def finished(status: str, detail: str = "") -> Finished:
    return Finished("a", status, 0.1, detail, "reports/x")


def lived(lives: int, steps: int, **marks: int) -> Tally:
    return Tally(lives, steps, Counter(marks))


def test_the_same_failure_is_told_once() -> None:
    result = Result()
    for end in (finished("passed"), *(finished("falsified", "x"),) * 2, finished("falsified", "y")):
        result.add(end, lived(2, 5, finished=1))
    assert list(result.failures) == ["x", "y"]
    assert result.lives == lived(8, 20, finished=4)


def test_shares_are_those_of_each_property_s_own_traces() -> None:
    running = made("a", "b", "c")
    running.results = {
        name: Result(lived(lives, 0, finished=2)) for name, lives in zip("ab", (4, 8), strict=True)
    }
    running.results["c"] = Result()
    assert running.shares()["finished"] == [0.5, 0.25, 0.0]
    assert running.shares()["preemption"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("ends", "interrupted", "code"),
    [
        ([finished("passed")], False, 0),
        ([finished("falsified")], False, 1),
        ([finished("error"), finished("falsified", "x")], True, 1),
        ([finished("error")], False, 2),
        ([finished("passed")], True, 2),
    ],
)
def test_the_exit_code_is_that_of_the_worst_end(ends: list[Finished], interrupted: bool, code: int) -> None:
    running, result = made("a"), Result()
    for end in ends:
        result.add(end, Tally())
    running.results, running.interrupted = {"a": result}, interrupted
    assert cli_traces._exit_code(running) == code


@dataclass
class Pool:
    """In place of processes: each task has passed, in as many lives as it was allowed."""

    given: tuple[Any, ...] = ()
    waits: list[bool] = field(default_factory=list)

    def __call__(self, *given: Any) -> Self:
        self.given = given
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, _: Callable[..., Any], task: Task) -> Future[tuple[Finished, Tally]]:
        future: Future[tuple[Finished, Tally]] = Future()
        future.set_result((finished("passed"), lived(task.max_examples, 0)))
        return future

    def shutdown(self, *, cancel_futures: bool) -> None:
        self.waits.append(cancel_futures)


class Interrupted:
    """In place of waiting: the first task ends, and then somebody presses Ctrl-C."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, futures: set[Future[Any]], **_: Any) -> tuple[set[Future[Any]], set[Future[Any]]]:
        self.asked += 1
        if self.asked > 1:
            raise KeyboardInterrupt
        first = next(future for future in futures if future.result()[1].lives)
        return {first}, futures - {first}


def test_an_interrupted_run_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, running = Pool(), made("a", "b", count=100)
    monkeypatch.setattr(traces_module, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(traces_module, "wait", Interrupted())
    running.run(Console(file=io.StringIO()))
    assert (running.interrupted, pool.waits) == (True, [True])
    assert sum(running.results[name].lives.lives for name in "ab") == CHUNK
    assert running.conclusion().startswith(f"interrupted; no violation in {CHUNK} traces, ")


def test_a_run_that_has_no_time_left_takes_no_further_task(monkeypatch: pytest.MonkeyPatch) -> None:
    running = made("a", "b", count=100)
    running.budget = 0.0
    waiting: Future[Any] = Future()
    monkeypatch.setattr(
        traces_module, "wait", lambda futures, **_: (set(), {one for one in futures if not one.cancelled()})
    )
    running._collect({waiting: Task("a", 1, 1)}, -1.0, lambda: None)
    assert (running.interrupted, waiting.cancelled(), running.lives) == (True, True, 0)


def test_what_others_found_stays_when_a_process_dies() -> None:
    running, dead = made("a", count=10), Future[Any]()
    running.results = {"a": Result()}
    dead.set_exception(BrokenExecutor("terminated abruptly"))
    running._add(Task("a", 1, 1), dead)
    assert [failure.detail for failure in running.failures] == ["a process died: terminated abruptly"]


def test_a_run_has_as_many_workers_and_steps_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, running = Pool(), made("a", count=100)
    monkeypatch.setattr(traces_module, "ProcessPoolExecutor", pool)
    running.run(Console(file=io.StringIO()))
    assert running.results["a"].lives.lives == 100
    assert (pool.given[0], pool.given[3]) == (1, (SETTING, 5))
