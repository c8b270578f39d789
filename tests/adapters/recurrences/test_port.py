"""The port of recurrences in the examples passes every property, each of which has been seen to fail on a copy of it."""

from __future__ import annotations

import pytest

from statecheck.execution.example import Example, ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import load
from tests.helpers.planted import planted
from tests.helpers.slow import slow_after

PROPERTIES = [id_ for id_ in load_properties() if id_.startswith(("recurrent-kernels/", "chunked-kernels/"))]
_OF_PROGRAMS = ("recurrent-kernels/program-order", "chunked-kernels/program-order")


@pytest.mark.parametrize(
    ("seed", "is_executed"), slow_after(2, [(1, False), *((seed, True) for seed in range(1, 6))])
)
@pytest.mark.parametrize("id_", PROPERTIES)
def test_the_port_of_the_examples_passes(
    id_: str, seed: int, is_executed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Example, "executes_kernels", is_executed)
    subject = load("examples.recurrences_port")
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    load_properties()[id_].explore(context, seed=seed, max_examples=25)
    # An example in which nothing differs is discarded.
    assert bool(context.counts.compared) == (id_ not in _OF_PROGRAMS)


def test_every_property_finds_a_planted_defect() -> None:
    found = {id_ for defect in planted("recurrences") for id_ in defect.found_by}
    assert set(PROPERTIES) - found - set(_OF_PROGRAMS) == set()
