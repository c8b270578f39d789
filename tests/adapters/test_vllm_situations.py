"""Scenarios of vLLM's engine come to the situations that each of their configurations is for."""

from __future__ import annotations

import json
import subprocess

import pytest

from properties.releases.test_real_engine import CONFIGURATIONS
from statecheck import rooms
from statecheck.execution.registry import Configuration
from tests.helpers.releases import PYTHON, needs_release

EXAMPLES = 300
"""Of a property: about what a campaign of two minutes makes of it."""

_EXPLORES = """
import json, sys
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from properties.releases.marks import REACHED
from properties.releases.test_real_engine import CONFIGURATIONS
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from lab.marks import drawing_only
from statecheck.subject import load
name, examples = sys.argv[1], int(sys.argv[2])
subject = load("vllm")
context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
tested = load_properties()[name]
situations = next(set(one.situations) for one in CONFIGURATIONS if one.id == name)
with drawing_only():
    for seed in range(examples // 10):
        if situations <= {mark for _, mark in REACHED}:
            break
        try:
            tested.explore(context, seed=seed, max_examples=10)
        except Falsified:
            pass  # what is wrong is a campaign's to say
print(json.dumps([mark for _, mark in REACHED]))
"""


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda one: one.id)
def test_a_configuration_of_the_engine_comes_to_its_situations(configuration: Configuration) -> None:
    command = (str(PYTHON), "-c", _EXPLORES, configuration.id, str(EXAMPLES))
    found = subprocess.run(command, cwd=rooms.FOLDER, capture_output=True, text=True, check=True)
    reached = json.loads(found.stdout.splitlines()[-1])
    assert [one for one in configuration.situations if one not in reached] == []
