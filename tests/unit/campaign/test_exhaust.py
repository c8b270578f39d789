"""The command `exhaust`: how far it comes, what it says of it, and how it ends; and how inputs are dealt to workers."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from statecheck.campaign.coordinator import Campaign
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.campaign.scheduler import DecisionProgress, Exhaustion
from statecheck.campaign.tasks import Explore, Explored
from statecheck.case import Case
from statecheck.cli import main as cli
from statecheck.diagnose.replay import FAILED, FIXED, replay_file
from statecheck.execution.enumerations import enumerations
from statecheck.execution.registry import load_properties
from tests.helpers.planted import broken_subject, defect_named
from tests.unit.campaign.nightly_examples import a_state
from tests.unit.campaign.pretended import Actor, stage

pytestmark = pytest.mark.usefixtures("executed")

CHUNKS = "varlen-chunks/ends"
MISCOUNTED = "a sequence that ends at a boundary gets an empty chunk"


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str
    folder: Path

    @property
    def record(self) -> CampaignRecord:
        return CampaignRecord.load(self.folder / "reports" / FILE)

    def row(self, decision: str) -> list[str]:
        """The cells behind the decision's name."""
        [line] = re.findall(rf"^{decision} +│(.*)$", self.output, re.MULTILINE)
        return [cell.strip() for cell in line.split("│")]


def exhaust(folder: Path, *options: str) -> Ended:
    """Run the command in this process."""
    printed = io.StringIO()
    command = ["exhaust", "--device", "cpu", "--workers", "1", "--reports", str(folder / "reports")]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(folder)
        code = cli.main([*command, *options])
    return Ended(code, printed.getvalue(), folder)


@pytest.mark.slow
def test_bounds_grow_until_the_budget_is_used_and_only_complete_ones_count(tmp_path: Path) -> None:
    plan = Plan(
        "grows",
        only="varlen-chunks/ends or block-table/align-columns",
        budget=6.0,
        exhaustive=True,
        replayed=False,
        # It may take as long on a busy machine.
        canary=False,
        reports=str(tmp_path),
        corpus=str(tmp_path / "corpus"),
    )
    campaign = Campaign(plan, lambda campaign: None)
    record = campaign.run()
    assert record.seconds >= 6
    assert {row.status for row in record.properties} == {"passed"}
    assert campaign.exhaustion is not None
    assert list(campaign.exhaustion.progress) == ["columns", "chunks"]
    for decision, progress in campaign.exhaustion.progress.items():
        layers = [len(list(enumerations()[decision].inputs(bound))) for bound in range(progress.bound + 1)]
        assert progress.complete == sum(layers[:-1])
        assert 0 <= progress.begun < layers[-1]


def test_a_defect_is_a_case_of_the_bound_where_it_first_shows(tmp_path: Path) -> None:
    variant = defect_named(MISCOUNTED).variant
    with broken_subject(variant, tmp_path) as subject:
        # It ends when nothing is left to be tried, not when the budget is used up.
        ended = exhaust(tmp_path, "--budget", "300s", "--only", CHUNKS, "--subject", subject.name)
        [bucket] = ended.record.buckets
        saved = Path(bucket.report) / "case.json"
        assert replay_file(saved, subject.name, "cpu").verdict == FAILED
    assert (ended.code, "NOT CLEAN" in ended.output.splitlines()) == (1, True)
    assert ended.record.seconds < 300
    assert ended.row("chunks")[1] == "1"
    assert ended.row("chunks")[3].startswith("2: falsified")
    [call] = Case.load(saved).calls
    assert call.named["query_start_loc"].values() == (0, 1)
    assert call.named["chunk_size"] == 1
    assert replay_file(saved, "impl", "cpu").verdict == FIXED


@pytest.mark.slow
def test_of_a_batch_that_fails_the_request_that_does_is_the_case(tmp_path: Path) -> None:
    name = "a boundary that the sampled token reaches is not stored"
    variant = defect_named(name).variant
    with broken_subject(variant, tmp_path) as subject:
        ended = exhaust(
            tmp_path, "--budget", "60s", "--only", "v1-postprocess/boundary", "--subject", subject.name
        )
    assert ended.row("boundary of V1")[3].startswith("2: falsified")
    [bucket] = ended.record.buckets
    last = Case.load(Path(bucket.report) / "case.json").calls[-1]
    assert last.named["num_reqs"] == 1


