"""The coordinator of campaigns, with workers that only pretend: what is given out when, what counts, and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.campaign.coordinator import Campaign
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import FILE, CampaignRecord, CorpusRecord
from statecheck.campaign.scheduler import Scheduler
from statecheck.campaign.summary import verdict
from statecheck.campaign.tasks import (
    CallBegan,
    DeviceLost,
    ExampleFailed,
    ExamplesRun,
    Explore,
    Explored,
    Found,
    Replay,
    RunCanary,
)
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import TELLING, Counts
from tests.helpers.cases import a_case, a_property
from tests.helpers.faulty import EXACT, PADDED, ROUNDS_UP
from tests.unit.campaign.nightly_examples import a_state
from tests.unit.campaign.pretended import COMMIT, Actor, falsifies, found_in, passes, pretended

ALL = {EXACT, ROUNDS_UP, PADDED}


pytestmark = pytest.mark.usefixtures("default_signals")


@pytest.fixture(autouse=True)
def tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every property has one visit in the first pass."""
    monkeypatch.setattr("statecheck.campaign.scheduler.visits", lambda: ())


def code_of(record: CampaignRecord) -> int:
    return verdict(record).exit_code


def saved(folder: Path) -> CampaignRecord:
    return CampaignRecord.load(folder / "reports" / "campaigns" / "pretended" / FILE)


def statuses(record: CampaignRecord) -> dict[str, str]:
    return {row.id: row.status for row in record.properties}


# What is given out when.


def is_first(task: Explore) -> bool:
    """Whether the task only tries a property; later ones look for more compared examples, or for none in particular."""
    return not task.simplest


def test_every_property_is_tried_before_rounds_begin(tmp_path: Path) -> None:
    record, given = pretended(tmp_path, passes, budget=0.5)
    assert {task.property for task in given[:3]} == ALL
    assert [is_first(task) for task in given[:4]] == [True, True, True, False]
    assert statuses(record) == dict.fromkeys(ALL, "passed")


def test_the_first_pass_shares_the_time_that_is_left_among_the_untried(tmp_path: Path) -> None:
    _, given = pretended(tmp_path, passes, budget=12.0, watch=_ends_after(3))
    assert [round(task.patience) for task in given[:3]] == [4, 6, 12]


def _ends_after(examples: int) -> Callable[[Campaign], None]:
    """A watcher that ends a campaign once there are so many examples."""

    def watch(campaign: Campaign) -> None:
        if campaign.state.examples >= examples and all(
            property_state.tried for property_state in campaign.state.property_states.values()
        ):
            raise KeyboardInterrupt

    return watch


def test_a_property_whose_time_was_too_short_is_tried_again_after_the_others(tmp_path: Path) -> None:
    late: list[int] = []

    def slow(task: Explore, actor: Actor) -> None:
        if task.property == EXACT and len(late) < 2:
            late.append(task.seed)
            actor.say(Explored(EXACT, "passed", 0.1, late=True))
        else:
            passes(task, actor)

    record, given = pretended(tmp_path, slow, budget=3.0, watch=_ends_after(1))
    first = [task.property for task in given if is_first(task)]
    assert (sorted(first[:3]), first[3:]) == (sorted(ALL), [EXACT, EXACT])
    assert len(set(late)) == 2
    assert statuses(record)[EXACT] == "passed"


def test_a_property_that_is_always_too_slow_is_tried_four_times_before_rounds_begin(tmp_path: Path) -> None:
    def slow(task: Explore, actor: Actor) -> None:
        actor.say(Explored(task.property, "passed", 0.01, late=True))

    _, given = pretended(tmp_path, slow, budget=0.7, only=EXACT)
    assert [is_first(task) for task in given[:6]] == [True] * 4 + [False] * 2


def test_a_failure_that_was_not_shrunk_is_explored_again_first(tmp_path: Path) -> None:
    def cut_short(task: Explore, actor: Actor) -> None:
        if task.property != PADDED or not is_first(task):
            passes(task, actor)
            return
        (example,) = found_in(task).found
        actor.say(Explored(PADDED, "passed", 0.1, found=(replace(example, shrunk=False),)))

    # On a slow machine the first pass may take the whole budget.
    for budget in (1.0, 8.0, 64.0):
        _, given = pretended(tmp_path / str(budget), cut_short, examples=None, budget=budget)
        if later := [task for task in given if not is_first(task)]:
            break
    assert later[0].property == PADDED
    assert later[0].known == frozenset()


