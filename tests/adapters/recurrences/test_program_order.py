"""A kernel whose outputs depend on the order of its programs."""

from __future__ import annotations

from importlib import import_module

import pytest

from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import adapted


@pytest.mark.parametrize("id_", ["recurrent-kernels/program-order", "chunked-kernels/program-order"])
def test_an_order_of_programs_that_shows_is_found(id_: str) -> None:
    subject = adapted(import_module("tests.adapters.recurrences.racing_port"))
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    with pytest.raises(Falsified) as raised:
        load_properties()[id_].explore(context, seed=1, max_examples=100)
    assert "in another order of programs" in raised.value.case.message
