"""The protocol of sequences: a port that keeps the law passes, a model that hides its state is not verified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from properties import test_sequences as statements
from statecheck.campaign.plan import Plan
from statecheck.case.values import Name, call
from statecheck.cli.campaign import _offers
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.property import Property
from statecheck.execution.registry import PROPERTIES
from statecheck.report.scripts.script import repro_script
from statecheck.subject import adapted, load
from statecheck.subject.loading import needs_tensors
from statecheck.subject.not_offered import NotOffered
from tests.adapters.sequences import reference_port
from tests.helpers.slow import slow_after

PORT = "tests.adapters.sequences.reference_port"
OURS = [one for one in PROPERTIES.values() if one.module == statements.__name__]


@pytest.mark.parametrize("tested", slow_after(1, OURS), ids=lambda one: one.id.replace("/", "-"))
def test_a_port_that_keeps_the_law_passes(tested: Property) -> None:
    subject = load(PORT)
    execution_context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    assert tested.not_applicable(execution_context) is None
    execution_context.configuration = "forgetful"
    tested.explore(execution_context, seed=1, max_examples=5)
    assert any("forgetful: not verified" in reason for reason in execution_context.counts.not_offered)
    execution_context.configuration = "small"
    tested.explore(execution_context, seed=1, max_examples=150)
    assert execution_context.counts.compared > 5


def test_a_port_needs_no_tensors_and_other_subjects_do() -> None:
    assert not needs_tensors(PORT)
    assert needs_tensors("impl")
    assert needs_tensors("subjects.plain")


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"STATECHECK_SEQUENCES": 2}, r"STATECHECK_SEQUENCES = 2, but should be 1"),
        ({"STATECHECK_SEQUENCES": 1}, r"models = nothing, but should be a function"),
    ],
)
def test_a_module_that_is_no_port_is_refused(constants: dict[str, int], message: str) -> None:
    module = ModuleType("no_port")
    vars(module).update(constants)
    with pytest.raises(ValueError, match=message):
        adapted(module)


def test_models_are_chosen_by_name_or_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECHECK_MODELS", "forget*")
    choices = load(PORT).sequences
    assert choices is not None
    assert choices.models == ("forgetful",)
    monkeypatch.setenv("STATECHECK_MODELS", "small,large")
    choices = load(PORT).sequences
    assert choices is not None
    with pytest.raises(ValueError, match=r"STATECHECK_MODELS = 'large', but should be the name of one of"):
        _ = choices.models


_BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
from properties import test_sequences
from statecheck.case.values import Name, call
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import load

subject = load("{PORT}")
context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
load_properties()["sequences/any"].explore(context, seed=1, max_examples=20)
assert context.counts.compared
"""


def test_sequences_are_explored_where_neither_torch_nor_triton_can_be_imported() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED], cwd=root, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_case_becomes_a_script_that_calls_the_port(tmp_path: Path) -> None:
    subject = load(PORT)
    execution_context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    trial = execution_context.begin(next(one for one in OURS if one.id == "sequences/fork"))
    trial.agrees(call("Sequences", model="small", seed=0, features={"micro_batch": 3}, bind="library"))
    library = Name("library")
    trial.agrees(call("Sequences.extend", self=library, context=0, rows=[(0, (1, 2))], features={}))
    trial.agrees(call("Sequences.fork", self=library, context=0, source=0, target=1))
    with pytest.raises(Falsified) as raised:
        trial.holds(False, "1 = 2")
    script = repro_script(raised.value.case, tmp_path, Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "port.fork(c0, 0, 1)" in script
    assert done.stdout.endswith("the defect is gone\n")


def test_models_are_listed_before_the_time_of_a_campaign_begins() -> None:
    plan = Plan("listed", subject="tests.adapters.sequences.reference_port", commit="", budget=1.0)
    assert _offers(plan).splitlines()[-1] == f"models: {len(reference_port.models())}"


@pytest.mark.parametrize("features", [{"slots": 1}, {"layers": 7}])
def test_a_case_of_another_port_is_not_offered(features: dict[str, int]) -> None:
    with pytest.raises(NotOffered, match="new has no feature"):
        load(PORT).module.Sequences("small", 0, features)


def test_a_case_of_a_model_of_another_port_is_not_offered() -> None:
    with pytest.raises(NotOffered, match="no model of"):
        load(PORT).module.Sequences("llama-server:lfm2", 0, {})
