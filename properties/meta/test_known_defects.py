"""Campaigns on subjects with known defects: what is counted, reported, and told at the end."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from properties.harness import campaign as campaign_module
from properties.harness import cli, profiles
from properties.harness.campaign import Campaign
from properties.harness.campaign_rows import Row, Status
from properties.harness.campaign_told import grouped, tell_failures, tell_known
from properties.harness.case import Case
from properties.harness.display import Display
from properties.harness.execution.example import Bench, Trial
from properties.harness.known_defects import KnownDefects, Lift, names_of, pending_name
from properties.harness.known_earlier import ends_earlier
from properties.harness.known_worker import CampaignWorker
from properties.harness.nightly.engine import Explored
from properties.harness.nightly.ledger import Ledger
from properties.harness.port import InProcess
from properties.harness.values import Raised, call
from properties.harness.worker import Finished, Setting, Task, pending_path
from properties.meta import known_examples
from properties.meta.broken import EXACT, ROUNDS_UP, UNKNOWN, Pipe, a_case, a_property, module, toy
from properties.meta.known_examples import LARGE
from properties.subjects import KnownDeviation, Symptom

ELEMENTWISE = "ceiling_division_of_a_tensor_is_elementwise_and_keeps_its_dtype"


@pytest.fixture(autouse=True)
def _storage_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path / "hypothesis"))


@pytest.fixture
def _profile_put_back() -> Iterator[None]:
    yield
    profiles.load()


WRONG = Symptom("value", "divide", "result")


def declared(*ids: str) -> list[KnownDeviation]:
    return [replace(LARGE, id=one) for one in ids]


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (("a", "b"), ("a", "b")),
        (("a", "a"), ("a", "a-2")),
        (("../a b",), ("_a_b",)),
        (("", "x"), ("known-1", "x")),
    ],
)
def test_every_known_defect_has_a_name_of_its_own_that_may_name_a_file(
    ids: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert names_of(declared(*ids)) == names


def test_a_defect_of_one_property_may_be_called_after_it() -> None:
    assert names_of([KnownDeviation("toys_divide", "bug", WRONG)]) == ("toys_divide",)


def row(name: str, examples: int, status: Status = Status.PASSED, **changes: Any) -> Row:
    return Row(name, status, examples, **changes)


def standing(*rows: Row, slow: tuple[str, ...] = ()) -> str:
    """What a campaign with such rows thinks of a defect that never showed."""
    defects = KnownDefects([LARGE], frozenset(slow))
    defects.conclude({one.property_name: one for one in rows})
    return defects.all["large"].standing


@pytest.mark.parametrize(
    ("rows", "slow", "expected"),
    [
        ([row("division_a", 200), row("ceiling_b", 200)], (), "no longer fails"),
        ([row("division_a", 200), row("ceiling_b", 199)], (), "not tried enough"),
        ([row("division_a", 200), row("ceiling_b", 20)], ("ceiling_b",), "no longer fails"),
        ([row("division_a", 200), row("ceiling_b", 0, Status.WAITING)], (), "not tried enough"),
        ([row("division_a", 200), row("ceiling_b", 0, Status.NOT_APPLICABLE)], (), "no longer fails"),
        ([row("division_a", 0, Status.NOT_APPLICABLE)], (), "not tried"),
        ([row("toys_divide", 500)], (), "not tried"),
        ([row("division_a", 0, Status.WAITING)], (), "not tried"),
    ],
    ids=str,
)
def test_a_defect_is_gone_only_once_each_of_its_properties_was_tried_enough(
    rows: list[Row], slow: tuple[str, ...], expected: str
) -> None:
    assert standing(*rows, slow=slow) == expected


def test_a_defect_of_any_property_is_not_gone_where_only_some_were_tried() -> None:
    anywhere = replace(LARGE, property=("division_*", "ceiling_*"))
    defects = KnownDefects([anywhere], selected=True)
    defects.conclude({"division_a": row("division_a", 500)})
    assert defects.all["large"].standing == "not tried enough"


def test_examples_outside_of_the_contract_do_not_count_as_tried() -> None:
    one = row("division_a", 300)
    one.outside.update(["too large"] * 101)
    assert standing(one) == "not tried enough"


def heard(defects: KnownDefects, name: str, seconds: float, **shown: int) -> None:
    defects.hear(Task(name, 5, 40), Finished(name, "passed", seconds, shown=shown))


def test_a_defect_counts_its_examples_by_property() -> None:
    defects = KnownDefects(declared("a", "b"))
    heard(defects, "x", 1.0, a=2, b=1)
    heard(defects, "y", 1.0, a=3)
    assert defects.all["a"].properties == {"x": 2, "y": 3}
    assert [one.examples for one in defects.all.values()] == [5, 1]


def test_a_defect_is_reported_from_where_it_shows_most_often_for_the_time() -> None:
    defects = KnownDefects(declared("a"))
    heard(defects, "slow", 9.0, a=10)
    heard(defects, "quick", 0.5, a=2)
    lift = defects.next_lift(60, 60, 1)
    assert lift is not None
    assert (lift.property, lift.seed, lift.max_examples, lift.known) == ("quick", 5, 40, "a")


def test_a_defect_is_reported_once() -> None:
    defects = KnownDefects(declared("a"))
    heard(defects, "x", 1.0, a=2)
    assert defects.next_lift(60, 10, 1) is not None
    heard(defects, "x", 1.0, a=2)
    assert defects.next_lift(60, 10, 1) is None


def test_reports_share_the_time_that_is_left() -> None:
    defects = KnownDefects(declared(*"abcd"))
    heard(defects, "x", 1.0, a=1, b=1, c=1, d=1)
    lift = defects.next_lift(60, 12.0, 2)
    assert lift is not None
    assert lift.seconds == 6.0


@pytest.mark.parametrize(
    ("shown", "workers", "seconds"), [("", 1, 0.0), ("a", 1, 15.0), ("ab", 2, 15.0), ("abcd", 1, 35.0)]
)
def test_reports_take_a_part_of_the_campaign_at_most(shown: str, workers: int, seconds: float) -> None:
    defects = KnownDefects(declared(*"abcd"))
    heard(defects, "x", 1.0, **dict.fromkeys(shown, 1))
    assert defects.reserve(100.0, workers) == seconds


TOY = """
import sys

