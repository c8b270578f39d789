"""Broken kernels: each is found, no intact twin is blamed, and the table says what is seen here."""

from __future__ import annotations

import difflib
import inspect
from functools import cache

import pytest

from statecheck.case.faults import KINDS
from statecheck.execution.example import Bench
from tests.gallery import detectors, results, table
from tests.gallery.detectors import CPU, CUDA, Detection
from tests.gallery.exhibit import TWINS, Exhibit, Twin
from tests.gallery.exhibits import EXHIBITS

SAVED = {one.key: one for one in results.load()}

every_exhibit = pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda one: one.name)


@cache
def seen(exhibit: str, detector: str, twin: Twin) -> Detection:
    return {**CPU, **CUDA}[detector](exhibit, twin)


def shown(found: Detection | results.Result) -> str | bool | None:
    """As a cell of the table has it: what became of the worker, or else whether something was found."""
    return found.words if found.words in KINDS else found.found


def found_by(exhibit: Exhibit, names: tuple[str, ...], twin: Twin) -> dict[str, str | bool | None]:
    return {name: shown(seen(exhibit.name, name, twin)) for name in names}


def saved(exhibit: Exhibit, names: tuple[str, ...], twin: Twin) -> dict[str, str | bool | None]:
    return {name: shown(SAVED[exhibit.name, name, twin]) for name in names}


@pytest.fixture
def _on_a_gpu(trial: Bench) -> None:
    if trial.port.device != "cuda":
        pytest.skip("needs a GPU")


@every_exhibit
def test_the_sanitizer_names_what_is_wrong(exhibit: Exhibit) -> None:
    verdict = seen(exhibit.name, "sanitizer", "broken")
    assert verdict.words.startswith(
        f"{exhibit.finding}: " if exhibit.finding else "missed: hang" * exhibit.endless
    )
    assert verdict.found is (exhibit.finding != "")


@every_exhibit
def test_no_detector_blames_an_intact_twin(exhibit: Exhibit) -> None:
    verdicts = {name: seen(exhibit.name, name, "intact") for name in CPU}
    assert verdicts == dict.fromkeys(CPU, Detection(False))


@every_exhibit
def test_the_table_says_what_is_found_here(exhibit: Exhibit) -> None:
    assert found_by(exhibit, tuple(CPU), "broken") == saved(exhibit, tuple(CPU), "broken")


def test_the_file_is_made_of_the_results() -> None:
    stale = "`python -m tests.gallery table --write` brings it up"
    assert table.FILE.read_text(encoding="utf-8") == table.table(results.load()), stale


def changed_lines(exhibit: Exhibit) -> int:
    """How many lines of one twin stand for how many of the other, whichever are more."""
    broken, intact = (
        inspect.getsource(kernel.fn).replace(f"_{twin}(", "(").splitlines()
        for twin, kernel in (("broken", exhibit.broken), ("intact", exhibit.intact))
    )
    changes = difflib.SequenceMatcher(None, broken, intact, autojunk=False).get_opcodes()
    return sum(max(end - start, to - at) for what, start, end, at, to in changes if what != "equal")


@every_exhibit
def test_twins_differ_in_a_line_or_two(exhibit: Exhibit) -> None:
    assert changed_lines(exhibit) in (1, 2)


def test_every_exhibit_has_a_name_of_its_own() -> None:
    assert len({one.name for one in EXHIBITS}) == len(EXHIBITS) >= 18


@pytest.mark.usefixtures("_on_a_gpu")
def test_every_intact_twin_is_right_on_a_gpu_every_time() -> None:
    verdicts = {one.name: seen(one.name, "gpu", "intact") for one in EXHIBITS}
    assert verdicts == {one.name: Detection(False) for one in EXHIBITS}


@pytest.mark.usefixtures("_on_a_gpu")
def test_the_table_says_what_is_found_on_a_gpu_unless_that_is_luck() -> None:
    lasting = [one for one in EXHIBITS if not one.luck]
    found = {one.name: found_by(one, ("gpu",), "broken") for one in lasting}
    assert found == {one.name: saved(one, ("gpu",), "broken") for one in lasting}


@pytest.mark.usefixtures("_on_a_gpu")
@pytest.mark.skipif(detectors._compute_sanitizer() is None, reason="compute-sanitizer is not installed")
def test_memcheck_finds_a_row_before_the_pool() -> None:
    found = {twin: seen("padding_id", "memcheck", twin).found for twin in TWINS}
    assert found == {"broken": True, "intact": False}


REPORT = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at gather_rows_broken+0xb0 in bounds.py:56
=========     Access at 0x7f3a2bfffff0 is out of bounds
========= ERROR SUMMARY: 4 errors
"""


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        (REPORT, Detection(True, "Invalid __global__ read of size 4 bytes")),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", Detection(False)),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", Detection(False)),
    ],
)
def test_a_report_of_compute_sanitizer_comes_to_a_verdict(output: str, verdict: Detection) -> None:
    assert detectors._summary(output) == verdict


def test_a_script_that_compute_sanitizer_says_nothing_about_was_not_looked_at() -> None:
    verdict = detectors._summary("ModuleNotFoundError: No module named 'torch'")
    assert verdict == Detection(None, "no report: ModuleNotFoundError: No module named 'torch'")
