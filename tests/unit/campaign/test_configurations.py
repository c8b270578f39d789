"""Units of a campaign: a property with each model of a library is scheduled, counted and judged for itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from statecheck.campaign.merge import merge_records
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord, CorpusRecord
from statecheck.campaign.scheduler import Scheduler
from statecheck.campaign.state import CampaignState
from statecheck.campaign.summary import evidence, grouped, little_compared, verdict
from statecheck.campaign.tasks import Explore, Explored, Found, unit_name
from statecheck.case import Case
from statecheck.case.bucket import bucket_of, cause_of
from statecheck.case.values import call
from statecheck.execution.verdict import CLEAN, INCOMPLETE, Counts, Status
from tests.helpers.cases import a_case, a_property
from tests.unit.campaign.nightly_examples import a_state
from tests.unit.campaign.pretended import next_exploration

NAMES = ("toys/forks", "toys/saves")
MODELS = ("mamba", "jamba", "lfm2")
PROPERTIES = [a_property(id=name) for name in NAMES]
WORKER = cast(Any, SimpleNamespace())
OTHER = cast(Any, SimpleNamespace())


def campaign_state(**skipped: str) -> CampaignState:
    models = dict.fromkeys(NAMES, MODELS)
    record = CampaignRecord(Plan("one", "toy"), complete=True, applicable=2)
    return CampaignState(record, PROPERTIES, skipped, list, {}, configurations=models)


def a_plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {"commit": "0123456789ab", "budget": 60.0}
    return Plan("configurations", **fields | changes)


def a_failure(model: str, name: str = "toys/forks", message: str = "wrong") -> Case:
    steps = (call("Sequences", model=model), call("divide", x=6, y=2))
    case = a_case(property_id=name, message=message)
    return Case(**vars(case) | {"steps": steps, "expected": case.expected * 2, "actual": case.actual * 2})


def ended(state: CampaignState, task: Explore, counts: Counts, *cases: Case) -> None:
    found = tuple(Found((bucket_of(case).id,), case.to_data(), "", "", "") for case in cases)
    status = "falsified" if cases else "passed"
    message = Explored(task.property, status, 0.5, counts=counts, found=found)
    state.explored(message, 1.0, task.unit)


def compared(model: str, number: int = 1) -> Counts:
    return Counts(examples=number, compared=number, configurations=Counter({model: number}))


def record_of(state: CampaignState) -> CampaignRecord:
    state.record.canary = "found"
    return state.current()


def test_each_property_is_compared_with_each_model_before_any_gets_a_second_turn() -> None:
    state = campaign_state()
    given = Scheduler(a_plan(), state)
    units = []
    for _ in range(6):
        task = next_exploration(given, WORKER, [WORKER], 0.0, 50.0)
        assert task is not None
        units.append(task.unit)
        ended(state, task, compared(task.configuration))
        given.ended(task, Explored(task.property, "passed", 0.5))
    assert len(set(units)) == len(units)
    assert [name.rpartition(" of ")[2] for name in units] == sorted([*MODELS, *MODELS])


def test_a_worker_takes_the_models_that_no_other_worker_has() -> None:
    given = Scheduler(a_plan(), campaign_state())
    models = []
    for worker in (WORKER, OTHER, WORKER, OTHER):
        task = next_exploration(given, worker, [WORKER, OTHER], 0.0, 50.0)
        assert task is not None
        models.append(task.configuration)
    assert models == ["jamba", "lfm2", "jamba", "lfm2"]


def test_a_unit_that_has_failed_is_counted_and_not_shrunk_again() -> None:
    state = campaign_state()
    given = Scheduler(a_plan(), state)
    first = next_exploration(given, WORKER, [WORKER], 0.0, 50.0)
    assert first is not None
    assert not first.as_found
    ended(state, first, Counts(examples=1), a_failure(first.configuration, first.property))
    property_state = state.property_states[first.unit]
    while (
        task := next_exploration(given, WORKER, [WORKER], 0.0, 50.0)
    ) is not None and task.unit != first.unit:
        given.ended(task, Explored(task.property, "passed", 0.5))
        ended(state, task, compared(task.configuration, 100))
    assert task is not None
    assert (task.as_found, task.known) == (True, frozenset(property_state.buckets))


@pytest.mark.parametrize(("saved", "waits"), [(0, True), (1, False)])
def test_a_property_gets_examples_until_its_situations_are_reached(saved: int, waits: bool) -> None:
    state = a_state([a_property(id="toys/saves"), a_property(id="toys/forks")])
    for name, reached in (("toys/saves", saved), ("toys/forks", 1)):
        counts = Counts(examples=12, compared=12, situations=Counter({name: reached}))
        state.explored(Explored(name, "passed", 0.5, counts=counts), 1.0)
    given = Scheduler(a_plan(), state)
    tasks = [next_exploration(given, WORKER, [WORKER], 0.0, 50.0 - number) for number in range(2)]
    assert [task.property for task in tasks if task is not None][:1] == ["toys/saves"] * waits or not waits
    assert state.property_states["toys/saves"].status is (Status.NOT_TESTED if waits else Status.PASSED)


def test_shrinking_has_a_share_of_the_budget() -> None:
    state = a_state([a_property()])
    given = Scheduler(a_plan(engines=2), state)
    first = next_exploration(given, WORKER, [WORKER], 0.0, 50.0)
    assert first is not None
    assert first.shrinking == pytest.approx(10.0)
    state.explored(Explored(first.property, "passed", 12.0, shrinking=28.5), 1.0)
    given.ended(first, Explored(first.property, "passed", 12.0))
    second = next_exploration(given, WORKER, [WORKER], 0.0, 40.0)
    assert second is not None
    assert second.shrinking == pytest.approx(1.0)


def test_a_verdict_says_for_how_many_models_a_property_passed() -> None:
    state = campaign_state(**{unit_name("toys/saves", "lfm2"): "declared as unsupported: no states"})
    for name in NAMES:
        for model in ("mamba", "jamba"):
            ended(state, Explore(name, 0, 1, configuration=model), compared(model, 20))
    record = record_of(state)
    assert [row.share for row in record.properties] == [
        "passed for 2 of 3 models; not tested for 1: lfm2",
        "passed for 2 of 3 models; not applicable for 1: lfm2",
    ]
    assert [row.status for row in record.properties] == [Status.PASSED.value] * 2
    assert replace(record.properties[0], statuses=dict.fromkeys("abcdefg", "not tested")).share.endswith(
        "; not tested for 7"
    )
    assert evidence(record) == "2 of 2 applicable properties selected; 80 of 80 examples compared"
    record.corpus = [
        CorpusRecord(f"{at}.json", word, "") for at, word in enumerate(("FIXED", "KNOWN", "FIXED"))
    ]
    assert evidence(record).endswith(" examples compared; 3 saved cases replayed: 1 KNOWN, 2 FIXED")
    assert verdict(record).exit_code == CLEAN


def test_a_campaign_with_a_model_that_cannot_be_verified_is_not_clean_and_names_it() -> None:
    state = campaign_state()
    for name in NAMES:
        for model in ("mamba", "jamba"):
            ended(state, Explore(name, 0, 1, configuration=model), compared(model))
        unverified = Counts(9, 0, unverified={"lfm2": "lfm2: not verified: a fresh run ends in OSError: x"})
        ended(state, Explore(name, 0, 1, configuration="lfm2"), unverified)
    record = record_of(state)
    outcome = verdict(record)
    assert outcome.exit_code == INCOMPLETE
    assert outcome.reasons == ("Model lfm2 cannot be verified: a fresh run ends in OSError: x.",)
    assert record.properties[0].share == "passed for 2 of 3 models; not verified for 1: lfm2"
    assert not state.property_states[unit_name("toys/forks", "lfm2")].open


def test_a_verdict_warns_of_properties_with_few_compared_examples() -> None:
    state = a_state([a_property(id="toys/forks")])
    state.explored(Explored("toys/forks", "passed", 1.0, counts=Counts(examples=300, compared=2)), 1.0)
    state.record.applicable = 2
    record = record_of(state)
    assert little_compared(record) == "fewer than half of the examples were compared: toys/forks (2 of 300)"
    assert evidence(record) == "1 of 2 applicable properties selected; 2 of 300 examples compared"


def test_failures_of_two_models_are_two_causes() -> None:
    state = campaign_state()
    for model in MODELS[:2]:
        ended(state, Explore("toys/forks", 0, 1, configuration=model), Counts(1), a_failure(model))
    groups = grouped(record_of(state).buckets)
    assert [cause_of(Case.from_data(group[0].case)).setting for group in groups] == ["mamba", "jamba"]
    assert (
        record_of(state).properties[0].share.endswith("FALSIFIED for 2: mamba, jamba; not tested for 1: lfm2")
    )


def test_examples_of_a_profile_are_shared_by_the_models() -> None:
    ids = {tested.id: 16 for tested in PROPERTIES}
    given, tasks = Scheduler(a_plan(profile="sequences"), campaign_state(), examples=ids), []
    while (task := next_exploration(given, WORKER, [WORKER], 0.0, 50.0)) is not None:
        tasks.append(task)
    assert {task.unit for task in tasks} == {unit_name(name, model) for name in NAMES for model in MODELS}
    assert {task.max_examples for task in tasks} == {6}
    assert len({task.seed for task in tasks}) == len(tasks)


def test_shards_add_up_model_by_model(tmp_path: Path) -> None:
    records = []
    for model in MODELS[:2]:
        state = campaign_state()
        ended(state, Explore("toys/forks", 0, 1, configuration=model), compared(model, 3))
        record = record_of(state)
        record.save(tmp_path / "campaign.json")
        records.append(CampaignRecord.load(tmp_path / "campaign.json"))
    whole = merge_records(
        [
            replace(part, plan=replace(part.plan, shard=number, shards=2))
            for number, part in enumerate(records)
        ]
    )
    assert whole.properties[0].share == "passed for 2 of 3 models; not tested for 1: lfm2"
    assert (whole.applicable, whole.compared) == (2, 6)