from properties.subjects import KnownDeviation, Subject, Symptom

WRONG = Symptom("value", "divide", "result")
RACES = Symptom("race", "divide", "the call", "RaceBetweenPrograms")


def divide(x, y):
    return x + 1 if x >= 50 else x


def _within(low, high):
    return lambda case: low <= case.calls[-1].named["x"] < high


SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (
        KnownDeviation("toys_divide", "bug 1", WRONG, _within(50, 100), id="fifties"),
        KnownDeviation("toys_divide", "bug 2", WRONG, _within(100, 200), id="hundreds", title="From a hundred on"),
        KnownDeviation("toys_divide", "bug 3", RACES, id="race"),
    ),
)
"""
"""Wrong from 50 on: known up to 200, and new beyond. What the sanitizer finds is known too."""


def divides_by_one(trial: Trial, x: int) -> None:
    trial.agrees(call("divide", x=x, y=1))


@pytest.fixture
def make_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: Bench, _profile_put_back: None
) -> Iterator[Callable[..., CampaignWorker]]:
    """Makes a campaign's worker in this process, whose one property is `body` on the toy."""
    monkeypatch.setattr("torch.set_num_threads", lambda many: None)

    def make(
        body: Callable[..., None] = divides_by_one, *, most: int = 10_000, as_new: bool = False
    ) -> CampaignWorker:
        device = trial.port.device
        setting = Setting("toy_known", device, str(tmp_path / "reports"), isolated=False, as_new=as_new)
        made = CampaignWorker(setting, Pipe())  # type: ignore[arg-type]
        tested = a_property(body, strategies={"x": st.integers(0, most)})
        made.properties = {tested.name: tested}
        return made

    with module(tmp_path, "toy_known", TOY):
        yield make


def finished(made: CampaignWorker, task: Task | None = None) -> Finished:
    made.run(task or Task("toys_divide", 1, 200))
    end = made.pipe.sent[-1]  # type: ignore[attr-defined]
    assert isinstance(end, Finished)
    return end


def lift(known: str, many: int = 200, **changes: Any) -> Lift:
    return Lift("toys_divide", 1, many, known, **{"seconds": 60.0} | changes)