def test_a_failing_property_is_explored_past_what_was_found(tmp_path: Path) -> None:
    record, given = pretended(tmp_path, falsifies, budget=1.0)
    (bucket,) = record.buckets
    later = [task for task in given if task.property == EXACT][1:]
    assert later
    assert {task.known for task in later} == {frozenset({bucket.id})}
    assert statuses(record)[EXACT] == "FALSIFIED"


def test_cases_of_the_corpus_are_replayed_before_any_exploration(tmp_path: Path) -> None:
    a_case(property_id=EXACT).save(tmp_path / "corpus" / "one.json")
    a_case(property_id="toys/not-chosen").save(tmp_path / "corpus" / "other.json")
    record, _ = pretended(tmp_path, passes, budget=0.3)
    assert [replay.file for replay in record.corpus] == ["one.json"]


def test_a_failure_that_cannot_be_shrunk_is_gone_past_after_three_tries(tmp_path: Path) -> None:
    case = a_case(property_id=EXACT, subject="impl")

    def cut_short(task: Explore, actor: Actor) -> None:
        bucket = bucket_of(case).id
        if task.property != EXACT or bucket in task.known:
            actor.passes(task)
            return
        found = (Found((bucket,), case.to_data(), "", "", "", shrunk=False),)
        actor.say(Explored(EXACT, "falsified", 0.01, found=found, failing={bucket: 1}))

    record, given = pretended(tmp_path, cut_short, budget=1.0)
    (bucket,) = record.buckets
    tries = [task for task in given if task.property == EXACT and bucket.id not in task.known]
    assert (len(tries), bucket.shrunk) == (3, False)


# What counts.


def test_counts_of_progress_and_of_the_end_add_up(tmp_path: Path) -> None:
    def partly(task: Explore, actor: Actor) -> None:
        rest = Counts(examples=4, compared=1)
        rest.outside.update({"too large": 2})
        actor.say(ExamplesRun(task.property, 6, 5), Explored(task.property, "passed", 0.1, counts=rest))

    # In examples: when a budget in seconds is used up, the end of an exploration may be unread.
    record, _ = pretended(tmp_path, partly, examples=30, only=EXACT)
    (row,) = record.properties
    assert (row.examples, row.compared, row.counts.outside) == (30, 18, {"too large": 6})
    assert row.counts.vacuous == 6


def test_examples_of_a_worker_that_ended_before_its_task_did_count(tmp_path: Path) -> None:
    def dies(task: Explore, actor: Actor) -> None:
        actor.say(ExamplesRun(task.property, 6, 5))
        actor.die()

    record, given = pretended(tmp_path, dies, budget=1.0, only=EXACT)
    assert record.properties[0].examples == 6 * len(given)


def test_a_message_that_is_unread_when_the_time_is_up_still_counts(tmp_path: Path) -> None:
    stopped, said = threading.Event(), threading.Event()

    def busy(task: Explore, actor: Actor) -> None:
        stopped.wait(20)
        actor.say(ExamplesRun(EXACT, 5, 5), found_in(task))
        said.set()

    def watch(campaign: Campaign) -> None:
        # As a machine does that is suspended.
        if campaign.state.property_states[EXACT].running:
            stopped.set()
            said.wait(20)
            time.sleep(max(0.0, campaign.left + 0.1))

    record, _ = pretended(tmp_path, busy, watch, budget=0.3, only=EXACT, grace=0.0)
    assert (statuses(record), record.examples, len(record.buckets)) == ({EXACT: "FALSIFIED"}, 5, 1)
    assert code_of(record) == 1


