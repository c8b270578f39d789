"""Known defects in campaigns: what is counted, what is reported when, what is printed at the end, and when a defect is gone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign import coordinator
from statecheck.campaign.display import print_sections
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import BucketRecord, CampaignRecord, PropertyRecord
from statecheck.campaign.report import budget_that_would_do, not_reached
from statecheck.campaign.state import KnownDefects, PropertyState
from statecheck.campaign.summary import verdict
from statecheck.campaign.tasks import Explore
from statecheck.case import Case
from statecheck.case.values import call
from statecheck.execution.verdict import TELLING, Counts
from statecheck.report.failure import headline
from subjects import KnownDeviation, Symptom
from tests.helpers.cases import a_case, a_property
from tests.helpers.faulty import EXACT, LAYOUT_READ, ROUNDS_UP
from tests.helpers.modules import module
from tests.unit.campaign.nightly_examples import a_bucket, a_record
from tests.unit.campaign.pretended import Actor, Body, stage

WRONG = Symptom("value", "divide", "result")
LARGE = KnownDeviation(
    ("divide/*", "cdiv/*"), "https://example.org/1", WRONG, id="large", title="Large numbers"
)


def declared(*ids: str) -> list[KnownDeviation]:
    return [replace(LARGE, id=id_) for id_ in ids]


def row(name: str, compared: int, reason: str = "") -> PropertyState:
    property_state = PropertyState(a_property(id=name), reason)
    property_state.record.counts = Counts(compared, compared)
    return property_state


def property_state(*rows: PropertyState) -> str:
    """The status of a defect that never showed, after a campaign with such properties."""
    defects = KnownDefects([LARGE])
    defects.conclude({state.id: state for state in rows})
    return defects.all["large"].status


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("divide/a", 200), ("cdiv/b", 200)], "no longer fails"),
        ([("divide/a", 200), ("cdiv/b", 199)], "not tried enough"),
        ([("divide/a", 200), ("cdiv/b", 0)], "not tried enough"),
        ([("divide/a", 200), ("cdiv/b", 0, "no ceiling")], "no longer fails"),
        ([("divide/a", 0, "no division")], "not tried"),
        ([("toys/divide", 500)], "not tried"),
        ([("divide/a", 0)], "not tried"),
    ],
    ids=str,
)
def test_a_defect_is_gone_only_once_each_of_its_properties_was_tried_enough(
    rows: list[tuple[Any, ...]], expected: str
) -> None:
    assert property_state(*(row(*arguments) for arguments in rows)) == expected


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (
            [("divide/a", 0, "needs cpu, runs on cuda"), ("cdiv/b", 0, "needs cpu, runs on cuda")],
            "needs cpu, runs on cuda",
        ),
        ([("divide/a", 0, "no division"), ("cdiv/b", 0, "no ceiling")], "no division; no ceiling"),
        ([("divide/a", 0)], "no example was run"),
        ([("divide/a", 0), ("cdiv/b", 0, "no ceiling")], "no example was run; no ceiling"),
        ([("toys/divide", 500)], "none of its properties was chosen"),
    ],
    ids=str,
)
def test_a_defect_that_was_not_tried_has_the_reason(rows: list[tuple[Any, ...]], note: str) -> None:
    defects = KnownDefects([LARGE])
    defects.conclude({arguments[0]: row(*arguments) for arguments in rows})
    assert (defects.all["large"].status, defects.all["large"].note) == ("not tried", note)


def test_a_defect_of_any_property_is_not_gone_where_only_some_were_tried() -> None:
    anywhere = replace(LARGE, property=("divide/*", "cdiv/*"))
    defects = KnownDefects([anywhere], selected=True)
    defects.conclude({"divide/a": row("divide/a", 500)})
    assert defects.all["large"].status == "not tried enough"


@pytest.mark.parametrize(("compared", "expected"), [(2999, "not tried enough"), (3000, "no longer fails")])
def test_a_rare_defect_is_gone_only_after_ten_times_as_many_examples_as_show_it_once(
    compared: int, expected: str
) -> None:
    defects = KnownDefects([replace(LARGE, one_in=300)])
    defects.conclude({"divide/a": row("divide/a", compared)})
    assert defects.all["large"].status == expected


def test_examples_that_ended_before_the_assertion_do_not_count_as_tried() -> None:
    state = row("divide/a", 199)
    state.record.counts.examples = 300
    assert property_state(state) == "not tried enough"


def test_a_defect_counts_its_examples_by_property() -> None:
    defects = KnownDefects(declared("a", "b"))
    rows = {"x": row("x", 9), "y": row("y", 9)}
    rows["x"].record.known.update(a=2, b=1, c=9)
    rows["y"].record.known.update(a=3)
    defects.count(rows)
    assert [defect.properties for defect in defects.all.values()] == [{"x": 2, "y": 3}, {"x": 1}]


# Campaigns whose workers only pretend, on a subject that declares defects.

SUBJECT = """
import sys