def test_a_subject_without_the_functions_is_not_green(tmp_path: Path) -> None:
    with stage(lambda task, actor: None):
        ended = exhaust(tmp_path, "--budget", "20s", "--subject", "math")
    assert ended.code == 2
    assert "Nothing was compared" in ended.output
    lacks = "not applicable: math has no compute_varlen_chunk_metadata"
    assert ended.row("chunks")[1:] == ["", "0", lacks]


def test_inputs_that_a_bound_counts_and_leaves_out_are_printed(tmp_path: Path) -> None:
    def tries(task: Explore, actor: Actor) -> None:
        actor.passes(task, tried=1, exhausted=task.inputs is not None and task.inputs.bound < 3)

    with stage(tries):
        ended = exhaust(tmp_path, "--budget", "2s", "--only", "fla-chunks")
    assert "chunk indices, chunk offsets: a bound counts sequences and tokens in all" in ended.output
    assert "  tried once: a chunk size above all tokens stands for all larger ones" in ended.output
    assert "  left out: starts of 64 bits, strided starts" in ended.output
    assert ended.row("chunk indices")[1] == "2"
    assert ended.row("chunk indices")[3].startswith("3: incomplete, ")
    assert (ended.code, "CLEAN" in ended.output.splitlines()) == (0, True)


# How inputs are dealt to workers.


@pytest.fixture
def exhaustion() -> Exhaustion:
    plan = Plan("dealt", engines=2, budget=60.0, exhaustive=True)
    return Exhaustion(plan, a_state([load_properties()[CHUNKS]]))


def given(exhaustion: Exhaustion) -> Explore:
    task = exhaustion.next(60.0)
    assert task is not None
    return task


def tried(number: int, *, exhausted: bool, status: str = "passed") -> Explored:
    return Explored(CHUNKS, status, 0.5, tried=number, exhausted=exhausted)


def chunks(exhaustion: Exhaustion) -> DecisionProgress:
    return exhaustion.progress["chunks"]


def test_a_bound_begins_when_all_parts_of_the_one_before_are_tried(exhaustion: Exhaustion) -> None:
    first, second = given(exhaustion), given(exhaustion)
    assert exhaustion.next(60.0) is None
    exhaustion.ended(first, tried(3, exhausted=True))
    assert chunks(exhaustion).bound == 0
    exhaustion.ended(second, tried(2, exhausted=True))
    assert (chunks(exhaustion).bound, chunks(exhaustion).complete, chunks(exhaustion).begun) == (1, 5, 0)


def test_a_part_goes_on_where_its_time_was_up(exhaustion: Exhaustion) -> None:
    task = given(exhaustion)
    exhaustion.ended(task, tried(7, exhausted=False))
    given(exhaustion)
    assert task.inputs is not None
    again = given(exhaustion).inputs
    assert again is not None
    assert (again.part, again.done) == (task.inputs.part, 7)
    assert chunks(exhaustion).begun == 7


def test_a_part_that_was_lost_is_tried_again_with_the_subject_apart(exhaustion: Exhaustion) -> None:
    task = given(exhaustion)
    exhaustion.ended(task, None)
    chunks(exhaustion).property_state.deaths = 1
    again = given(exhaustion)
    assert (again.inputs, again.isolated, task.isolated) == (task.inputs, True, False)
    exhaustion.ended(again, tried(0, exhausted=False, status="error"))
    assert given(exhaustion).inputs == task.inputs


def test_a_failure_that_a_sibling_decision_met_falsifies_this_decision_too() -> None:
    [name] = {
        enumeration.property for enumeration in enumerations().values() if enumeration.decision == "prefixes"
    }
    tested = load_properties()[name]
    ledger = a_state([tested])
    ledger.property_states[tested.id].buckets.add("a bucket")
    exhaustion = Exhaustion(Plan("siblings", engines=2, budget=60.0, exhaustive=True), ledger)
    assert {"prefixes", "rows with drafts"} <= exhaustion.progress.keys()
    assert given(exhaustion).known == frozenset()


def test_a_decision_that_is_falsified_is_not_tried_any_more(exhaustion: Exhaustion) -> None:
    exhaustion.ended(given(exhaustion), tried(1, exhausted=False, status="falsified"))
    assert exhaustion.next(60.0) is None
    assert (chunks(exhaustion).bound, chunks(exhaustion).falsified) == (0, True)
