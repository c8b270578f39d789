"""Scenarios of vLLM's engine reach the situations of each of their configurations, and others that its laws need."""

from __future__ import annotations

import json
import subprocess

import pytest

from properties.releases.marks import HIT, IN_FLIGHT, LOADED
from properties.releases.test_real_engine import CONFIGURATIONS
from statecheck import rooms
from statecheck.execution.registry import Configuration
from tests.helpers.releases import PYTHON, needs_release

EXAMPLES = 300
"""Of a property: about what a campaign of two minutes makes of it."""
_REQUESTS = (
    "a prompt in several steps",
    "a block that a prompt fills in several steps",
    "some drafts accepted, others rejected",
    "more drafts in a row than usual",
    "a decode without drafts behind accepted drafts",
    "more rows in a step than usual",
    "a request waits for a row",
    "a request waits for blocks while a row is free",
    "a running request is preempted for blocks",
    "a request comes back",
    "no block is free",
    "a request is aborted while it runs",
    "the prefix cache is emptied while requests run",
    "the model gets other weights while requests run",
    "the engine sleeps and loses its caches while requests run",
    "a chunk ends before an item",
)
_TRANSFERS = (
    "a block is loaded in a step that runs another request",
    "a load fails",
    HIT,
    "a request comes back",
)
_INSIDE = "a hit inside of a block"
OTHERS = {
    "real-engine/v2": (*_REQUESTS, _INSIDE),
    "real-engine/v1": (*_REQUESTS, HIT),
    "real-engine/connector-v2": (*_TRANSFERS, _INSIDE),
    "real-engine/connector-v1": _TRANSFERS,
    **dict.fromkeys(
        (
            f"real-engine/{kind}-{runner}"
            for kind in ("offloading", "simple-offloading", "mooncake-offloading")
            for runner in ("v1", "v2")
        ),
        ("a block is loaded in a step that runs another request", "a request comes back"),
    ),
    **dict.fromkeys(("real-engine/nixl-v2", "real-engine/nixl-v1"), ("a request comes back",)),
    "real-engine/kernels": ("some drafts accepted, others rejected", "a prompt in several steps"),
    "real-engine/replay": (HIT, "a request comes back"),
    **dict.fromkeys(("real-engine/sliding-v2", "real-engine/sliding-v1"), ("a request comes back",)),
    "real-engine/pairs-v2": ("a load fails", _INSIDE),
    # Of its 67 engines few have loads that fail, which `real-engine/connector-v1` is asked for.
    "real-engine/pairs-v1": (_INSIDE, LOADED, IN_FLIGHT),
    "real-engine/stages-v2": (HIT, "some drafts accepted, others rejected", "a request comes back"),
}


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda row: row.id)
def test_a_configuration_of_the_engine_reaches_its_situations(configuration: Configuration) -> None:
    wanted = [*configuration.situations, *OTHERS[configuration.id]]
    given = ("vllm", str(EXAMPLES), json.dumps({configuration.id: wanted}))
    command = (str(PYTHON), "-m", "tests.adapters.engine_situations", *given)
    done = subprocess.run(command, cwd=rooms.FOLDER, capture_output=True, text=True, check=True)
    reached = json.loads(done.stdout.splitlines()[-1])[configuration.id]
    assert [name for name in wanted if not reached.get(name)] == []
