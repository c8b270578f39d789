"""Scenarios of vLLM's engine come to the situations that each of their configurations is for."""

from __future__ import annotations

import json
import subprocess

import pytest

from properties.releases.live_marks import PURPOSES
from statecheck import rooms
from statecheck.execution.registry import load_properties
from tests.helpers.releases import PYTHON, needs_release

EXAMPLES = 300
"""Of a property: about what a campaign of two minutes makes of it."""

_EXPLORES = """
import json, sys
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from properties.releases.live_marks import PURPOSES, REACHED
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from lab.marks import drawing_only
from statecheck.subject import load
name, examples = sys.argv[1], int(sys.argv[2])
subject = load("vllm")
context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
tested = load_properties()[name]
with drawing_only():
    for seed in range(examples // 10):
        if set(PURPOSES[name]) <= REACHED.keys():
            break
        try:
            tested.explore(context, seed=seed, max_examples=10)
        except Falsified:
            pass  # what is wrong is a campaign's to say
print(json.dumps(REACHED))
"""


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("name", PURPOSES)
def test_a_property_of_the_engine_comes_to_the_situations_that_it_is_for(name: str) -> None:
    command = (str(PYTHON), "-c", _EXPLORES, name, str(EXAMPLES))
    found = subprocess.run(command, cwd=rooms.FOLDER, capture_output=True, text=True, check=True)
    reached = json.loads(found.stdout.splitlines()[-1])
    assert [one for one in PURPOSES[name] if one not in reached] == []


def test_every_property_of_the_engine_says_what_it_is_for() -> None:
    ids = {one.id for one in load_properties().values() if one.id.startswith("real-engine/")}
    assert ids == PURPOSES.keys()
    assert all(PURPOSES.values())