def x_of(ended: Finished) -> Any:
    return Case.load(Path(ended.report) / "case.json").calls[0].named["x"]


def report_of(folder: str) -> str:
    return (Path(folder) / "report.md").read_text(encoding="utf-8")


def test_a_worker_counts_the_examples_that_show_each_known_defect(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    seen: list[int] = []

    def body(trial: Trial, x: int) -> None:
        seen.append(x)
        divides_by_one(trial, x)

    end = finished(make_worker(body, most=199))
    fifties, hundreds = sum(50 <= x < 100 for x in seen), sum(x >= 100 for x in seen)
    assert (end.status, end.shown) == ("passed", {"fifties": fifties, "hundreds": hundreds})
    assert min(fifties, hundreds) > 0


def test_a_worker_counts_each_task_for_itself(make_worker: Callable[..., CampaignWorker]) -> None:
    made = make_worker(most=99)
    first = finished(made)
    made.properties["toys_divide"] = a_property(divides_by_one, strategies={"x": st.integers(0, 9)})
    assert (set(first.shown), finished(made).shown) == ({"fifties"}, {})


def test_a_failure_beside_known_ones_is_new(make_worker: Callable[..., CampaignWorker]) -> None:
    end = finished(make_worker())
    assert (end.status, x_of(end)) == ("falsified", 200)
    assert "Known defect" not in report_of(end.report)


def test_a_lifted_defect_is_shrunk_for_itself_alone(make_worker: Callable[..., CampaignWorker]) -> None:
    end = finished(make_worker(), lift("hundreds"))
    assert (end.status, x_of(end)) == ("falsified", 100)


def test_a_report_of_a_known_defect_says_so_in_a_folder_of_its_own(
    make_worker: Callable[..., CampaignWorker], tmp_path: Path
) -> None:
    end = finished(make_worker(), lift("hundreds"))
    assert Path(end.report).parent == tmp_path / "reports" / "known" / "hundreds"
    assert "**Known defect hundreds: From a hundred on, bug 2**" in report_of(end.report)


def test_a_defect_that_was_lifted_is_known_again_afterwards(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    made = make_worker(most=199)
    finished(made, lift("hundreds"))
    assert finished(made).status == "passed"


def test_an_input_that_its_seed_no_longer_draws_is_searched_anew(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    assert x_of(finished(make_worker(), lift("hundreds", many=1))) == 100


def test_a_report_whose_time_is_up_is_of_the_smallest_input_so_far(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    failing: list[int] = []

    def body(trial: Trial, x: int) -> None:
        if 100 <= x < 200:
            failing.append(x)
            made._until = 0.0
        divides_by_one(trial, x)

    made = make_worker(body)
    end = finished(made, lift("hundreds"))
    assert (end.status, len(failing)) == ("falsified", 1)
    assert x_of(end) == failing[0]
    assert "The time was up before this input was shrunk" in report_of(end.report)
    assert end.remark == "not shrunk to the end: no time was left"


def test_an_exploration_that_finds_nothing_ends_when_its_time_is_up(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    seen: list[int] = []

    def body(trial: Trial, x: int) -> None:
        seen.append(x)
        made._until = 0.0
        divides_by_one(trial, x)

    made = make_worker(body, most=9)
    assert (finished(made).status, len(seen)) == ("passed", 1)


def test_what_an_exploration_has_found_is_shrunk_though_its_time_is_up(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    def body(trial: Trial, x: int) -> None:
        if x >= 200:
            made._until = 0.0
        divides_by_one(trial, x)

    made = make_worker(body)
    assert x_of(finished(made)) == 200


def test_a_defect_that_does_not_show_in_time_is_told_without_a_report(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    end = finished(make_worker(), lift("hundreds", seconds=-1.0))
    assert (end.status, end.report) == ("passed", "")
    assert "did not show again" in end.detail


def test_the_first_example_of_a_known_defect_is_on_disk_until_there_is_a_report(
    make_worker: Callable[..., CampaignWorker], tmp_path: Path
) -> None:
    made, path = make_worker(most=99), pending_path(tmp_path / "reports", pending_name("fifties"))
    finished(made)
    assert 50 <= Case.load(path).calls[0].named["x"] < 100
    finished(made, lift("fifties"))
    assert not path.exists()


def test_as_new_nothing_is_known(make_worker: Callable[..., CampaignWorker]) -> None:
    end = finished(make_worker(as_new=True))
    assert (end.status, x_of(end), end.shown) == ("falsified", 50, {})


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("sanitized", [True, False])
def test_a_task_says_whether_the_sanitizer_watches(
    make_worker: Callable[..., CampaignWorker], sanitized: bool
) -> None:
    seen: set[bool] = set()

    def body(trial: Trial, **_: int) -> None:
        assert isinstance(trial.bench.port, InProcess)
        seen.add(trial.bench.port.watched is not None)

    finished(make_worker(body), Task("toys_divide", 1, 5, sanitized=sanitized))
    assert seen == {sanitized}


class RaceBetweenPrograms(Exception):
    """Has the name of a finding."""


def racing(*_: int, **__: int) -> int:
    raise RaceBetweenPrograms("programs race")


def test_a_known_finding_hides_what_is_behind_it(make_worker: Callable[..., CampaignWorker]) -> None:
    made = make_worker(most=9)
    made._watching = InProcess(toy(divide=racing), "cpu")
    assert finished(made).hidden


def test_a_known_wrong_answer_hides_nothing(make_worker: Callable[..., CampaignWorker]) -> None:
    end = finished(make_worker(most=99))
    assert (set(end.shown), end.hidden) == ({"fifties"}, False)


def test_what_is_found_without_the_sanitizer_tells_which_known_defect_hid_it(
    make_worker: Callable[..., CampaignWorker],
) -> None:
    made = make_worker(
        lambda trial, x: trial.holds(trial.run(call("divide", x=min(x, 9), y=1)) is None, "no")
    )
    made._watching = InProcess(toy(divide=racing), "cpu")
    end = finished(made, Task("toys_divide", 1, 5, sanitized=False))
    assert "ends earlier, with the known defect race, bug 3" in report_of(end.report)


def test_where_the_sanitizer_ends_a_case_is_told_with_its_finding() -> None:
    case = a_case(steps=(call("divide", x=5, y=2), call("divide", x=6, y=2)))
    ended = ends_earlier(case, InProcess(toy(divide=racing), "cpu"))
    assert ended is not None
    assert ended.actual == (Raised("RaceBetweenPrograms", "programs race"),)
    assert ended.calls == (call("divide", x=5, y=2),)


def test_where_the_sanitizer_finds_nothing_it_ends_nothing() -> None:
    assert ends_earlier(a_case(), InProcess(toy(divide=lambda x, y: 2), "cpu")) is None


def campaign_of(folder: Path, *names: str, budget: float = 30.0) -> Campaign:
    setting = Setting("impl", "cpu", str(folder / "reports"))
    return Campaign(setting, list(names), budget, 1, 0, known=(LARGE,))


def hurried(running: Campaign) -> None:
    """A watcher that goes on to reports once each property was tried enough, and ends the campaign after them."""
    open_ = (Status.WAITING, Status.RUNNING)
    waiting = running.defects.waiting or running.reporting
    if waiting and running.left > 10 and all(_tried(one) for one in running.rows.values()):
        running.started -= running.left - 10
    if not waiting and all(_tried(one) and one.status not in open_ for one in running.rows.values()):
        running.budget = min(running.budget, time.monotonic() - running.started)


def _tried(one: Row) -> bool:
    return one.inside >= 200 or one.status in (Status.FALSIFIED, Status.ERROR, Status.NOT_APPLICABLE)


def test_every_other_task_is_not_watched_where_a_known_finding_hides_what_is_behind_it(
    tmp_path: Path,
) -> None:
    running = campaign_of(tmp_path, "a")
    seen: list[bool] = []
    for _ in range(5):
        task = running._exploration(0.0)
        assert task is not None
        seen.append(task.sanitized)
        running._finish(running.rows["a"], Finished("a", "passed", 0.1, hidden=True))
    assert seen == [True, False, True, False, True]


def test_every_task_is_watched_where_nothing_is_hidden(tmp_path: Path) -> None:
    running = campaign_of(tmp_path, "a")
    for _ in range(3):
        task = running._exploration(0.0)
        assert task is not None
        assert task.sanitized
        running._finish(running.rows["a"], Finished("a", "passed", 0.1))


def test_a_known_defect_whose_report_s_worker_dies_is_reported_unshrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign_module, "main", known_examples.dies_of_reports)
    running = campaign_of(tmp_path, "division_a")
    running.watch = hurried
    rows, defect = running.run(), running.defects.all["large"]
    assert rows["division_a"].status is Status.KNOWN
    assert (defect.standing, defect.remark) == (
        "showed",
        "not shrunk: the worker process died with exit code 7",
    )
    assert "**This input was not shrunk to the end.**" in report_of(defect.report)


def test_a_report_of_a_known_defect_does_not_hold_the_campaign_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign_module, "main", known_examples.never_ends_reports)
    monkeypatch.setattr(campaign_module, "_GRACE_SECONDS", 0.5)
    running = campaign_of(tmp_path, "division_a", budget=2.0)
    running.run()
    assert "https://example.org/1" in report_of(running.defects.all["large"].report)
    assert list((tmp_path / "reports" / "pending").iterdir()) == []


@dataclass(frozen=True)
class Ended:
    """A campaign that was run from the command line; `saved` is its campaign.json."""

    code: int
    output: str
    saved: dict[str, Any]

    def known(self, name: str) -> dict[str, Any]:
        (found,) = [one for one in self.saved["known"] if one["id"] == name]
        return dict(found)


def fuzz(folder: Path, *options: str) -> Ended:
    """Run `fuzz` on the subject with known defects, with a worker of its own, until reports are written."""
    told = io.StringIO()
    chosen = f"{EXACT} or {ROUNDS_UP} or {ELEMENTWISE} or {UNKNOWN}"
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(told),
        module(folder, "toy_of_known", known_examples.SUBJECT) as name,
    ):
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        shown = Display.watch

        def watch(display: Display, running: Campaign) -> None:
            shown(display, running)
            hurried(running)

        patch.setattr(Display, "watch", watch)
        reports = str(folder / "reports")
        command = ["fuzz", "--device", "cpu", "--budget", "60s", "--reports", reports, "--workers", "1"]
        code = cli.main([*command, "--subject", name, "--only", chosen, *options])
    saved = (folder / "reports" / "campaign.json").read_text(encoding="utf-8")
    return Ended(code, told.getvalue(), json.loads(saved))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return fuzz(tmp_path_factory.mktemp("known"))


def test_a_campaign_goes_past_a_known_defect_in_all_its_properties(mixed: Ended) -> None:
    statuses = {name: one["status"] for name, one in mixed.saved["properties"].items()}
    assert (statuses[ROUNDS_UP], statuses[ELEMENTWISE]) == (Status.KNOWN.value,) * 2
    assert set(mixed.known("large")["properties"]) == {ROUNDS_UP, ELEMENTWISE}


def test_a_campaign_counts_a_known_defect_s_examples_by_property(mixed: Ended) -> None:
    large = mixed.known("large")
    rows = {name: one["known"] for name, one in mixed.saved["properties"].items() if "known" in one}
    assert rows == {name: {"large": examples} for name, examples in large["properties"].items()}
    assert large["examples"] == sum(large["properties"].values()) > 0


def test_a_campaign_reports_the_smallest_input_of_a_known_defect(mixed: Ended) -> None:
    large = mixed.known("large")
    case = Case.load(Path(large["report"]) / "case.json")
    assert "= 52, but should be 51" in case.message
    assert "**Known defect large: Large numbers come out too large, https://example.org/1**" in report_of(
        large["report"]
    )


def test_a_campaign_says_where_the_report_of_a_known_defect_is(mixed: Ended) -> None:
    large = mixed.known("large")
    assert f"known defect large: showed\n  {large['link']}\n" in mixed.output
    assert f"  report: {large['report']}/report.md\n" in mixed.output


def test_a_new_failure_is_told_beside_known_ones(mixed: Ended) -> None:
    assert f"FALSIFIED: {EXACT}" in mixed.output
    assert "known" not in mixed.saved["properties"][EXACT]


def test_a_known_defect_that_no_longer_fails_is_told(mixed: Ended) -> None:
    layout = mixed.known("layout")
    assert (layout["standing"], layout["stale"], layout["examples"]) == ("no longer fails", True, 0)
    assert "known defect layout: no longer fails\n  https://example.org/2\n" in mixed.output
    assert mixed.saved["properties"][UNKNOWN]["status"] == Status.UNEXPECTED_PASS.value


def test_a_known_defect_of_nothing_that_was_run_is_no_news(mixed: Ended) -> None:
    assert mixed.known("never")["standing"] == "not tried"
    assert "known defect never" not in mixed.output


def test_as_new_a_campaign_reports_everything_as_new(tmp_path: Path) -> None:
    ended = fuzz(tmp_path, "--as-new")
    statuses = {name: one["status"] for name, one in ended.saved["properties"].items()}
    assert statuses == dict.fromkeys((EXACT, ROUNDS_UP, ELEMENTWISE), "FALSIFIED") | {UNKNOWN: "passed"}
    assert (ended.code, ended.saved["known"]) == (1, [])


def test_a_defect_that_no_longer_fails_is_worth_exit_code_1() -> None:
    assert cli._exit_code({"a": Row("a", Status.PASSED)}, interrupted=False, stale=True) == 1


def falsified(folder: Path, name: str, **changes: Any) -> Row:
    case = a_case(property_name=name, **changes)
    case.save(folder / name / "case.json")
    return Row(name, Status.FALSIFIED, detail=case.message, report=str(folder / name))


def divided(x: int, seen: int) -> dict[str, Any]:
    """What a case is about whose call returned `seen`."""
    return {
        "steps": (call("divide", x=x, y=1),),
        "message": f"result = {seen}, but should be {x} [divide(x={x}, y=1)]",
    }


def test_properties_that_show_the_same_are_told_together(tmp_path: Path) -> None:
    rows = [falsified(tmp_path, "a", **divided(4, 5)), falsified(tmp_path, "b", **divided(70, 71))]
    (group,) = grouped(rows)
    assert [one.property_name for one in group.rows] == ["a", "b"]


def test_properties_that_show_different_things_are_told_apart(tmp_path: Path) -> None:
    other = {"steps": (call("cdiv", x=4, y=1),), "message": "result = 5, but should be 4 [cdiv(x=4, y=1)]"}
    rows = [falsified(tmp_path, "a", **divided(4, 5)), falsified(tmp_path, "b", **other)]
    assert len(grouped([*rows, Row("c", Status.FALSIFIED), Row("d", Status.FALSIFIED)])) == 4


def test_every_report_of_a_group_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    rows = [falsified(tmp_path, "a", **divided(4, 5)), falsified(tmp_path, "b", **divided(70, 71))]
    tell_failures(told.append, {one.property_name: one for one in rows})
    assert told[0].startswith("\nFALSIFIED: a\n")
    assert [line for line in told if "report.md" in line] == [
        f"  report: {tmp_path}/a/report.md",
        f"    b: {tmp_path}/b/report.md",
    ]
    assert told[2].startswith("  1 more show the same: ")


def test_properties_that_do_not_apply_for_one_reason_are_told_together() -> None:
    told: list[str] = []
    rows = [Row(name, Status.NOT_APPLICABLE, detail="no " + name[0]) for name in ("a1", "b1", "a2")]
    tell_failures(told.append, {one.property_name: one for one in rows})
    assert told == ["not applicable: a1, a2: no a", "not applicable: b1: no b"]


def test_what_keeps_a_known_defect_from_being_shrunk_is_told() -> None:
    told: list[str] = []
    defects = KnownDefects([LARGE])
    heard(defects, "division_a", 1.0, large=2)
    defects.conclude({"division_a": row("division_a", 9)})
    tell_known(told.append, defects.all.values())
    assert "  not shrunk: no time was left" in told


def test_in_a_nightly_campaign_a_defect_of_several_properties_is_known_where_it_shows() -> None:
    ledger = Ledger([a_property(), a_property(name="toys_add")], {}, [], {})
    for name, links in (("toys_divide", ("https://example.org/1",)), ("toys_add", ())):
        ledger.progress(name, 10)
        ledger.explored(Explored(name, "passed", 1.0, known_failures=links), at=1.0)
    ledger.conclude([])
    found = {name: one.status for name, one in ledger.standings.items()}
    assert found == {"toys_divide": Status.KNOWN, "toys_add": Status.PASSED}
