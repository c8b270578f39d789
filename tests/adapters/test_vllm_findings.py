"""Saved cases of findings about vLLM's engine show their defects on the newest release that the adapter is tried with, or are not applicable there."""

from __future__ import annotations

import subprocess

import pytest

from statecheck import rooms
from statecheck.case import Case
from statecheck.diagnose.replay import FAILED, KNOWN, NOT_APPLICABLE
from tests.helpers.releases import PYTHON, needs_release

CASES = [
    path
    for path in sorted((rooms.FOLDER / "docs" / "findings").glob("*.json"))
    if Case.load(path).property_id.startswith("real-engine/")
]
REPLAYS = """
import sys
from pathlib import Path
from statecheck.diagnose.replay import replay_file
for name in sys.argv[1:]:
    print(name, replay_file(Path(name), "vllm", "cpu", time_limit=120).verdict, sep="|")
"""


@pytest.mark.slow
@needs_release
def test_no_saved_case_of_the_engine_is_fixed() -> None:
    command = (str(PYTHON), "-c", REPLAYS, *map(str, CASES))
    done = subprocess.run(command, cwd=rooms.FOLDER, capture_output=True, text=True, check=True)
    verdicts = dict(line.rsplit("|", 1) for line in done.stdout.splitlines() if "|" in line)
    assert verdicts.keys() == {*map(str, CASES)}
    assert {
        name for name, verdict in verdicts.items() if verdict not in (KNOWN, FAILED, NOT_APPLICABLE)
    } == set()
