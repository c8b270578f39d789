"""The first layer that differs, by fewer layers."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.values import Name, Record, Returned, call, record
from statecheck.reference.engines import NO_LAW_BROKEN
from statecheck.subject.subject import NotOffered
from subjects.sequences.library import Local
from subjects.sequences.protocol import PortModule
from subjects.sequences.states import first_layer


def library(**constants: Any) -> Local:
    module = ModuleType("layered_port")
    vars(module).update(
        STATECHECK_SEQUENCES=1,
        models=lambda: ("deep",),
        features=lambda model: {"layers": (4, 3, 2, 1)},
        new=lambda model, seed, *, layers=4: layers,
        extend=lambda context, rows: [],
        GIVEN_TO_REFERENCE=("layers",),
    )
    vars(module).update(constants)
    return Local(PortModule.of(module))


class Scenario:
    """Breaks a law with `fails` layers or more; has no model of one layer."""

    fails = 3

    def __init__(self, *, model: str, seed: int, features: Mapping[str, Any]) -> None:  # noqa: ARG002
        if features["layers"] == 1:
            raise NotOffered("one layer")
        self.layers = features["layers"]

    def extend(self, **_: Any) -> Record:
        broken = record("SequenceLaws", logits="differs", tokens="nothing", length="nothing")
        return record("SequenceStep", broken=broken if self.layers >= self.fails else NO_LAW_BROKEN)


class Raising(Scenario):
    def extend(self, **_: Any) -> Record:
        raise RuntimeError("llama_decode = -1")


def case() -> Case:
    made = call("Sequences", model="deep", seed=0, features={}, bind="library")
    extended = call("Sequences.extend", self=Name("library"), context=0, rows=[(0, (1,))], features={})
    outcome = Returned(record("Sequences"))
    return Case("p", "", "s", (made, extended), (), (outcome, outcome), None)


def test_the_fewest_layers_that_fail_name_the_first_layer_that_differs() -> None:
    assert first_layer(library(), Scenario, case()) == (
        "The same calls fail with 3 of 4 layers, and agree with 2: the first layer that differs is number 2, counted from 0."
    )


class NotMade(Scenario):
    def __init__(self, *, model: str, seed: int, features: Mapping[str, Any]) -> None:
        super().__init__(model=model, seed=seed, features=features)
        raise RuntimeError("no context")


@pytest.mark.parametrize("scenarios", [Raising, NotMade])
def test_a_library_that_fails_with_the_fewest_layers_differs_in_the_last_of_them(
    scenarios: type[Scenario],
) -> None:
    assert first_layer(library(), scenarios, case()).startswith("The same calls fail with 2 of 4 layers: ")


@pytest.mark.parametrize("constants", [{"GIVEN_TO_REFERENCE": ()}, {"features": lambda model: {}}])
def test_nothing_is_said_of_a_port_without_numbers_of_layers(constants: dict[str, Any]) -> None:
    assert first_layer(library(**constants), Scenario, case()) == ""
