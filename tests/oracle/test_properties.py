"""The properties, asked of the rules themselves: what a rule answers holds by laws that other rules do not know."""

from __future__ import annotations

import pytest

from lab.marks import asked_bench
from properties.refusals import (
    test_align_refusals,
    test_align_wrong_values,
    test_builder_refusals,
    test_refusals,
    test_refused_forms,
    test_refused_places,
)
from statecheck.execution.registry import load_properties

EXAMPLES = 10
PROPERTIES = load_properties()
TOPICS = ("types", "batch", "chunks", "layout", "shapes", "builders", "align_copies")
OF_CALLS = sorted(name for name, one in PROPERTIES.items() if one.topic in TOPICS)
"""Scenarios and sessions read more of an engine than the rules say."""
BAD_INPUT = {
    "bad_input_is_refused_by_name_before_anything_is_written": ("bad", test_refusals.BAD_INPUTS),
    "bad_input_of_align_mode_is_refused_by_name_before_anything_is_written": (
        "bad",
        test_align_refusals.BAD_INPUTS,
    ),
    "wrong_values_of_align_mode_are_refused_by_name": ("bad", test_align_wrong_values.BAD_INPUTS),
    "bad_input_of_a_builder_is_refused_by_name": ("bad", test_builder_refusals.BAD_INPUTS),
    "counts_and_lengths_on_the_host_that_no_step_has_are_refused": ("bad", test_builder_refusals.ON_THE_HOST),
    "arguments_of_another_type_are_refused_by_name": ("form", test_refused_forms.BAD_INPUTS),
    "host_arguments_on_the_device_are_refused_by_name": ("bad", test_refused_places.MISPLACED),
}
"""By property, what it calls its bad input, and each kind of it."""


@pytest.mark.parametrize("name", OF_CALLS)
def test_a_property_holds_of_the_rules(name: str) -> None:
    PROPERTIES[name].search(asked_bench(), EXAMPLES)


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, (_, every) in BAD_INPUT.items() for number in range(len(every))],
)
def test_the_rules_refuse_bad_input(name: str, number: int) -> None:
    argument, every = BAD_INPUT[name]
    PROPERTIES[name].example(asked_bench(), **{argument: every[number]})
