"""`test_repro.py`: the script as a test of the project that has the defect, which fails as long as it is there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.failure import stated
from statecheck.case.values import Raised, Returned, call
from statecheck.report.markdown import ALONE, TEST, report_text, write_report
from statecheck.report.repro.script import repro_test
from subjects import load
from tests.helpers.cases import a_case, in_order
from tests.helpers.modules import module

HALVES = "def halved(x):\n    return x // 2\n"
MENDED = "def halved(x):\n    return x // 2 + 1\n"


def a_half(**changes: object) -> Case:
    """A case in which 4 halved is to be 3."""
    fields = {
        "subject": "toy_halves",
        "steps": (call("halved", x=4),),
        "expected": (Returned(3),),
        "actual": (Returned(2),),
        "message": "result = 2, but should be 3",
    }
    return a_case(**fields | changes)


def a_condition() -> Case:
    return a_half(expected=(Returned(2),), failure=stated("2 is even"))


def written(folder: Path, case: Case, source: str) -> Path:
    """The test of a case, beside its subject."""
    folder.mkdir(exist_ok=True)
    (folder / "toy_halves.py").write_text(source, encoding="utf-8")
    path = folder / TEST
    path.write_text(repro_test(case, folder, folder), encoding="utf-8")
    return path


@pytest.fixture
def test_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], None]]:
    """The function in a file for pytest, as pytest would import it."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for name in ("SUBJECT", "SUBJECT_PATH", "DEVICE"):
        # What the file sets is unset afterwards.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def imported(case: Case, source: str = HALVES) -> Callable[[], None]:
        path = written(tmp_path, case, source)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "toy_halves", raising=False)
        spec = importlib.util.spec_from_file_location("test_repro", path)
        assert spec is not None
        assert spec.loader is not None
        imported = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "test_repro", imported)
        spec.loader.exec_module(imported)
        test: Callable[[], None] = imported.test_toys_divide
        return test

    return imported


ATest = Callable[..., Callable[[], None]]


ENDINGS = {
    "there": (a_half(), HALVES, "result = 2, but should be 3"),
    "gone": (a_half(), MENDED, ""),
    "a condition of outcomes that stay the same": (a_condition(), HALVES, "2 is even"),
    "another outcome": (a_condition(), MENDED, ""),
}


@pytest.mark.parametrize(("case", "source", "message"), ENDINGS.values(), ids=ENDINGS)
def test_the_test_fails_while_the_defect_is_there_and_says_the_same_again(
    test_of: ATest, case: Case, source: str, message: str
) -> None:
    again = test_of(case, source)
    for _ in range(2):
        with pytest.raises(AssertionError, match=f"^{message}$") if message else nullcontext():
            again()


def test_the_test_is_skipped_where_the_failure_depends_on_more(test_of: ATest) -> None:
    with pytest.raises(pytest.skip.Exception, match="the failure depends on chance"):
        test_of(a_half(depends_on="chance"), MENDED)()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "there is no halved"),
        ("raise RuntimeError('no GPU')\n", "cannot import toy_halves: RuntimeError"),
        ("def halved(x):\n    raise MemoryError('full')\n", "it cannot be tried here: full"),
    ],
)
def test_the_test_is_skipped_where_nothing_can_be_tried(test_of: ATest, source: str, why: str) -> None:
    with pytest.raises(pytest.skip.Exception, match=why):
        test_of(a_half(), source)()


def test_the_test_is_skipped_where_triton_came_before_it(
    test_of: ATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setitem(sys.modules, "triton", sys)
    with pytest.raises(pytest.skip.Exception, match="run this file alone"):
        test_of(a_half())


@pytest.mark.parametrize(
    "case",
    [a_half(actual=(Raised("OutsideView", "x", kind="memory"),)), in_order(a_half(), "reversed")],
    ids=["watched", "in another order"],
)
def test_what_takes_statecheck_has_no_test(case: Case, tmp_path: Path) -> None:
    assert repro_test(case, tmp_path, None) == ""
    assert TEST not in report_text(case, tmp_path)


def test_a_report_has_the_test_and_the_command_that_runs_it(tmp_path: Path) -> None:
    with module(tmp_path, "toy_halves", HALVES):
        folder = write_report(a_half(), tmp_path / "reports", load("toy_halves").module)
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / TEST).is_file()
    assert f"{' '.join(ALONE)} {folder / TEST}`" in text


@pytest.mark.slow
def test_pytest_runs_it_without_statecheck(tmp_path: Path) -> None:
    paths = [written(tmp_path / "there", a_half(), HALVES), written(tmp_path / "missing", a_half(), "")]
    hidden = ("PYTHONPATH", "SUBJECT", "SUBJECT_PATH", "DEVICE", "PYTEST_ADDOPTS")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = []
    for path in paths:
        command = [sys.executable, *ALONE, "-p", "no:cacheprovider", "-q", str(path)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd="/")
        ended.append(done.stdout.splitlines()[-1].partition(" in ")[0])
    assert ended == ["1 failed", "1 skipped"]
