"""`lab.upstream`: tests that fail on a release, and pass with its defects repaired."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.sources import ROOT
from lab.upstream import FOLDER, Repair, repaired_copy, repairs_in, shown

MOST_LINES = 40
RELEASES = sorted(path for path in FOLDER.iterdir() if path.is_dir())


def test_each_test_has_at_most_forty_lines_and_a_repair() -> None:
    for folder in RELEASES:
        names = {path.name: path for path in folder.glob("test_*.py")}
        assert set(repairs_in(folder)) == set(names)
        for path in names.values():
            text = path.read_text(encoding="utf-8")
            assert len(text.splitlines()) <= MOST_LINES, path
            assert "statecheck" not in text, path


def test_a_repair_of_a_line_that_is_not_there_once_is_refused() -> None:
    with pytest.raises(ValueError, match=r"which a.py has 2 times, but should be text that it has once"):
        Repair("a.py", "x = 1", "x = 2").applied("x = 1\nx = 1\n")


def a_package(folder: Path) -> Path:
    package = folder / "toyproject"
    (package / "inner").mkdir(parents=True)
    for name, text in (
        ("__init__", ""),
        ("inner/__init__", ""),
        ("inner/a", "A = 1\n"),
        ("inner/b", "B = 1\n"),
    ):
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    return package


def test_a_repaired_copy_links_to_all_other_files(tmp_path: Path) -> None:
    package = a_package(tmp_path)
    made = repaired_copy(package, [Repair("inner/a.py", "A = 1", "A = 2")], tmp_path / "copy") / "toyproject"
    assert (made / "inner/a.py").read_text(encoding="utf-8") == "A = 2\n"
    assert (made / "inner/b.py").is_symlink()
    assert (package / "inner/a.py").read_text(encoding="utf-8") == "A = 1\n"


def test_tests_are_run_on_the_release_and_on_the_repaired_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, folder = a_package(tmp_path / "site"), tmp_path / "tests"
    folder.mkdir()
    start = f"import sys; sys.path.append({str(package.parent)!r})\n"
    (folder / "conftest.py").write_text(start, encoding="utf-8")
    for name in "ab":
        test = f"from toyproject.inner import {name}\ndef test_it():\n    assert {name}.{name.upper()} == 2\n"
        (folder / f"test_{name}.py").write_text(test, encoding="utf-8")
    repair = '[["test_{0}.py"]]\nfile = "inner/{0}.py"\nbefore = "{1} = 1"\nafter = "{1} = {2}"\n'
    (folder / "repairs.toml").write_text(
        repair.format("a", "A", 2) + repair.format("b", "B", 3), encoding="utf-8"
    )
    monkeypatch.delenv("PYTHONPATH", raising=False)
    right, wrong = shown(folder, package)[0]
    assert str(right) == "test_a.py: failed on the release, passed with the repairs"
    assert str(wrong) == "test_b.py: failed on the release, failed with the repairs"
    assert (right.is_right, wrong.is_right) == (True, False)


def test_a_file_of_several_tests_has_failed_if_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, folder = a_package(tmp_path / "site"), tmp_path / "tests"
    folder.mkdir()
    start = f"import sys; sys.path.append({str(package.parent)!r})\n"
    (folder / "conftest.py").write_text(start, encoding="utf-8")
    test = "from toyproject.inner import a\ndef test_one():\n    assert a.A == 2\ndef test_two():\n    assert a.A\n"
    (folder / "test_a.py").write_text(test, encoding="utf-8")
    repair = '[["test_a.py"]]\nfile = "inner/a.py"\nbefore = "A = 1"\nafter = "A = 2"\n'
    (folder / "repairs.toml").write_text(repair, encoding="utf-8")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (one,) = shown(folder, package)[0]
    assert str(one) == "test_a.py: failed and passed on the release, passed with the repairs"
    assert not one.is_right


@pytest.mark.slow
@pytest.mark.parametrize("folder", RELEASES, ids=lambda path: path.name)
def test_every_test_fails_on_its_release_and_passes_with_the_repairs(folder: Path) -> None:
    project, _, release = folder.name.partition("-")
    python = ROOT / f".{project}" / release / "bin/python"
    if not python.exists():
        pytest.skip(f"there is no environment with {folder.name} in {python.parents[1]}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [str(python), "-m", "lab.upstream", folder.name]
    found = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(found.stdout[-4000:], file=sys.stderr)
    assert found.returncode == 0, found.stderr[-2000:]
