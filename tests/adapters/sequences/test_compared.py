"""Compared examples of a library of sequences: an operation that happened, or a continuation, was held against a fresh run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from properties.strategies.sequences import SequenceStory
from properties.test_sequences import SequenceRun
from statecheck.case import Case
from statecheck.case.values import Returned, call
from statecheck.diagnose.replay import replay_case
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import Status, verdict_of
from statecheck.sequences import damaged
from statecheck.subject import adapted
from statecheck.subject.subject import SequenceChoices
from tests.adapters.sequences import reference_port

_OPTIONAL = {
    "fork": ("fork",),
    "roll-back": ("roll_back",),
    "save": ("save", "load"),
    "load-damaged": ("load_damaged", "save"),
    "cancel": ("cancel",),
    "drop": ("drop",),
    "reorder": ("reorder",),
    "generate": ("generate",),
}
_FORMS = ("pads", "packed-rows", "all-logits", "shared-tokens")
"""By property, the functions that it is about."""


def port(name: str = "compared_port", **changes: Any) -> ModuleType:
    """The reference port with other functions; None takes one away."""
    module = ModuleType(name)
    module.__file__ = __file__
    vars(module).update({key: value for key, value in vars(reference_port).items() if key[0] != "_"})
    vars(module).update({"models": lambda: ("small",)} | changes)
    return module


def context_of(**changes: Any) -> ExecutionContext:
    subject = adapted(port(**changes))
    return ExecutionContext(subject, ordinary_port(subject, "cpu"))


def explored(property_id: str, examples: int = 60, **changes: Any) -> ExecutionContext:
    execution_context = context_of(**changes)
    load_properties()[property_id].explore(execution_context, seed=1, max_examples=examples)
    return execution_context


@pytest.mark.parametrize("name", _OPTIONAL)
def test_a_property_is_not_applicable_to_a_port_that_lacks_its_function(name: str) -> None:
    lacking = _OPTIONAL[name][0]
    reason = load_properties()[f"sequences/{name}"].not_applicable(context_of(**{lacking: None}))
    assert reason == f"compared_port has no {lacking}"


def test_stop_tokens_are_not_applicable_to_a_port_whose_generate_takes_none() -> None:
    def generate(context: reference_port.SmallContext, sequence: int, n: int) -> list[int]:
        return reference_port.generate(context, sequence, n)

    stop = load_properties()["sequences/stop"]
    assert stop.not_applicable(context_of(generate=generate)) == "compared_port has no stop"
    assert stop.not_applicable(context_of()) is None


@pytest.mark.parametrize("name", _FORMS)
def test_a_form_of_extend_is_compared_where_a_port_and_a_model_have_it(name: str) -> None:
    form = name.replace("-", "_")
    assert explored(f"sequences/{name}").counts.compared > 40

    def extend(context: Any, rows: Any) -> Any:
        return reference_port.extend(context, rows)

    reason = load_properties()[f"sequences/{name}"].not_applicable(context_of(extend=extend))
    assert reason == f"compared_port has no {form}"
    listed = {key: values for key, values in reference_port.features("small").items() if key != form}
    verdict = verdict_of(explored(f"sequences/{name}", features=lambda _: listed).counts)
    assert verdict.status is Status.NOT_APPLICABLE
    assert f"small: extend has no feature {form}" in verdict.reason


@pytest.mark.parametrize("name", [name for name in _OPTIONAL if name != "generate"])
def test_a_property_is_not_applicable_where_its_operation_always_reports_failure(name: str) -> None:
    function = _OPTIONAL[name][-1]
    failing: dict[str, Any] = {function: lambda *_: False}
    execution_context = explored(f"sequences/{name}", **failing)
    verdict = verdict_of(execution_context.counts)
    assert (verdict.status, execution_context.counts.compared) == (Status.NOT_APPLICABLE, 0)
    assert verdict.reason == f"small: {function} reported that it failed"


@pytest.mark.parametrize("name", ["pieces", "fork", "save", "reorder", "any"])
def test_nothing_is_compared_where_no_sequence_that_has_tokens_can_go_on(name: str) -> None:
    def extend(context: Any, rows: Any) -> Any:
        if any(context.states.get(sequence) for sequence, _ in rows):
            raise NotImplementedError("no continuation")
        return reference_port.extend(context, rows)

    execution_context = explored(f"sequences/{name}", extend=extend, generate=None)
    verdict = verdict_of(execution_context.counts)
    assert (verdict.status, execution_context.counts.compared) == (Status.NOT_APPLICABLE, 0)
    assert "small: no continuation" in verdict.reason


@pytest.mark.parametrize(
    ("name", "steps", "is_compared"),
    [
        ("pieces", [("extend", 0)], False),
        ("pieces", [("extend", 0), ("extend", 0)], True),
        # An empty sequence has nothing that an order could mix up.
        ("reorder", [("extend", 0), ("reorder", 2), ("extend", 1)], False),
        ("reorder", [("extend", 0), ("reorder", 2), ("extend", 0)], True),
        ("reorder", [("extend", 0), ("extend", 0)], False),
    ],
)
def test_a_sequence_is_evidence_of_what_was_done_to_its_tokens(
    name: str, steps: list[tuple[str, int]], is_compared: bool
) -> None:
    trial = context_of().begin(load_properties()[f"sequences/{name}"])
    trial.agrees(call("Sequences", model="small", seed=0, features={}, bind="library"))
    run = SequenceRun(trial, SequenceStory(0, (), ()))
    for function, number in steps:
        if function == "extend":
            run.take("extend", context=0, rows=[(number, (1, 2))], features={})
        else:
            run.take("reorder", context=0, order=tuple(range(number)))
    assert trial.is_compared is is_compared


def test_a_port_may_change_the_lists_that_it_is_handed() -> None:
    def extend(context: Any, rows: Any) -> Any:
        logits = reference_port.extend(context, rows)
        for _, tokens in rows:
            tokens.clear()
        return logits

    assert verdict_of(explored("sequences/pieces", extend=extend).counts).status is Status.PASSED


def test_a_port_that_lacks_operations_is_compared_by_the_property_of_all_operations() -> None:
    execution_context = explored(
        "sequences/any", fork=None, save=None, load=None, reorder=None, generate=None
    )
    assert execution_context.counts.compared > execution_context.counts.examples / 3
    assert not execution_context.counts.not_offered


def _of_models(changed: Callable[[str, Any], Any]) -> dict[str, Any]:
    """A port of two models: "small", and "odd", whose logits are changed."""

    def new(model: str, seed: int) -> Any:
        context = reference_port.new("small", seed)
        context.model = model  # type: ignore[attr-defined]
        return context

    def extend(context: Any, rows: Any) -> Any:
        logits = reference_port.extend(context, rows)
        return changed(context.model, logits)

    return {"models": lambda: ("small", "odd"), "new": new, "extend": extend}


def _raises(model: str, logits: Any) -> Any:
    if model == "odd":
        raise RuntimeError("no such kernel")
    return logits


def _gives_nan(model: str, logits: Any) -> Any:
    return [[float("nan")] * 16 for _ in logits] if model == "odd" else logits


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (_raises, "odd: not verified: a fresh run ends in RuntimeError: no such kernel"),
        (_gives_nan, "odd: not verified: logits of fresh runs are no finite numbers, or not of one size"),
    ],
)
def test_a_model_that_cannot_be_verified_is_counted_by_its_name(changed: Any, why: str) -> None:
    execution_context = context_of(**_of_models(changed))
    execution_context.configuration = "odd"
    load_properties()["sequences/pieces"].explore(execution_context, seed=1, max_examples=9)
    assert execution_context.counts.unverified == {"odd": why}
    assert verdict_of(execution_context.counts).status is Status.NOT_VERIFIED


def test_a_model_that_the_port_does_not_list_any_more_is_not_verified() -> None:
    """`models` lists another model each time: a campaign has drawn its model from the first list."""
    execution_context = context_of()
    execution_context.configuration = "gone"
    load_properties()["sequences/pieces"].explore(execution_context, seed=1, max_examples=5)
    assert execution_context.counts.unverified == {"gone": "gone: not verified: no model of compared_port"}
    assert verdict_of(execution_context.counts).status is Status.NOT_VERIFIED


def test_a_model_whose_features_cannot_be_listed_is_not_verified() -> None:
    def features(model: str) -> dict[str, Any]:
        raise RuntimeError(f"features of {model}")

    execution_context = explored("sequences/pieces", 5, features=features)
    why = "small: not verified: features ends in RuntimeError: features of small"
    assert execution_context.counts.unverified == {"small": why}


@pytest.mark.parametrize(
    ("drawn", "rows"), [([(2, 0)], 1), ([(2, 0), (1, 1)], 2)], ids=["not drawn", "drawn"]
)
def test_a_feature_gives_what_it_needs_its_value_where_that_was_not_drawn(drawn: Any, rows: int) -> None:
    listed = {"engine": ("steps", "batch"), "rows": (0, 1, 2), "late": (0, 1)}
    needs = {"late": ("rows", 1), "rows": ("engine", "batch")}
    choices = SequenceChoices(lambda: ("small",), lambda *_: listed, needs=needs)
    found = choices.features("small", "generate", drawn)
    assert found == {"late": 1, "rows": rows, "engine": "batch"}


def test_a_need_that_is_no_feature_with_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^NEEDS\['late'\] = 'rows', but should be another feature and its"):
        adapted(port(NEEDS={"late": "rows"}))
    listed = {"rows": (0, 1), "late": (0, 1)}
    choices = SequenceChoices(lambda: ("small",), lambda *_: listed, needs={"late": ("rows", 3)})
    rule = r"^NEEDS\['late'\] = \('rows', 3\), but should be one of the values \(0, 1\)"
    with pytest.raises(ValueError, match=rule):
        choices.features("small", "generate", [(1, 0)])


def test_models_that_cannot_be_listed_are_refused_as_a_wrong_port() -> None:
    def models() -> tuple[str, ...]:
        raise OSError("no list")

    choices = adapted(port(models=models)).sequences
    assert choices is not None
    with pytest.raises(ValueError, match=r"models\(\) = OSError: no list, but should be names"):
        _ = choices.models


def test_examples_are_about_the_configuration_of_the_bench() -> None:
    execution_context = context_of(**_of_models(lambda model, logits: logits))
    for model in ("odd", "small"):
        execution_context.configuration = model
        load_properties()["sequences/pieces"].explore(execution_context, seed=1, max_examples=30)
    assert set(execution_context.counts.configurations) == {"odd", "small"}
    assert execution_context.counts.configurations.total() == execution_context.counts.compared


def test_models_declared_as_unsupported_are_not_tried() -> None:
    changes = _of_models(_raises) | {"UNSUPPORTED": {"o*": "kernels are for GPUs"}}
    choices = adapted(port(**changes)).sequences
    assert choices is not None
    assert (choices.models, choices.why_unsupported("odd")) == (("small",), "kernels are for GPUs")


@pytest.mark.parametrize("declared", [["odd"], {"odd": ""}, {"odd": 3}])
def test_a_declaration_of_unsupported_models_without_reasons_is_refused(declared: Any) -> None:
    with pytest.raises(ValueError, match=r"UNSUPPORTED = .* but should be reasons"):
        adapted(port(UNSUPPORTED=declared))


def test_a_model_that_is_listed_twice_is_refused() -> None:
    choices = adapted(port(models=lambda: ("small", "small"))).sequences
    assert choices is not None
    with pytest.raises(ValueError, match="should name each model once"):
        _ = choices.models


@pytest.fixture
def failing_case() -> Iterator[Case]:
    """A failure of a port that copies nothing in a fork."""

    def fork(context: Any, source: int, target: int) -> None:
        context.states[target] = [reference_port.EMPTY for _ in context.states[source]]

    sys.modules["compared_port"] = port(fork=fork)
    with pytest.raises(Falsified) as raised:
        explored("sequences/fork", 200, fork=fork)
    yield raised.value.case
    del sys.modules["compared_port"]


def test_a_case_whose_operation_reports_failure_now_is_not_called_fixed(failing_case: Case) -> None:
    repaired = adapted(port(fork=reference_port.fork))
    refusing = adapted(port(fork=lambda *_: False))
    assert any(isinstance(outcome, Returned) for outcome in failing_case.actual)
    lent = [(subject, ordinary_port(subject, "cpu")) for subject in (repaired, refusing)]
    verdicts = [replay_case(failing_case, subject, "cpu", lent_port) for subject, lent_port in lent]
    assert [replayed.verdict for replayed in verdicts] == ["FIXED", "NOT APPLICABLE"]
    assert (
        verdicts[1].message == "small: fork reported that it failed, which it had not when the case was found"
    )


def test_fields_of_a_step_that_laws_read_are_not_listed_as_compared_with_no_rule() -> None:
    assert explored("sequences/pieces", examples=5).counts.unchecked == {}


def test_wrong_tokens_are_reported_by_a_port_that_can_neither_count_nor_drop() -> None:
    with pytest.raises(Falsified, match="3 tokens, but should be 1"):
        explored("sequences/generate", length=None, drop=None, generate=lambda *_, **__: [1, 2, 3])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"load_part": print}, "load_part is a function, but should be named load_damaged"),
        ({"DAMAGES": None}, "DAMAGES = .*None.*, but should be some of"),
    ],
)
def test_a_port_with_a_name_that_means_nothing_is_refused(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapted(port(**names))


@pytest.mark.parametrize(("data", "damage"), [(b"", "first byte"), (b"ab", "third byte")])
def test_a_damage_that_cannot_be_is_refused(data: bytes, damage: str) -> None:
    with pytest.raises(ValueError, match=r"but should .*\[damaged\]"):
        damaged(data, damage)
