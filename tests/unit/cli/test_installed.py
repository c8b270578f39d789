"""The content of site-packages, and a port's first hour with it, in a folder where nothing of this repository lies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh

SOURCES = ("impl", "oracle", "properties", "statecheck", "subjects", "corpus")
FILES = ("pyproject.toml", "setup.py", "LICENSE", "README.md")
ROOMS = "statecheck/_installed/"
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
pytestmark = pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools is not installed")

PORT = """
from itertools import pairwise

STATECHECK_PROTOCOL = 2


def chunk_offsets(cu_seqlens, chunk_size):
    offsets = [0]
    for start, end in pairwise(cu_seqlens):
        offsets.append(offsets[-1] + (end - start) // chunk_size)
    return offsets


def chunk_indices(cu_seqlens, chunk_size):
    lens = [end - start for start, end in pairwise(cu_seqlens)]
    return [(row, chunk) for row, length in enumerate(lens) for chunk in range(-(-length // chunk_size))]


def query_lens(query_start_loc):
    return query_start_loc[1:] - query_start_loc[:-1]


def gather_block_table(block_table, seq_lens, block_size, num_spec):
    raise NotImplementedError("no tables")


def drop_columns(columns, finished, preempted, resumed):
    for request in (*finished, *preempted):
        columns.pop(request, None)
"""
MENDED = PORT.replace("(end - start) // chunk_size", "-(-(end - start) // chunk_size)").replace(
    "(*finished, *preempted)", "(*finished, *preempted, *resumed)"
)
SUITE = """
import my_port
import statecheck

test_port = statecheck.properties(my_port, device="cpu", max_examples=20, require=["chunk_offsets"])
test_known = statecheck.properties("my_port", device="cpu", known="known.toml", max_examples=20)
"""
KNOWN = """
[[known]]
id = "partial-chunks"
title = "A chunk that is not full is not counted."
properties = ["fla-chunks/offsets"]
versions = ">=0"
link = "https://example.org/1"
why = "A quotient is rounded down."
[[known.symptoms]]
kind = "value"
function = "prepare_chunk_offsets"
place = "result"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a copy: setuptools leaves things in the folder in which it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "repository"
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    done = run_fresh("-c", BUILD, folder, cwd=copy)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_site_packages_get_a_single_package(wheel: Path) -> None:
    top = {name.partition("/")[0] for name in names_in(wheel)}
    assert {re.sub(r"-[\d.]+\.", ".", name) for name in top} == {"statecheck", "statecheck.dist-info"}


def test_the_package_has_every_file_of_the_rooms(wheel: Path) -> None:
    # A module that is new, and not added to git yet, is in the package, too.
    asked = ("ls-files", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(
        ["git", "-C", str(ROOT), *asked, *SOURCES], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("this is no checkout, and git does not say which files are its own")
    there = [name for name in done.stdout.splitlines() if (ROOT / name).exists()]
    wanted = {
        name if name.startswith("statecheck/") else ROOMS + name
        for name in there
        if not name.endswith(".gitignore")
    }
    assert {name for name in names_in(wheel) if "dist-info" not in name} == wanted


@dataclass(frozen=True)
class Elsewhere:
    """A folder of a port's author, with statecheck installed."""

    folder: Path
    site: Path

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "PYTHON", "STATECHECK", "HYPOTHESIS"))
        }
        # CI=1, so that the failures are the same ones each time.
        variables = {"PYTHONPATH": str(self.site), "CI": "1"} | variables
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env=kept | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name.replace("_toml", ".toml").replace("_py", ".py")).write_text(text)

    def reports(self, part: str) -> Sequence[Path]:
        return sorted((self.folder / "reports").glob(f"*{part.replace('/', '-')}*/case.json"))


Make = Callable[[], Elsewhere]


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    site = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    def make() -> Elsewhere:
        there = Elsewhere(tmp_path_factory.mktemp("elsewhere"), site)
        there.write(my_port_py=PORT, test_port_py=SUITE, known_toml=KNOWN)
        return there

    return make


def test_a_port_imports_its_declarations_and_the_sanitizer_without_the_harness(elsewhere: Make) -> None:
    there = elsewhere()
    there.write(
        mine_py="from statecheck.subject import KnownDeviation\nfrom statecheck.sanitizer import sanitize\n"
    )
    assert there.run("mine") == (0, "")


@pytest.mark.parametrize("command", ["fuzz", "conform"])
def test_a_campaign_without_a_subject_names_the_ports_of_the_folder(elsewhere: Make, command: str) -> None:
    code, output = elsewhere().run("statecheck", command)
    assert (code, "subject = not given" in output, "seen here: --subject my_port" in output) == (
        3,
        True,
        True,
    ), output


@pytest.mark.slow
def test_a_python_that_has_only_the_rooms_on_its_path_runs_the_command(elsewhere: Make) -> None:
    """The environment of a release has such a path."""
    there = elsewhere()
    rooms = there.site / ROOMS
    case = next((rooms / "corpus").glob("varlen-chunks-partition*.json"))
    variables = {"PYTHONPATH": str(rooms), "PYTHONSAFEPATH": "1"}
    code, output = there.run("statecheck", "replay", str(case), "--device", "cpu", **variables)
    assert (code, "FIXED: impl answers" in output) == (0, True), output


OFFSETS, FORGOTTEN = "fla-chunks/offsets", "cleanup/state-idx"
CHOSEN = f"{OFFSETS} or {FORGOTTEN} or common-metadata/query-lens or block-table/align-columns or conv1d-metadata/partition"


@pytest.mark.slow
def test_a_suite_of_a_port_has_an_item_and_a_verdict_for_each_property(elsewhere: Make) -> None:
    there = elsewhere()
    options = ("-rxs", "-p", "no:cacheprovider", "-n", "1", "-k", CHOSEN)
    code, output = there.run("pytest", *options, COLUMNS="200")
    assert code == 1, output
    assert "statecheck: 3 FALSIFIED, 1 known, 2 passed, 4 not applicable" in output.splitlines(), output
    assert "not applicable: my_port does not implement gather_block_table: no tables" in output
    assert "not applicable: my_port has no compute_causal_conv1d_metadata" in output
    assert re.search(rf"XFAIL test_port.py::test_known\[{OFFSETS}\] - known: partial-chunks", output)
    shown = failure_in(output, f"test_port[{OFFSETS}")
    assert shown[0] == "my_port: chunk_offsets: result[1] = 0, but should be 1"
    text = "\n".join(shown)
    for part in (
        "Chunk offsets count the chunks before each sequence. (fla-chunks/offsets)",
        "chunk_offsets(cu_seqlens=[0, 1], chunk_size=64)",
        "int64[0, 1]",
        "int64[0, 0]",
        f"{there.reports(OFFSETS)[0].parent.relative_to(there.folder)}/report.md",
        "replay",
    ):
        assert part in text, text


def failure_in(output: str, item: str) -> list[str]:
    """The output between the headings of a failure and of the next."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if item in line and line.startswith("_"))
    rest = [line for line in lines[start + 1 :] if not line.startswith("[gw")]
    end = next(number for number, line in enumerate(rest) if line.startswith(("___", "===", "statecheck:")))
    return rest[:end]


@pytest.mark.slow
def test_a_broken_port_is_found_replayed_mended_and_replayed(elsewhere: Make) -> None:
    there = elsewhere()
    # Modules of its author are not taken for ours.
    there.write(properties_py="raise SystemExit('not these')", impl_py="raise SystemExit('not this')")
    chosen = ("--subject", "my_port", "--device", "cpu")
    code, output = there.run("statecheck", "nightly", *chosen, "--examples", "40", "--only", OFFSETS)
    assert code == 1, output
    assert "my_port offers 5 of 20: chunk_indices, chunk_offsets, query_lens" in output
    assert f"properties = {there.folder / 'properties.py'} is hidden by statecheck's package" in output
    (case,) = there.reports(OFFSETS)
    code, output = there.run("statecheck", "replay", str(case), *chosen)
    assert (code, "FAILED: my_port: chunk_offsets: result[1] = 0, but should be 1" in output) == (1, True), (
        output
    )
    there.write(my_port_py=MENDED)
    code, output = there.run("statecheck", "replay", str(case), *chosen)
    assert (code, "FIXED: my_port now answers" in output) == (0, True), output
