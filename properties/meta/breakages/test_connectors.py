"""Defects that are planted around connectors are found; the others are tried by `python -m properties.meta.breakages.connectors`."""

from __future__ import annotations

import subprocess

import pytest

from properties.harness import rooms
from properties.meta.breakages.connectors import CONNECTORS
from properties.meta.breakages.release import RELEASE

PYTHON = rooms.FOLDER / ".vllm" / RELEASE / "bin" / "python"


def test_each_planted_defect_has_a_name_of_its_own() -> None:
    assert len({planted.name for planted in CONNECTORS}) == len(CONNECTORS)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"make vllm VLLM={RELEASE} makes the environment")
@pytest.mark.parametrize("word", ["another block", "too early", "while they are loaded"])
def test_a_planted_defect_is_found(word: str) -> None:
    command = (str(PYTHON), "-m", "properties.meta.breakages.connectors", "--only", word)
    found = subprocess.run(command, cwd=rooms.FOLDER, capture_output=True, text=True, check=True)
    assert "not in" not in found.stdout.splitlines()[-1]