def test_a_case_whose_replay_outlasts_the_time_is_left_out(tmp_path: Path) -> None:
    a_case(property_id=EXACT, subject="impl").save(tmp_path / "corpus" / "a.json")

    def never_ends(_: Replay, actor: Actor) -> None:
        while not actor.dismissed.wait(0.05):
            actor.say(CallBegan())

    record, _ = pretended(tmp_path, passes, budget=0.5, engines=2, replay=never_ends, time_limit=0.3)
    assert record.corpus == [CorpusRecord("a.json", "LEFT OUT", "left out: the time was up")]
    assert code_of(record) == 2


# Workers that die, or hang.


def test_a_worker_that_is_killed_is_replaced_and_its_property_explored_apart(tmp_path: Path) -> None:
    def dies_once(task: Explore, actor: Actor) -> None:
        if task.property == EXACT and not task.isolated and task.enough:
            actor.die(-9)
        passes(task, actor)

    record, given = pretended(tmp_path, dies_once, budget=1.0)
    died, again = [task for task in given if task.property == EXACT][:2]
    assert (again.seed, died.isolated, again.isolated) == (died.seed, False, True)
    # It takes long, and others have not been tried yet.
    assert given.index(again) == 3
    assert statuses(record) == dict.fromkeys(ALL, "passed")
    assert record.warnings == [f"{EXACT}: a worker died with exit code -9 (seed {died.seed})"]


def test_a_property_whose_worker_died_has_no_second_visit_before_others_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {name: tested.id for name, tested in load_properties().items()}
    learned = [(ids[name], 1) for name in (EXACT, EXACT, PADDED, ROUNDS_UP, EXACT)]
    monkeypatch.setattr("statecheck.campaign.scheduler.visits", lambda: learned)

    def dies_once(task: Explore, actor: Actor) -> None:
        if task.property == EXACT and not task.isolated:
            actor.die()
        passes(task, actor)

    _, given = pretended(tmp_path, dies_once, budget=1.0)
    assert [task.property for task in given[:4]] == [EXACT, PADDED, ROUNDS_UP, EXACT]
    assert (given[3].seed, given[3].isolated) == (given[0].seed, True)


def test_a_property_that_kills_workers_in_every_way_is_given_up_and_others_are_not(tmp_path: Path) -> None:
    def dies(task: Explore, actor: Actor) -> None:
        if task.property == EXACT:
            actor.die()
        passes(task, actor)

    record, given = pretended(tmp_path, dies, budget=2.0)
    assert [task.isolated for task in given if task.property == EXACT] == [False, True, True]
    (gone,) = [row for row in record.properties if row.id == EXACT]
    assert gone.status == "ERROR"
    assert gone.detail.startswith("3 workers were lost; the last: a worker died with exit code 7 (seed ")
    assert all(row.compared for row in record.properties if row is not gone)
    assert code_of(record) == 2


def test_the_pending_case_of_a_worker_that_died_is_found(tmp_path: Path) -> None:
    def dies(task: Explore, actor: Actor) -> None:
        actor.leave(task.property, a_case(property_id=EXACT, subject="impl"))
        actor.die()

    record, _ = pretended(tmp_path, dies, budget=1.0, only=EXACT)
    (bucket,) = record.buckets
    assert (
        bucket.note
        == "A worker died with exit code 7 before this failure was reported: there may be a smaller input."
    )
    assert Case.load(Path(bucket.corpus)).calls == a_case().calls
    assert (Path(bucket.report) / "report.md").is_file()
    assert statuses(record) == {EXACT: "FALSIFIED"}
    assert not list((tmp_path / "reports").glob("campaigns/*/pending/*"))


@pytest.mark.parametrize(
    ("lost", "canary", "code", "warning"),
    [
        (2, "found", 0, "a worker died with exit code 7 before the canary was found"),
        (3, "", 2, "the canary was not found: a worker died with exit code 7"),
    ],
)
def test_a_canary_whose_worker_died_is_run_three_times(
    tmp_path: Path, lost: int, canary: str, code: int, warning: str
) -> None:
    record, _ = pretended(tmp_path, passes, lost_canaries=lost, examples=30)
    assert (record.canary, code_of(record)) == (canary, code)
    assert warning in record.warnings


