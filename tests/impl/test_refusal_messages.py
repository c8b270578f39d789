"""What refusals of `impl` say: which argument, what it was, by which rule, and which function refused it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import pytest

from lab.docs.symbols import MANIFEST
from properties.refusals import (
    test_align_refusals,
    test_align_wrong_values,
    test_builder_refusals,
    test_refusals,
    test_refused_forms,
)
from statecheck.case.values import Raised, Step
from statecheck.execution.port import InProcess
from statecheck.execution.ports import executed
from statecheck.execution.ports.rules import RulesPort
from subjects import load

MESSAGE = re.compile(
    r"(?P<place>.+?) = (?P<seen>.*), but should be (?P<rule>.+) \[(?P<function>[\w.]+)\]", re.DOTALL
)
FUNCTIONS = frozenset(chain.from_iterable(symbol.name.split(".") for symbol in MANIFEST))


def refused() -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Steps of which the last is refused, and a name for them."""
    for align in (*test_align_refusals.BAD_INPUTS, *test_align_wrong_values.BAD_INPUTS):
        yield f"align, {align.name}", align.steps
    for build in (*test_builder_refusals.BAD_INPUTS, *test_builder_refusals.ON_THE_HOST):
        yield f"builder, {build.name}", (*build.before, build.call)
    for bad in test_refusals.BAD_INPUTS:
        yield f"{bad.call.function}, {bad.name}", (bad.call,)
    for form in test_refused_forms.BAD_INPUTS:
        yield f"{form.call.function}, {form.name}", (form.call,)


REFUSED = dict(refused())


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_begins_with_the_argument_and_ends_with_the_function(name: str) -> None:
    steps, port, rules = REFUSED[name], InProcess(load("impl"), "cpu"), RulesPort()
    port.begin()
    rules.begin()
    actual, expected = (executed(one, steps)[-1] for one in (port, rules))
    assert isinstance(actual, Raised)
    assert isinstance(expected, Raised)
    assert actual.exception == expected.exception, actual.message
    if actual.exception != "ValueError":
        return
    said = MESSAGE.fullmatch(actual.message)
    assert said is not None, actual.message
    argument = expected.message.partition(" = ")[0]
    assert re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", said["place"]), (argument, actual.message)
    assert set(said["function"].split(".")) <= FUNCTIONS, actual.message
