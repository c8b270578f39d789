"""What the command about adapters makes of systems that pass, fail or cannot be set up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest

from lab import adapters
from lab.adapters import NOTHING_TRIED, AdapterResult, adapter_tests, newest, verified
from statecheck.cli.main import run_command
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.subject.loading import PROJECTS, Project

PASSED = AdapterResult("vLLM 1.0", tests=3, examples=1200, seconds=5)
FAILED = AdapterResult("SGLang 1.0", tests=1, failures=("tests: 1 failed",))
LEFT_OUT = AdapterResult("mlx-lm", left_out="pip failed")
PROJECT = PROJECTS["sglang"]


@pytest.mark.parametrize(
    ("results", "code", "last"),
    [
        (
            (PASSED, LEFT_OUT),
            CLEAN,
            "vLLM 1.0: passed after 5 s; 3 tests and 1,200 examples; mlx-lm: LEFT OUT: pip failed",
        ),
        (
            (LEFT_OUT, FAILED),
            FALSIFIED,
            "mlx-lm: LEFT OUT: pip failed; SGLang 1.0: FAILED (tests: 1 failed) after 0 s; 1 test and 0 examples",
        ),
        ((LEFT_OUT,), NOTHING_TRIED, "mlx-lm: LEFT OUT: pip failed"),
    ],
)
def test_a_failure_decides_and_a_system_left_out_alone_does_not(
    results: tuple[AdapterResult, ...],
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = dict(zip(("vllm", "sglang"), results, strict=False))
    monkeypatch.setattr(adapters, "verified", lambda project, **_: found[project.subject])
    assert run_command(adapters.adapters, [*found], "python -m lab.adapters") == code
    assert capsys.readouterr().out.endswith(f"adapters: {last}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine that runs nothing: the exit code and the output of each program by its name, and the free bytes of its disk."""
    found: dict[str, Any] = {
        "environment": (0, ""),
        "tests": (0, "3 passed in 1 s"),
        "profile": (CLEAN, ""),
        "free": 2**40,
    }

    def run(log: Path) -> int:
        name = log.stem.rpartition("-")[2]
        code, output = found[name]
        log.write_text(output, encoding="utf-8")
        return int(code)

    def run_profile(_: object, arguments: tuple[str, ...], log: Path, __: object) -> int:
        folder = Path(arguments[-1], "campaigns", "one")
        folder.mkdir(parents=True)
        rows = {"a/b": {"status": "passed", "examples": 60}, "a/c": {"status": "falsified"}}
        (folder / "conformance.json").write_text(json.dumps({"properties": rows}), encoding="utf-8")
        return run(log)

    def run_program(_: object, *, log: Path, **__: object) -> CompletedProcess[str]:
        return CompletedProcess((), run(log), "", "")

    monkeypatch.setattr(adapters, "LOGS", tmp_path)
    monkeypatch.setattr(adapters, "is_ready", lambda _: False)
    monkeypatch.setattr(adapters, "run_program", run_program)
    monkeypatch.setattr(adapters, "run_on", run_profile)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=found["free"]))
    return found


@pytest.mark.parametrize(
    ("what", "left_out"),
    [
        ({"environment": (1, "pip failed\nno index\n")}, "exit code 1: no index"),
        ({"environment": (124, "")}, "exit code 124: nothing"),
        ({"free": 2**20}, "its environment takes up to 1,000 MB, and the disk has 1"),
    ],
)
def test_a_system_that_cannot_be_set_up_is_left_out_with_the_reason(
    what: Mapping[str, Any], left_out: str, machine: dict[str, Any]
) -> None:
    machine |= what
    assert verified(PROJECT, limit=60).left_out == left_out


@pytest.mark.parametrize(
    ("what", "failures"),
    [
        ({}, ()),
        ({"tests": (5, "no tests ran")}, ("tests: no tests ran",)),
        ({"tests": (1, "1 failed, 3 passed in 1 s")}, ("tests: 1 failed, 3 passed in 1 s",)),
        ({"profile": (INCOMPLETE, "INCOMPLETE")}, ("profile engines: INCOMPLETE",)),
        ({"profile": (124, "")}, ("profile engines: nothing",)),
    ],
)
def test_a_failing_test_and_a_verdict_other_than_clean_are_failures(
    what: Mapping[str, Any], failures: tuple[str, ...], machine: dict[str, Any]
) -> None:
    machine |= what
    assert verified(PROJECT, limit=60).failures == failures


def test_a_result_counts_tests_and_examples_and_names_what_was_skipped(machine: dict[str, Any]) -> None:
    machine["tests"] = (0, "SKIPPED [1] a.py:3: no GPU\n3 passed, 1 skipped in 1 s")
    found = verified(PROJECT, limit=60)
    assert (found.tests, found.examples) == (3, 60)
    assert found.skipped == ("SKIPPED [1] a.py:3: no GPU",)


@pytest.mark.parametrize(
    "what", [{}, {"tests": (124, "interrupted"), "profile": (124, "")}, {"profile": (INCOMPLETE, "")}]
)
def test_a_system_whose_time_is_over_is_left_out_where_nothing_was_wrong(
    what: Mapping[str, Any], machine: dict[str, Any]
) -> None:
    machine |= what
    found = verified(PROJECT, limit=0)
    assert (found.left_out, found.failures) == ("its 0 s were over before the end", ())


@pytest.mark.parametrize(
    ("what", "failures"),
    [
        ({"tests": (124, "1 failed, 3 passed in 1 s")}, ("tests: 1 failed, 3 passed in 1 s",)),
        ({"profile": (FALSIFIED, "NOT CLEAN")}, ("profile engines: NOT CLEAN",)),
    ],
)
def test_a_system_whose_time_is_over_failed_where_something_was_wrong(
    what: Mapping[str, Any], failures: tuple[str, ...], machine: dict[str, Any]
) -> None:
    machine |= what
    found = verified(PROJECT, limit=0)
    assert (found.left_out, found.failures) == ("", failures)


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_each_system_has_tests_of_its_adapter(project: Project) -> None:
    assert adapter_tests(project)


def test_the_newest_release_is_the_newest_that_the_adapter_is_tried_with() -> None:
    assert newest(PROJECT, published=False) == PROJECT.compared[-1]