@pytest.mark.parametrize(
    ("budget", "at", "is_canary"),
    [(29.0, 0.0, True), (30.0, 0.0, False), (30.0, 2.9, False), (30.0, 3.0, True), (None, 0.0, True)],
)
def test_the_canary_runs_first_in_short_campaigns_and_after_three_seconds_in_others(
    tmp_path: Path, budget: float | None, at: float, is_canary: bool
) -> None:
    plan = Plan("queued", budget=budget, examples=300, corpus=str(tmp_path), commit=COMMIT)
    state = a_state([a_property(id=name) for name in ("toys/add", "toys/divide")])
    scheduler = Scheduler(plan, state)
    scheduler.begin(tmp_path, None)
    tasks = [scheduler.next(None, [], at, 1.0) for _ in range(2)]  # type: ignore[arg-type]
    assert [type(task) for task in tasks] == [RunCanary if is_canary else Explore, Explore]
    assert scheduler.canary_waits is not is_canary


@pytest.mark.parametrize("lost", [0, 1])
def test_the_canary_runs_after_a_failure_that_ends_the_campaign(tmp_path: Path, lost: int) -> None:
    record, given = pretended(
        tmp_path, falsifies, lost_canaries=lost, only=EXACT, budget=300.0, exit_first=True
    )
    assert (record.canary, len(given), len(record.buckets)) == ("found", 1, 1)
    lost_first = "a worker died with exit code 7 before the canary was found"
    assert record.warnings.count(lost_first) == lost


def test_a_campaign_that_is_interrupted_before_the_canary_is_not_to_be_trusted(tmp_path: Path) -> None:
    record, _ = pretended(tmp_path, passes, budget=300.0, watch=_ends_after(1))
    assert record.warnings == ["the canary was not run: the campaign ended before its turn"]
    assert (record.interrupted, verdict(record).word, code_of(record)) == (True, "NOT TO BE TRUSTED", 2)


@pytest.mark.parametrize(("seconds", "found"), [(-60, 1), (60, 0)], ids=["before", "after"])
def test_a_failure_after_ctrl_c_is_left_to_the_next_campaign(
    tmp_path: Path, seconds: int, found: int
) -> None:
    left = threading.Event()

    def fails(task: Explore, actor: Actor) -> None:
        path = actor.leave(task.property, a_case(property_id=EXACT, subject="impl"))
        os.utime(path, (time.time() + seconds, time.time() + seconds))
        left.set()
        actor.hang()

    def interrupts(_: object) -> None:
        left.wait()
        raise KeyboardInterrupt

    record, _ = pretended(tmp_path, fails, only=EXACT, budget=300.0, watch=interrupts)
    pending = [path for path in tmp_path.rglob("*.json") if path.parent.name == "pending"]
    assert (record.interrupted, len(record.buckets), len(pending)) == (True, found, 1 - found)


def test_the_pending_case_of_a_worker_is_found_though_its_device_is_lost(tmp_path: Path) -> None:
    def loses(task: Explore, actor: Actor) -> None:
        actor.leave(task.property, a_case(property_id=EXACT, subject="impl"))
        actor.say(DeviceLost("it has fallen off the bus"))
        actor.hang()

    record, _ = pretended(tmp_path, loses, budget=20.0, only=EXACT)
    (warning,) = record.warnings
    assert warning.startswith("cpu is gone after ")
    assert warning.endswith(", and there is no other: it has fallen off the bus")
    assert (
        record.buckets[0].note
        == "Its device was lost before this failure was reported: there may be a smaller input."
    )
    assert (record.complete, code_of(record)) == (False, 1)


def test_a_counterexample_whose_shrinking_was_cut_short_is_kept(tmp_path: Path) -> None:
    def shrinks(task: Explore, actor: Actor) -> None:
        actor.leave(task.property, a_case(property_id=EXACT, subject="impl"))
        actor.hang()

    record, _ = pretended(tmp_path, shrinks, budget=0.3, only=EXACT)
    (bucket,) = record.buckets
    assert bucket.note == "The campaign ended before this failure was reported: there may be a smaller input."
    assert Case.load(Path(bucket.corpus)).calls == a_case().calls
    assert code_of(record) == 1


# Other campaigns in the same folder.


