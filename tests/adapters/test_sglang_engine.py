"""The engine of a released SGLang runs without a GPU, and breaks no law in a plain scenario."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache

import pytest

from properties.releases.marks import FULL, PAGES, SEVERAL, SOME, STOPPED
from properties.releases.test_radix_engine import CONFIGURATIONS
from statecheck import rooms
from tests.adapters.sglang_scenarios import PLAIN

RELEASE = "0.5.23"
PYTHON = rooms.FOLDER / ".sglang" / RELEASE / "bin" / "python"
needs_release = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.exists(), reason=f"statecheck fuzz --sglang {RELEASE} makes the environment"
    ),
]
EXAMPLES = 360
"""Of a configuration; each situation comes up in some of so many, whatever the seed."""
OTHERS = {
    "radix-engine/no-buffer": (STOPPED,),
    "radix-engine/extra-buffer": (STOPPED,),
    "radix-engine/wide-pages": (PAGES,),
    "radix-engine/overlap": (STOPPED,),
    "radix-engine/lazy-buffer": (FULL,),
    "radix-engine/drafts": (SOME, SEVERAL, STOPPED),
    "radix-engine/draft-trees": (SOME, SEVERAL),
    "radix-engine/eagle": (SOME, SEVERAL),
    "radix-engine/lazy-drafts": (SEVERAL,),
    "radix-engine/sessions": (STOPPED,),
    "radix-engine/session-drafts": (SOME,),
    "radix-engine/rust-drafts": (SOME, SEVERAL),
    "radix-engine/mamba2-drafts": (SOME,),
}
"""By id, situations that scenarios reach beside those that the configuration is for."""
WITHOUT_RUST = """
import sys
from subjects.sglang.engine.releases import require_core
from subjects.sglang.release import NotOffered
sys.modules["sglang.srt.mem_cache.rust_tree_core.mem_cache"] = None
try:
    require_core("rust")
except NotOffered as reason:
    print(reason)
"""
"""In a checkout, the package of the release has Python files alone."""

BESIDE_ANOTHER_TORCH = """
from types import SimpleNamespace
from subjects.sglang.engine import releases
from subjects.sglang.engine.tree import Prefix
tree = SimpleNamespace(insert=lambda _: None, reset=lambda: None)
scheduler = SimpleNamespace(tree_cache=tree, flush_cache=lambda: None)
right = [Prefix((0,), (1,), None), Prefix((0, 1), (2,), 1), Prefix((0, 2), (3,), 2)]
for compiled_for, found in [("1.0.0", right), ("1.0.0", right[1:]), (releases.torch.__version__.partition("+")[0], [])]:
    releases._compiled_for, releases.prefixes = lambda: compiled_for, lambda *_: found
    try:
        print(releases.require_core_for_torch(scheduler, 1))
    except releases.NotOffered as reason:
        print(str(reason).partition(" is compiled")[0])
"""

DROPPED_WITH_A_MESSAGE = """
import faulthandler, gc
from subjects.sglang.engine.config import RadixSettings, made_scheduler
scheduler = made_scheduler(RadixSettings())
scheduler.ipc_channels.send_to_tokenizer.socket.send(b"not read")
faulthandler.dump_traceback_later(100, exit=True)
del scheduler
gc.collect()
made_scheduler(RadixSettings())
print("made again")
faulthandler.cancel_dump_traceback_later()
"""


@cache
def broken() -> dict[str, list[str]]:
    """By what is planted, the laws that are broken; the release takes its time to be imported, so that it is once."""
    command = [str(PYTHON), "-m", "tests.adapters.sglang_scenarios"]
    environment = rooms.added_to(dict(os.environ))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=rooms.FOLDER
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (WITHOUT_RUST, ["the core in Rust, which is not built here"]),
        (
            BESIDE_ANOTHER_TORCH,
            ["None", "the core in Rust, which gives back other slots than were inserted: it", "None"],
        ),
    ],
    ids=["not built", "beside another torch"],
)
def test_the_core_in_rust_is_not_offered_where_it_does_not_work(script: str, printed: list[str]) -> None:
    assert _printed(script)[-len(printed) :] == printed


def test_a_scheduler_that_is_dropped_does_not_wait_for_its_open_sockets() -> None:
    assert _printed(DROPPED_WITH_A_MESSAGE)[-1:] == ["made again"]


def _printed(script: str) -> list[str]:
    """The lines that a script prints in the environment of the release."""
    done = subprocess.run(
        [str(PYTHON), "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=rooms.added_to(dict(os.environ)),
        cwd=rooms.FOLDER,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", [*PLAIN, "a session", "late copies", "a gigabyte of host memory"])
def test_a_release_breaks_no_law_where_requests_come_one_after_another(name: str) -> None:
    assert broken()[name] == []


def test_shards_can_be_asked_for_in_the_process_of_a_scheduler() -> None:
    assert broken()["ranks after a scheduler"] == []


def test_a_layer_that_does_not_wait_for_its_states_reads_others() -> None:
    assert "read" in broken()["a layer does not wait for its states from host memory"]


def test_each_configuration_reaches_its_situations() -> None:
    wanted = {row.id: (*row.situations, *OTHERS.get(row.id, ())) for row in CONFIGURATIONS}
    command = ("-m", "tests.adapters.engine_situations", "sglang", str(EXAMPLES), json.dumps(wanted))
    done = subprocess.run(
        [str(PYTHON), *command],
        capture_output=True,
        text=True,
        check=False,
        env=rooms.added_to(dict(os.environ)),
        cwd=rooms.FOLDER,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    reached: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    missed = {id_: [name for name in names if not reached[id_].get(name)] for id_, names in wanted.items()}
    assert {id_: names for id_, names in missed.items() if names} == {}


pytestmark = needs_release
