"""`lab.conformance`: two results of the same versions say the same, or the tool says where they do not."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from lab.conformance import RESULT, main

RUN: dict[str, Any] = {
    "suite": "statecheck 0.1.0",
    "profile": "functions",
    "profile_version": 1,
    "subject": "my_port",
    "release": "",
    "device": "cpu",
    "date": "2026-11-26T18:00:00+00:00",
    "verdict": "CLEAN",
    "reasons": [],
    "counts": {"passed": 1},
    "properties": {"split/partition": {"status": "passed", "examples": 200, "compared": 180}},
    "expected_failures": [],
    "environment": {"python": "3.11.9"},
}


def compared(folder: Path, second: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    (folder / RESULT).write_text(json.dumps(RUN), encoding="utf-8")
    (folder / "second.json").write_text(json.dumps(second), encoding="utf-8")
    return main([str(folder), str(folder / "second.json")]), capsys.readouterr().out


def test_dates_and_versions_may_differ_and_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = RUN | {"date": "2026-11-27T18:00:00+00:00", "environment": {"python": "3.12.1"}}
    code, printed = compared(tmp_path, second, capsys)
    assert code == 0
    assert "python: 3.11.9 and 3.12.1" in printed
    assert "the same: CLEAN, 1 properties" in printed


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"verdict": "NOT CLEAN"}, "verdict: CLEAN and NOT CLEAN"),
        (
            {"properties": {}},
            "split/partition: {'status': 'passed', 'examples': 200, 'compared': 180} and missing",
        ),
        ({"profile_version": 2}, "profile_version: 1 and 2"),
        ({"expected_failures": [{"id": "d", "status": "showed"}]}, "d: missing and showed"),
    ],
)
def test_what_should_be_the_same_is_named(
    change: dict[str, Any], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(tmp_path, RUN | change, capsys) == (1, f"{line}\n")


def test_a_count_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = deepcopy(RUN)
    second["properties"]["split/partition"]["compared"] = 179
    code, printed = compared(tmp_path, second, capsys)
    assert (code, printed.count("\n")) == (1, 1)
    assert "'compared': 179" in printed
