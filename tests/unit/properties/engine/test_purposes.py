"""Scenarios of the simulated engine come to the situations that each of their properties is for."""

from __future__ import annotations

import pytest

from lab.marks import explored, rules_context
from properties.test_lifecycle import Scenarios
from statecheck.execution.property import MachineProperty
from statecheck.execution.registry import load_properties
from statecheck.reference.situations import every_situation

EXAMPLES = 400
"""Of a property: about what a campaign of two minutes makes of it."""
SECONDS = 900.0


def of_scenarios() -> dict[str, MachineProperty]:
    properties = (tested for tested in load_properties().values() if isinstance(tested, MachineProperty))
    return {tested.id: tested for tested in properties if issubclass(tested.machine, Scenarios)}


def purposes_of(tested: MachineProperty) -> tuple[str, ...]:
    machine = tested.machine
    assert issubclass(machine, Scenarios)
    return machine.purposes


def test_every_property_of_the_engine_says_which_marks_it_is_for() -> None:
    assert {tested.id for tested in load_properties().values() if tested.id.startswith("lifecycle/")} == {
        *of_scenarios()
    }
    assert all(
        purposes_of(tested) and set(purposes_of(tested)) <= every_situation().keys()
        for tested in of_scenarios().values()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", of_scenarios())
def test_a_property_of_the_engine_reaches_the_marks_that_it_is_for(name: str) -> None:
    tested = of_scenarios()[name]
    wanted = purposes_of(tested)
    found = explored(tested, rules_context(), seconds=SECONDS, max_examples=EXAMPLES, wanted=wanted)
    assert [mark for mark in wanted if mark not in found] == []
