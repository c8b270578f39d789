"""Which constants of source code Hypothesis draws."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = """
from statecheck.rooms import open_rooms
open_rooms()
from statecheck.execution import profiles
profiles.load("nightly")
import oracle.chunks, statecheck.campaign.plan, my_port
from hypothesis.internal.conjecture import providers
print(sorted(providers._get_local_constants().set_for_type("integer")))
"""


def test_constants_are_those_of_the_subject_and_none_of_the_harness(tmp_path: Path) -> None:
    (tmp_path / "my_port.py").write_text("LIMIT = 70123\n", encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    storage = {"HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    printed = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths} | storage,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip() == "[70123]"


_COMPOSITES = """
import inspect
from statecheck.execution import profiles
profiles.load("nightly")
from hypothesis import strategies as st
read = []
find_source = inspect.getsource
inspect.getsource = lambda found: read.append(found) or find_source(found)
st.composite(lambda draw: draw(st.integers()))
print(len(read))
"""


def test_the_source_of_a_composite_strategy_is_not_read() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _COMPOSITES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip() == "0"