def left_by_another(folder: Path) -> Path:
    """A pending case of another campaign in the same folder."""
    case = a_case(property_id=EXACT, subject="impl")
    return case.save(
        folder / "reports/campaigns/other/pending" / f"divide-exact.{bucket_of(case).id}.99.json"
    )


def test_pending_cases_of_a_running_campaign_are_left_to_that_campaign(tmp_path: Path) -> None:
    left = left_by_another(tmp_path)
    with (left.parents[1] / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record, _ = pretended(tmp_path, passes, budget=0.3, only=EXACT)
    assert left.is_file()
    assert (record.corpus, record.buckets) == ([], [])


def test_pending_cases_of_a_campaign_that_is_gone_are_replayed(tmp_path: Path) -> None:
    left = left_by_another(tmp_path)
    record, _ = pretended(tmp_path, passes, budget=0.3, only=EXACT)
    assert not left.exists()
    (kept,) = (tmp_path / "corpus").glob("*.json")
    assert [replay.file for replay in record.corpus] == [kept.name]


# How it ends.


def test_a_campaign_ends_when_its_time_is_up(tmp_path: Path) -> None:
    record, _ = pretended(tmp_path, passes, budget=1.0, engines=2)
    assert record.seconds >= 1.0
    assert record.complete
    assert saved(tmp_path) == record


def test_a_campaign_without_time_has_tested_nothing(tmp_path: Path) -> None:
    record, given = pretended(tmp_path, passes, budget=-1.0)
    assert (given, set(statuses(record).values())) == ([], {"not tested"})
    assert code_of(record) == 2


def test_a_campaign_goes_on_where_its_record_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("in place of the folder")

    def body(task: Explore, actor: Actor) -> None:
        if task.property == PADDED and not task.isolated:
            actor.die(-9)
        falsifies(task, actor)

    record, _ = pretended(tmp_path, body, budget=0.5)
    assert [warning for warning in record.warnings if FILE in warning]
    assert (code_of(record), len(record.buckets)) == (1, 1)
    assert statuses(record)[PADDED] == "passed"


def test_the_record_is_on_disk_while_the_campaign_runs(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(campaign: Campaign) -> None:
        if campaign.state.buckets:
            seen.append(len(json.loads((campaign.folder / FILE).read_text())["buckets"]))

    pretended(tmp_path, falsifies, watch, budget=0.3)
    assert set(seen) == {1}


@pytest.mark.parametrize(
    ("examples", "fails", "code"),
    [(TELLING - 1, False, 0), (TELLING, False, 2), (TELLING - 1, True, 1), (TELLING, True, 1)],
)
def test_a_required_property_or_all_that_are_not_tested_are_not_clean(
    tmp_path: Path, examples: int, fails: bool, code: int
) -> None:
    tried: list[Explore] = []

    def compares_exact_only(task: Explore, actor: Actor) -> None:
        if task.property == EXACT:
            passes(task, actor)
            return
        tried.append(task)
        left_out = Counter({"an input that the contract leaves out": examples})
        counts = Counts(examples=examples, outside=left_out) if len(tried) == 1 else Counts()
        actor.say(Explored(task.property, "passed", 0.02, counts=counts))

    only = f"{EXACT} or {ROUNDS_UP}"
    record, _ = pretended(tmp_path, compares_exact_only, only=only, budget=0.5, fail_on_untested=fails)
    assert {row.id: row.status for row in record.properties} == {EXACT: "passed", ROUNDS_UP: "not tested"}
    assert verdict(record).exit_code == code


def test_the_first_failure_ends_a_campaign_that_asks_for_that(tmp_path: Path) -> None:
    def fails_at_last(task: Explore, actor: Actor) -> None:
        if task.property != EXACT:
            passes(task, actor)
            return
        actor.say(ExamplesRun(EXACT, 7))
        actor.say(ExampleFailed(EXACT))
        actor.say(ExamplesRun(EXACT, 5))
        actor.say(found_in(task))

    record, _ = pretended(tmp_path, fails_at_last, only=EXACT, budget=300.0, exit_first=True)
    assert [bucket.property for bucket in record.buckets] == [EXACT]
    assert (record.first_failure["examples"], record.complete) == (7, False)
    assert "The first failure came after 7 examples" in verdict(record).reasons[0]
