"""The properties, asked of the rules themselves: what a rule answers holds by laws that other rules do not know."""

from __future__ import annotations

import pytest

from lab.marks import rules_context
from properties.strategies.refusals import BAD_INPUTS, BadInput
from statecheck.case.values import Raised
from statecheck.execution.registry import load_properties
from statecheck.execution.run import executed
from tests.helpers.rules_executor import RulesExecutor

EXAMPLES = 10
PROPERTIES = load_properties()
TOPICS = ("types", "batch", "chunks", "layout", "shapes", "builders", "align_copies")
OF_CALLS = sorted(name for name, tested in PROPERTIES.items() if tested.topic in TOPICS)
"""Scenarios and sessions read more of an engine than the rules say."""


@pytest.mark.parametrize("name", OF_CALLS)
def test_a_property_holds_of_the_rules(name: str) -> None:
    PROPERTIES[name].search(rules_context(), EXAMPLES)


@pytest.mark.parametrize("bad", [bad for bad in BAD_INPUTS if bad.device == "cuda"], ids=lambda bad: bad.name)
def test_the_rules_refuse_host_arguments_on_a_device(bad: BadInput) -> None:
    port = RulesExecutor()
    port.begin()
    *before, last = executed(port, bad.steps)
    assert isinstance(last, Raised)
    assert not any(isinstance(outcome, Raised) for outcome in before)
