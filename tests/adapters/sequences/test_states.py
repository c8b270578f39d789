"""The first call, layer and state that differ from a fresh run's, of ports with a defect in one layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from statecheck.case.values import Name, call
from statecheck.diagnose.diagnosis import Confirmation, Diagnosis, explain
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from subjects import Subject
from subjects.sequences.serving import plain
from subjects.sequences.states import first_different
from tests.helpers.planted import Variant, broken_subject

_WITHOUT_A_LAYER = Variant(
    "planted_port",
    "tests/adapters/sequences/reference_port.py",
    "    return list(context.states[sequence])",
    "    return [(one[0], EMPTY[1]) for one in context.states[sequence]]",
)
"""A port whose saved sequences lack the second layer's state."""


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    with broken_subject(_WITHOUT_A_LAYER, tmp_path) as found:
        yield found


@pytest.mark.parametrize("target", [0, 1])
def test_the_finding_names_the_call_and_the_layer_behind_which_states_differ(
    subject: Subject, target: int
) -> None:
    execution_context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    trial = execution_context.begin(load_properties()["sequences/save"])
    trial.agrees(call("Sequences", model="small", seed=0, features={}, bind="library"))
    library = Name("library")
    trial.agrees(call("Sequences.extend", self=library, context=0, rows=[(0, (1, 2))], features={}))
    trial.agrees(call("Sequences.save", self=library, context=0, sequence=0, name="saved 0"))
    trial.agrees(call("Sequences.load", self=library, context=0, sequence=target, name="saved 0"))
    with pytest.raises(Falsified) as raised:
        trial.agrees(call("Sequences.extend", self=library, context=0, rows=[(target, (3,))], features={}))
    nothing = Confirmation(0, 0, ())
    explained = explain(Diagnosis(raised.value.case, nothing, nothing), subject).case
    assert explained.finding.startswith(
        f"Behind call 3, Sequences.load, sequence {target}: layer 1 differs from a fresh run's by 1"
    )


@pytest.mark.parametrize(
    ("seen", "wanted", "said"),
    [
        ([("layer 0", [1.0, 2.0])], [("layer 0", [1.0, 2.0])], ""),
        ([("layer 0", [1.0, 2.0])], [("layer 0", [1.0, 4.0])], "layer 0 differs from a fresh run's by 0.5 of its largest number"),
        ([], [("layer 0", [1.0])], "layer 0 is missing"),
        ([("layer 0", [1.0, 2.0])], [("layer 0", [1.0])], "layer 0 has 2 numbers, and that of a fresh run 1"),
        ([("layer 0", [float("nan")])], [("layer 0", [1.0])], "layer 0 differs from a fresh run's by nan of its largest number"),
    ],
)  # fmt: skip
def test_the_first_state_that_differs_is_named(
    seen: list[tuple[str, list[float]]], wanted: list[tuple[str, list[float]]], said: str
) -> None:
    assert first_different(seen, wanted, 0.001) == said


@pytest.mark.parametrize("shape", [(), (6,), (1, 2, 3), (0, 3)])
def test_a_state_is_an_array_of_any_shape_or_nested_lists(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    flat = array.ravel().tolist()
    assert plain("states", [("layer 0", array), ("layer 1", array.tolist())]) == [
        ("layer 0", flat),
        ("layer 1", flat),
    ]
