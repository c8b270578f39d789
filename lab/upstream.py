"""Whether the tests of `docs/findings/upstream` fail on the release that they are about, and pass once its defect is repaired.

    .vllm/0.33.0/bin/python -m lab.upstream vllm-0.33.0
    .transformers/5.24.0/bin/python -m lab.upstream transformers-5.24.0

The tests run twice, with the interpreter that runs this: on the release as it is installed, and on a copy in which the lines of
`repairs.toml` are changed. The copy is made of links to the installed files, and of the changed ones.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

from lab import prepared
from lab.sources import ROOT

FOLDER = ROOT / "docs/findings/upstream"
REPAIRS = "repairs.toml"
PREPARE = {"sglang": "subjects.sglang.stand_ins:stand_in"}
"""By project, a function that is called before its tests: it stands in for packages that are only there for GPUs and servers."""


@dataclass(frozen=True)
class Repair:
    """Lines of a file of the release, and what they become.

    Args:
        file: its path below the folder of the package.
        before: text that the file has once.
    """

    file: str
    before: str
    after: str

    def applied(self, text: str) -> str:
        """The file's text with the change.

        Raises:
            ValueError: the text does not stand in the file, or several times.
        """
        if (count := text.count(self.before)) != 1:
            raise ValueError(
                f"before = {self.before!r}, which {self.file} has {count} times, but should be text that it has once [{REPAIRS}]"
            )
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Shown:
    """How the tests of a file ended on the release, and with the repairs: "passed", "failed", "error", or several of these."""

    test: str
    released: str
    repaired: str

    @property
    def is_right(self) -> bool:
        return (self.released, self.repaired) == ("failed", "passed")

    def __str__(self) -> str:
        return f"{self.test}: {self.released} on the release, {self.repaired} with the repairs"


def repairs_in(folder: Path) -> dict[str, list[Repair]]:
    """The repairs of each test of the folder, by the name of its file."""
    data = tomllib.loads((folder / REPAIRS).read_text(encoding="utf-8"))
    return {name: [Repair(**change) for change in changes] for name, changes in data.items()}


def repaired_copy(package: Path, repairs: Sequence[Repair], folder: Path) -> Path:
    """A copy of a package in `folder`, with links to all files that no repair changes; returns the folder to import it from."""
    made = folder / package.name
    for repair in repairs:
        place = made
        for part in Path(repair.file).parts[:-1]:
            _link_all(package / place.relative_to(made), place)
            place /= part
            if place.is_symlink():
                place.unlink()
        _link_all(package / place.relative_to(made), place)
        file = made / repair.file
        text = repair.applied(file.read_text(encoding="utf-8"))
        file.unlink()
        file.write_text(text, encoding="utf-8")
    return folder


def _link_all(source: Path, folder: Path) -> None:
    """Make the folder, with a link for each file and folder of `source`, if it is not there yet."""
    if folder.is_dir() and not folder.is_symlink():
        return
    folder.mkdir(parents=True)
    for path in source.iterdir():
        if path.name != "__pycache__":
            (folder / path.name).symlink_to(path)


def shown(folder: Path, package: Path, prepare: str = "") -> tuple[list[Shown], str]:
    """Run the folder's tests on the release and on a repaired copy of it: how each ended, and the output.

    Raises:
        ValueError: a test has no repair, or a repair does not fit the release.
    """
    repairs = repairs_in(folder)
    names = sorted(path.name for path in folder.glob("test_*.py"))
    if names != sorted(repairs):
        raise ValueError(
            f"repairs = {sorted(repairs)}, but should be one for each of {names} [{folder / REPAIRS}]"
        )
    with tempfile.TemporaryDirectory() as place:
        # Outside of this repository, so that no configuration and no conftest.py of it is read.
        alone = shutil.copytree(folder, Path(place) / "tests")
        released, output = _run(alone, {}, prepare)
        copy = repaired_copy(
            package, [one for some in repairs.values() for one in some], Path(place) / "copy"
        )
        repaired, more = _run(alone, {"PYTHONPATH": str(copy)}, prepare)
    results = [Shown(name, released.get(name, "error"), repaired.get(name, "error")) for name in names]
    return results, output + more


def _run(folder: Path, more: Mapping[str, str], prepare: str) -> tuple[dict[str, str], str]:
    """How the tests of each file ended, and the output of pytest."""
    file = folder / "results.xml"
    options = [
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "-p",
        "no:cacheprovider",
        "-q",
        "--tb=short",
        f"--junitxml={file}",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    line = [sys.executable, str(Path(prepared.__file__)), prepare, "pytest", *options]
    found = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return (_ended(file) if file.is_file() else {}), found.stdout + found.stderr


def _ended(file: Path) -> dict[str, str]:
    words = {"failure": "failed", "error": "error", "skipped": "skipped"}
    ended: dict[str, list[str]] = {}
    # pytest's own file, written a moment ago.
    for case in ET.parse(file).iter("testcase"):  # noqa: S314
        word = next((words[one.tag] for one in case if one.tag in words), "passed")
        ended.setdefault(f"{case.get('classname')}.py", []).append(word)
    # A file of several tests has ended in a way if all of them have.
    return {name: " and ".join(dict.fromkeys(all_of)) for name, all_of in ended.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests of a folder and print what they show; 0 if all are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of docs/findings/upstream, such as vllm-0.33.0")
    options = parser.parse_args(arguments)
    project = re.match(r"[a-z_]+", options.folder)
    found = find_spec(project[0]) if project else None
    if found is None or found.origin is None:
        print(f"{options.folder} is not installed for {sys.executable}", file=sys.stderr)
        return 2
    prepare = PREPARE.get(found.name, "")
    results, output = shown(FOLDER / options.folder, Path(found.origin).parent, prepare)
    print("\n".join(map(str, results)))
    if all(result.is_right for result in results):
        return 0
    print(output)
    return 1


if __name__ == "__main__":
    sys.exit(main())
