"""A port counts what its features did; a campaign names those that did nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from weakref import WeakKeyDictionary

import pytest

import properties.test_sequences  # noqa: F401 - the statements
from statecheck.campaign.marks import effects
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import EFFECTS, CampaignRecord, MarkRecord
from statecheck.campaign.report import without_effect
from statecheck.campaign.worker import noted
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import adapted
from statecheck.subject.subject import Subject
from subjects.sequences.protocol import PortModule
from tests.adapters.sequences import reference_port

CUT, BATCHED = "micro_batch: a row was cut", "extend: rows came in one batch"


@pytest.fixture
def port() -> Iterator[ModuleType]:
    """The reference port, which counts rows that were cut, and says that it counts batches."""
    module = ModuleType("counting_port")
    vars(module).update(vars(reference_port) | {"__name__": "counting_port"})
    module.EFFECTS = {CUT: "extend", BATCHED: "extend"}  # type: ignore[attr-defined]
    # Not by `id`, which a context has that a freed one had.
    cut: WeakKeyDictionary[reference_port.SmallContext, int] = WeakKeyDictionary()

    def extend(context: reference_port.SmallContext, rows: list[tuple[int, list[int]]]) -> list[list[float]]:
        longer = sum(len(tokens) > context.micro_batch for _, tokens in rows)
        cut[context] = cut.get(context, 0) + longer
        return reference_port.extend(context, rows)

    def counted(context: reference_port.SmallContext) -> Mapping[str, int]:
        return {CUT: cut.get(context, 0)}

    module.extend, module.effects = extend, counted  # type: ignore[attr-defined]
    sys.modules["counting_port"] = module
    yield module
    del sys.modules["counting_port"]


def _scenario(subject: Subject) -> Mapping[str, tuple[str, ...]]:
    """Effects of calls with rows of one and of ten tokens."""
    library = subject.module.Sequences(model="small", seed=0, features={})
    short = library.extend(context=0, rows=[(0, [1])], features={})
    long = library.extend(context=0, rows=[(0, [1] * 10)], features={})
    return {"short": short["effects"], "long": long["effects"]}


def test_a_step_has_the_effects_that_its_call_adds(port: ModuleType) -> None:
    assert _scenario(adapted(port)) == {"short": (), "long": (CUT,)}


def test_an_effect_that_the_port_does_not_declare_is_refused(port: ModuleType) -> None:
    port.EFFECTS = {BATCHED: "extend"}  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="effects = 'micro_batch: a row was cut', but should be one of"):
        _scenario(adapted(port))


def test_an_effect_of_an_unknown_operation_is_refused(port: ModuleType) -> None:
    port.EFFECTS = {CUT: "decode"}  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="'decode', but should be one of extend, fork"):
        PortModule.of(port)


def test_an_exploration_notes_the_effects_of_its_examples(port: ModuleType) -> None:
    subject = adapted(port)
    seen: set[str] = set()
    tested = noted(load_properties()["sequences/pieces"], seen.update)
    tested.explore(ExecutionContext(subject, ordinary_port(subject, "cpu")), seed=1, max_examples=20)
    assert CUT in seen
    assert BATCHED not in seen


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["sequences/any"], ["a", "b", "c"]),
        (["sequences/generate"], ["a", "b"]),
        (["sequences/roll-back"], ["a", "c"]),
        (["chunks/offsets"], []),
    ],
)
def test_effects_are_expected_of_properties_that_draw_their_operation(
    port: ModuleType, ids: list[str], expected: list[str]
) -> None:
    port.EFFECTS = {"a": "extend", "b": "generate", "c": "roll_back"}  # type: ignore[attr-defined]
    assert [mark.name for mark in effects(adapted(port), ids)] == expected


def test_a_verdict_names_the_effects_that_no_example_had() -> None:
    record = CampaignRecord(Plan("id", "counting_port"))
    assert without_effect(record) == ""
    record.marks = [MarkRecord(CUT, EFFECTS, 3), MarkRecord(BATCHED, EFFECTS), MarkRecord("other", "chunks")]
    assert without_effect(record) == f"not tested: 1 of 2 effects of features: {BATCHED}"
