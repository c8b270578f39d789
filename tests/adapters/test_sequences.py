"""The protocol of sequences: a port that keeps the law passes, a model that hides its state is not verified."""

from __future__ import annotations

from types import ModuleType

import pytest

from properties import test_sequences as statements
from statecheck.campaign.plan import Plan
from statecheck.cli.campaign import _offers
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.property import Property
from statecheck.execution.registry import PROPERTIES
from statecheck.subject import adapted, load
from statecheck.subject.loading import needs_tensors
from statecheck.subject.subject import NotOffered
from tests.adapters.sequences import reference_port
from tests.helpers.slow import slow_after

PORT = "tests.adapters.sequences.reference_port"
OURS = [
    tested
    for tested in PROPERTIES.values()
    # The port has no store of prompts; test_reuse.py has one that has.
    if tested.module == statements.__name__ and tested.id != "sequences/again"
]


@pytest.mark.parametrize("tested", slow_after(1, OURS), ids=lambda tested: tested.id.replace("/", "-"))
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
