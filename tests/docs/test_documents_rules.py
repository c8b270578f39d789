"""A subject that follows one of the documents' own rules, where ours differ, fails a state machine within a few steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st

from oracle.lifecycle.requests import ScheduledRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from properties import test_lifecycle
from properties.engine.driver import RUNNERS
from properties.engine.metadata import ForwardBatch
from properties.engine.rows import ByRow
from properties.engine.world import World
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.setup import Setup
from statecheck.case import Case
from statecheck.diagnose.replay import replay_file
from statecheck.execution.registry import load_properties
from statecheck.kernels import triton_mode
from statecheck.report.markdown import write_report
from subjects import Subject, load
from tests.breakages.broken import run_scripts
from tests.breakages.table import BREAKAGES, hunt
from tests.breakages.variants import broken_subject

MOST_STEPS = 7
ROWS, SLOTS, WITHOUT_COPIES = (
    f"requests_{where}_read_the_state_of_their_tokens" for where in ("in_rows", "in_slots", "without_copies")
)

TEMPORAL = Kept("temporal", (2, 2, 2))
PLAIN = Setup((Group((TEMPORAL,)),), ("temporal",), block_size=2)
BOTH = Setup((Group((Kept("conv", (3, 2)), TEMPORAL)),), ("conv", "temporal"), block_size=2, num_spec=1)
# Where kernels are interpreted, the machine is not given every engine but one, to be quick.
SMALL = World(BOTH, ("gdn",), num_blocks=16, max_num_seqs=2, max_model_len=16)


@dataclass(frozen=True)
class Hunt:
    """Where a rule is looked for: the property, and an engine if not in all that the property knows."""

    name: str
    world: World | None = None


HUNTS = {
    "rows of one token are speculative beside drafts only": Hunt(WITHOUT_COPIES),
    "a short row is a decode, whatever state it has": Hunt(WITHOUT_COPIES),
    "counts of slots are set while siblings read them": Hunt(SLOTS, replace(SMALL, runner="V2")),
    "columns of resumed requests are kept": Hunt(ROWS, replace(SMALL, setup=PLAIN, kinds=("mamba2",))),
}
"""By the defect that is the documents' own rule: see documents 1 and 3, document 4, and releases before document 4."""
RULES = {breakage.name: breakage.variant for breakage in BREAKAGES if breakage.name in HUNTS}


@dataclass(eq=False)
class RowsForget(ByRow):
    """Rows that sit a step out are removed, and come back with an accepted count of 1. Contract 2.4."""

    _present: set[str] = field(default_factory=set)

    def tell(self, scheduled: Scheduled) -> None:
        super().tell(scheduled)
        present = {row.id for row in scheduled.rows}
        self.accepted.update(dict.fromkeys(present - self._present, 1))
        self._present = present


@dataclass(eq=False)
class PromptsAlone(ByRow):
    """A request past the tokens of its prompt is not prefilling, though it may replay others. Contract 1.6."""

    _prompts: dict[str, int] = field(default_factory=dict)

    def batch(self, rows: tuple[ScheduledRequest, ...], padding: int) -> ForwardBatch:
        for row in rows:
            if row.samples:
                self._prompts.setdefault(row.id, row.end)
        marked = (replace(row, is_prefilling=self._in_prompt(row)) for row in rows)
        return super().batch(tuple(marked), padding)

    def _in_prompt(self, row: ScheduledRequest) -> bool:
        return row.computed < self._prompts.get(row.id, row.end)


ENGINES = {
    "rows that forget": (RowsForget, Hunt(WITHOUT_COPIES, replace(SMALL, mode="none"))),
    "prompts alone": (
        PromptsAlone,
        Hunt(ROWS, replace(SMALL, setup=replace(PLAIN, num_spec=1), kinds=("mamba2",))),
    ),
}


def steps_of(case: Case) -> int:
    """The engine's steps up to the one that shows what is wrong, which is the last one in the picture."""
    assert case.timeline is not None
    _, number, _ = case.timeline.moments[-1].title.split(maxsplit=2)
    return 1 + int(number.rstrip(","))


def found(where: Hunt, subject: Subject) -> Case:
    """The shrunk case in which the property finds the subject out."""
    with pytest.MonkeyPatch.context() as patch:
        if where.world is not None:
            patch.setattr(test_lifecycle, "worlds", lambda **_: st.just(where.world))
        catch = hunt(load_properties()[where.name], subject, shrink=True)
    assert catch is not None, f"{where.name} finds nothing in {subject.name}"
    steps = steps_of(catch.case)
    print(f"{subject.name}: {catch.examples} examples, {steps} engine steps: {catch.case.message}")
    return catch.case


@cache
def found_by_rule(rule: str) -> Case:
    if not triton_mode.executes():
        pytest.skip("kernels are compiled in this process; rules are hunted where they are executed")
    with TemporaryDirectory() as folder, broken_subject(RULES[rule], Path(folder)) as subject:
        return found(HUNTS[rule], subject)


def found_with(engine: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    if not triton_mode.executes():
        pytest.skip("kernels are compiled in this process; engines are hunted where they are executed")
    runner, where = ENGINES[engine]
    monkeypatch.setitem(RUNNERS, "V1", runner)
    return found(where, load("impl"))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_the_documents_is_found_out_in_a_few_steps(rule: str) -> None:
    assert steps_of(found_by_rule(rule)) <= MOST_STEPS


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_decides_as_the_documents_do_is_found_out_in_a_few_steps(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_of(found_with(engine, monkeypatch)) <= MOST_STEPS


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_the_message_names_a_request_and_the_picture_ends_where_it_went_wrong(rule: str) -> None:
    case = found_by_rule(rule)
    assert case.timeline is not None
    assert any(row.request in case.message for row in case.timeline.moments[-1].rows)


@pytest.mark.parametrize("rule", RULES)
def test_replayed_it_fails_with_the_rule_and_is_fixed_without(rule: str, tmp_path: Path) -> None:
    saved = found_by_rule(rule).save(tmp_path / "case.json")
    with broken_subject(RULES[rule], tmp_path) as subject:
        verdicts = [replay_file(saved, name, "cpu").verdict for name in (subject.name, "impl")]
    assert verdicts == ["FAILED", "FIXED"]


@pytest.mark.slow
def test_repro_scripts_exit_with_1_with_the_rule_and_with_0_without(tmp_path: Path) -> None:
    intact = {"SUBJECT": "impl"}
    scripts = [script(rule, tmp_path) for rule in RULES]
    jobs = [(path, variables) for path in scripts for variables in ({}, intact)]
    verdicts, _ = run_scripts(tmp_path, jobs)
    assert [verdict.code for verdict in verdicts] == [1, 0] * len(RULES), verdicts


def script(rule: str, folder: Path) -> Path:
    """The `repro.py` of the rule's case, beside the broken copy, which stays there."""
    with broken_subject(RULES[rule], folder) as subject:
        return write_report(found_by_rule(rule), folder / "reports", subject.module) / "repro.py"
