"""Defects that are planted in a release's own files, or around its connectors, are found; the commands of `release.py` and
`connectors.py` try the others.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from statecheck import rooms
from tests.breakages.connectors import CONNECTORS
from tests.breakages.functions import OF_SGLANG as FUNCTIONS_OF_SGLANG
from tests.breakages.functions import OF_VLLM as FUNCTIONS_OF_VLLM
from tests.breakages.release import (
    EVERY_BOUNDARY,
    PLANTED,
    PLANTED_BOUNDARIES,
    PLANTED_GRAPHS,
    PLANTED_MIXUPS,
    PLANTED_SIZES,
    PLANTED_UPDATES,
    RELEASE,
    PlantedDefect,
)
from tests.breakages.sglang import PLANTED as OF_SGLANG
from tests.breakages.sglang import RELEASE as SGLANG
from tests.breakages.stages import PLANTED_STAGES


@pytest.mark.parametrize(
    "planted",
    [
        PLANTED,
        PLANTED_BOUNDARIES,
        PLANTED_UPDATES,
        PLANTED_GRAPHS,
        PLANTED_MIXUPS,
        PLANTED_SIZES,
        PLANTED_STAGES,
        CONNECTORS,
        OF_SGLANG,
        FUNCTIONS_OF_SGLANG,
        FUNCTIONS_OF_VLLM,
    ],
)
def test_each_planted_defect_has_a_name_of_its_own(planted: Sequence[PlantedDefect]) -> None:
    assert len({one.name for one in planted}) == len(planted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "table", "word"),
    [
        (RELEASE, "release", "rejected drafts"),
        (RELEASE, "release", "preempted request comes back"),
        (RELEASE, "release", "get the block behind"),
        (RELEASE, "release", "convolution is copied into the temporal"),
        (EVERY_BOUNDARY, "release", "column of their last scheduled token"),
        (RELEASE, "connectors", "another block"),
        (RELEASE, "connectors", "too early"),
        (RELEASE, "connectors", "while they are loaded"),
        (RELEASE, "stages", "does not wait for the sampled tokens"),
        (SGLANG, "sglang", "given out twice"),
        (SGLANG, "sglang", "after the first token of a step"),
        (SGLANG, "sglang", "not copied to host memory"),
        (SGLANG, "functions", "only the first layer"),
        (RELEASE, "functions", "first heads of a temporal state"),
    ],
)
def test_a_planted_defect_is_found(release: str, table: str, word: str) -> None:
    project = "sglang" if release == SGLANG else "vllm"
    python = rooms.FOLDER / f".{project}" / release / "bin" / "python"
    if not python.exists():
        pytest.skip(f"make {project} {project.upper()}={release} makes the environment")
    command = (str(python), "-m", f"tests.breakages.{table}", "--only", word)
    found = subprocess.run(command, cwd=rooms.FOLDER, capture_output=True, text=True, check=True)
    assert "not in" not in found.stdout.splitlines()[-1]
