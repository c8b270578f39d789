"""Defects behind the C interface of llama.cpp are found by the port as it is, and shrunk to a few operations."""

from __future__ import annotations

import json

import pytest

from tests.adapters.sequences.libraries import libraries
from tests.adapters.sequences.planted_llamacpp import PLANTED
from tests.helpers.processes import run_fresh

_MOST_CALLS = 7
_PROGRAM = """
import json, sys
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import load
from tests.helpers.observers import FailureLog

load_properties()
subject = load("tests.adapters.sequences.planted_llamacpp")
log = FailureLog()
context = ExecutionContext(subject, ordinary_port(subject, "cpu"), log)
try:
    load_properties()[sys.argv[1]].explore(context, seed=1, max_examples=300)
    print(json.dumps({"compared": context.counts.compared}))
except Falsified as error:
    case = error.case
    tokens = sum(len(tokens) for call in case.calls for _, tokens in call.named.get("rows", ()))
    print(json.dumps({"examples": log.examples[0], "calls": len(case.calls), "tokens": tokens, "model": case.model, "says": case.message}))
"""


def explored(name: str, property_id: str) -> dict[str, object]:
    """The result of an exploration with the defect of that name."""
    variables = {"LLAMACPP_PATH": str(libraries()[-1]), "PLANTED": name}
    done = run_fresh("-c", _PROGRAM, property_id, env=variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not libraries(), reason="no environment of xllamacpp, and LLAMACPP_PATH is not set"),
]


@pytest.mark.parametrize("name", PLANTED)
def test_a_defect_behind_the_c_interface_is_found_and_shrunk(name: str) -> None:
    seen = explored(name, PLANTED[name][0])
    print(f"{name}: {seen}")
    assert "examples" in seen
    assert isinstance(seen["calls"], int)
    assert seen["calls"] <= _MOST_CALLS


@pytest.mark.parametrize("property_id", sorted({found for found, _ in PLANTED.values()}))
def test_the_same_table_without_a_defect_passes(property_id: str) -> None:
    assert "compared" in explored("", property_id)