from impl import *
from subjects import KnownDeviation, Subject, Symptom

WRONG = Symptom("value", "divide", "result")
LAYOUT = Symptom("value", "get_conv_state_layout", "result")
OFFSETS = Symptom("value", "prepare_chunk_offsets", "result")
SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (
        KnownDeviation(
            ("divide/*", "cdiv/*"),
            "https://example.org/1",
            Symptom("refusal", "divide", "the call"),
            id="large",
            title="Large numbers",
        ),
        KnownDeviation("conv-layout/environment", "https://example.org/2", LAYOUT, id="layout"),
        KnownDeviation("chunk-metadata/*", "https://example.org/3", OFFSETS, id="never"),
    ),
)
"""


def campaign(folder: Path, body: Body, **changes: Any) -> tuple[CampaignRecord, list[Explore]]:
    fields: dict[str, Any] = {"only": f"{EXACT} or {ROUNDS_UP} or {LAYOUT_READ}", "budget": 1.0} | changes
    with module(folder, "toy_declaring", SUBJECT) as name, stage(body) as given:
        plan = Plan("pretended", name, reports=str(folder / "reports"), corpus=str(folder / "corpus"))
        return coordinator.run(replace(plan, **fields)), given


def meets(task: Explore, actor: Actor) -> None:
    """Meets the defect in `ROUNDS_UP`."""
    if task.property == ROUNDS_UP:
        actor.passes(task, 30, known={"large": 3})
    else:
        actor.passes(task, 300)


def test_a_known_defect_is_counted_and_a_stale_declaration_is_wrong(tmp_path: Path) -> None:
    record, given = campaign(tmp_path, meets)
    large, layout, never = record.known
    statuses = {row.id: row.status for row in record.properties}
    assert statuses == {EXACT: "passed", ROUNDS_UP: "known", LAYOUT_READ: "UNEXPECTED PASS"}
    assert (large.status, set(large.properties)) == ("showed", {ROUNDS_UP})
    rounds_up = next(row for row in record.properties if row.id == ROUNDS_UP)
    assert large.properties == {ROUNDS_UP: rounds_up.known["large"]}
    assert rounds_up.examples == 30 * sum(task.property == ROUNDS_UP for task in given)
    assert (layout.status, layout.stale, layout.examples) == ("no longer fails", True, 0)
    assert never.status == "not tried"
    result = verdict(record)
    assert (result.word, result.exit_code) == ("NOT CLEAN", 1)
    assert any("known defect no longer fails: layout" in reason for reason in result.reasons)


def test_as_new_nothing_is_declared(tmp_path: Path) -> None:
    record, _ = campaign(tmp_path, meets, as_new=True)
    assert record.known == []
    assert {row.status for row in record.properties} <= {"passed", "known"}


def test_the_pending_case_of_a_known_defect_of_a_dead_worker_is_no_finding(tmp_path: Path) -> None:
    def dies(task: Explore, actor: Actor) -> None:
        if not task.isolated:
            actor.leave(ROUNDS_UP, a_case(property_id=ROUNDS_UP, subject="toy_declaring"))
            actor.die(-9)
        actor.passes(task)

    # On a slow machine the second try may not end within half a second.
    for budget in (0.5, 4.0, 32.0):
        folder = tmp_path / str(budget)
        folder.mkdir()
        record, _ = campaign(folder, dies, only=ROUNDS_UP, budget=budget)
        statuses = [row.status for row in record.properties]
        if statuses != ["not finished"]:
            break
    assert record.buckets == []
    assert statuses == ["known"]


@pytest.mark.parametrize(
    ("hidden", "watched"), [(True, [True, False, True, False, True]), (False, [True] * 5)]
)
def test_every_other_task_is_not_watched_where_a_known_finding_hides_later_failures(
    tmp_path: Path, hidden: bool, watched: list[bool]
) -> None:
    _, given = campaign(tmp_path, partial(_hides, hidden), only=EXACT, budget=0.5)
    assert [task.sanitized for task in given[:5]] == watched


def _hides(hidden: bool, task: Explore, actor: Actor) -> None:
    actor.passes(task, hidden=hidden)


# What is printed at the end.


def falsified(name: str, x: int, function: str = "divide") -> BucketRecord:
    message = f"result = {x + 1}, but should be {x} [{function}(x={x}, y=1)]"
    case = a_case(property_id=name, steps=(call(function, x=x, y=1),), message=message)
    return a_bucket(x, case, report=f"reports/{name}")


def told_of(record: CampaignRecord) -> list[str]:
    """The output of a campaign that found its canary and launched no kernel."""
    lines: list[str] = []
    print_sections(lines.append, replace(record, canary=""))
    return [line for line in lines if line]


def test_failures_at_one_call_and_place_are_printed_once_before_everything_else() -> None:
    buckets = falsified("toys/divide", 4), falsified("toys/add", 70)
    rows = [of("a", "passed", examples=5), of("b", "not applicable", "no")]
    lines = told_of(a_record(*buckets, properties=rows, corpus=[]))
    assert lines[0] == f"FALSIFIED: {headline(Case.from_data(buckets[0].case))}"
    assert "  also fails    toys/add, at the same call and place" in lines
    assert lines[-1] == "not applicable: b: no"
    # What passed is a number of the last line.
    assert not [line for line in lines if line.startswith("a")]


def of(name: str, status: str, detail: str = "", examples: int = 0) -> PropertyRecord:
    return PropertyRecord(name, "", "", status, Counts(examples), detail=detail)


def test_functions_that_a_port_lacks_share_a_line() -> None:
    rows = [
        replace(of(f"p{number}", "not applicable", f"f{number} is missing"), lacks=[f"f{number}"])
        for number in range(12)
    ]
    others = [of("q", "not applicable", "needs cuda, runs on cpu")]
    lines = told_of(a_record(properties=[*rows, *others], corpus=[]))
    assert lines == [
        "not applicable: 12 properties of functions that toy does not offer",
        "not applicable: q: needs cuda, runs on cpu",
    ]


def test_a_property_that_was_not_tested_in_spite_of_time_has_the_reason() -> None:
    rows = [
        of("a", "not tested", "nothing was compared in all 25 examples", TELLING),
        of("b", "not tested", "no example was run"),
        of("c", "not tested", "nothing was compared in all 24 examples", TELLING - 1),
    ]
    record = a_record(properties=rows, corpus=[])
    assert told_of(record) == ["not tested: a: nothing was compared in all 25 examples", not_reached(record)]
    assert not_reached(record).startswith("not tested for want of time: b, c; --budget ")


@pytest.mark.parametrize(
    ("budget", "reached", "lacking", "enough"),
    [(60.0, 30, 10, 120), (1.0, 0, 10, 20), (None, 1, 1, 0), (60.0, 100, 1, 100)],
)
def test_a_budget_that_would_do_follows_from_how_far_this_one_came(
    budget: float | None, reached: int, lacking: int, enough: int
) -> None:
    rows = [of(f"a{n}", "passed", examples=1) for n in range(reached)]
    rows += [of(f"b{n}", "not tested") for n in range(lacking)] + [of("c", "not applicable")]
    assert budget_that_would_do(a_record(properties=rows, budget=budget)) == enough


# Properties by their ids.


@pytest.mark.parametrize("declared", ["toys/divide", "toys/*"])
def test_a_defect_that_no_longer_fails_may_be_declared_by_id_or_pattern(declared: str) -> None:
    defects = KnownDefects([replace(LARGE, property=declared)], selected=declared != "toys/*")
    property_state = PropertyState(a_property(id="toys/divide"))
    property_state.record.counts = Counts(500, 500)
    defects.conclude({"toys/divide": property_state})
    assert [defect.status for defect in defects.all.values()] == ["no longer fails"]
