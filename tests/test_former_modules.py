"""Module names of earlier versions: in imports, on the command line, and in what was saved."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from statecheck.campaign.record import CampaignRecord
from statecheck.case import Case
from statecheck.case.values import Let
from statecheck.diagnose.replay import FIXED, replay_file
from statecheck.former_modules import FORMER_DEVICE, FORMER_MODULES, current_name
from statecheck.rooms import NAMES
from tests.breakages.broken import ROOT

SAVED = Path(__file__).parent / "saved_before_the_move"
"""Of a campaign of the last commit with the former names: its record and its case."""


@pytest.mark.filterwarnings("ignore:properties.harness is now")
@pytest.mark.parametrize("former", FORMER_MODULES)
def test_a_former_name_is_a_module_that_there_is(former: str) -> None:
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match=f"{former} is now {FORMER_MODULES[former]}; this name goes"):
        found = import_module(former)
    assert found is import_module(FORMER_MODULES[former])


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("properties.harness.case.values", "statecheck.case.values"),
        ("properties.harness.device.port", "statecheck.workers.port"),
        ("properties.subjects.plain", "subjects.plain"),
        ("properties.strategies.chunks", "properties.strategies.chunks"),
        ("properties.harnessed", "properties.harnessed"),
        ("my_engine.properties.harness", "my_engine.properties.harness"),
    ],
)
def test_names_inside_of_a_moved_package_move_with_it(former: str, current: str) -> None:
    assert current_name(former) == current


@pytest.mark.filterwarnings("ignore:properties.harness:DeprecationWarning")
def test_a_module_has_one_object_under_both_names() -> None:
    assert import_module("properties.harness.case.values").Let is Let


@pytest.mark.parametrize(("name", "current"), FORMER_DEVICE.items())
def test_each_name_of_the_former_module_about_workers_is_found(name: str, current: str) -> None:
    former = import_module("properties.device")
    with pytest.warns(DeprecationWarning, match=f"properties.device.{name} is now {current}.{name}"):
        assert getattr(former, name) is getattr(import_module(current), name)


DOCUMENTED = """
from properties.sanitizer import Finding, sanitize
from properties.subjects import KnownDeviation, NotOffered, Outside, Subject, Symptom
"""


def python(*arguments: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, *arguments]
    environment = kept | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def test_documented_imports_of_users_warn_with_their_own_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DOCUMENTED)
    done = python("-W", "always", "mine.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine.py:2: DeprecationWarning: properties.sanitizer is now statecheck.sanitizer" in done.stderr
    assert "mine.py:3: DeprecationWarning: properties.subjects is now subjects" in done.stderr


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("replay", "0cf9c118dc", "--device", "cpu"), "statecheck"),
        (("table", "--nothing"), "tools.docs"),
        (("bench", "--subject", "nowhere"), "tools.bench"),
    ],
)
def test_the_former_command_does_the_same_with_a_warning(words: tuple[str, ...], now: str) -> None:
    former = python("-m", "properties", *words)
    warned, _, rest = former.stderr.partition("\n")
    assert warned == f"python -m properties is now python -m {now}; this name goes with the next version"
    current = python("-m", now, *(words[1:] if now.startswith("tools") else words))
    assert (former.returncode, former.stdout, rest) == (current.returncode, current.stdout, current.stderr)


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
    lines = (
        f"import sys; sys.path.insert(0, '.'); import {name}, statecheck.__main__; statecheck.__main__.main()"
    )
    done = python("-c", lines, folder=tmp_path)
    assert done.returncode == 1
    said = f"ImportError: {name} = {tmp_path / name}.py, but should be the package of that name in {ROOT}"
    assert said in done.stderr


def test_a_case_from_before_the_move_is_replayed() -> None:
    case = Case.load(SAVED / "case.json")
    assert case.property_name == "chunk_offsets_count_the_chunks_before_each_sequence"
    assert replay_file(SAVED / "case.json", "impl", "cpu").verdict == FIXED


def test_a_campaign_from_before_the_move_is_read() -> None:
    record = CampaignRecord.load(SAVED / "campaign.json")
    assert [row.name for row in record.properties if row.status == "FALSIFIED"] == [
        "chunk_offsets_count_the_chunks_before_each_sequence"
    ]
