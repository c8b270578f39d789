"""The packages beside `statecheck`: how their names are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from statecheck.rooms import NAMES
from tests.helpers.modules import ROOT


def python(*arguments: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, *arguments]
    environment = kept | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def test_importing_statecheck_changes_no_import_path() -> None:
    lines = (
        "import sys; before = [*sys.path], [*sys.meta_path]; import statecheck",
        "assert before == (sys.path, sys.meta_path)",
        f"assert not set(sys.modules) & set({NAMES})",
    )
    done = python("-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_module_of_the_user_with_the_name_of_a_room_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").touch()
    code = f"import sys; sys.path.insert(0, '.'); import {name}; from statecheck.__main__ import main; main()"
    done = python("-c", code, folder=tmp_path)
    assert done.returncode == 1
    said = f"ImportError: {name} = {tmp_path / name}.py, but should be the package of that name in {ROOT}"
    assert said in done.stderr
