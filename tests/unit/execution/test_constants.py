"""Which constants of source code Hypothesis draws."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from statecheck.execution.example import ExecutionContext
from tests.helpers.cases import a_property
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh

_PROGRAM = """
from statecheck.rooms import open_rooms
open_rooms()
from statecheck.execution import profiles
profiles.load("nightly")
import oracle.chunks, statecheck.campaign.plan, my_port
from hypothesis.internal.conjecture import providers
print(sorted(providers._get_local_constants().set_for_type("integer")))
"""


def test_constants_are_those_of_the_subject_and_none_of_the_harness(tmp_path: Path) -> None:
    (tmp_path / "my_port.py").write_text("LIMIT = 70123\n", encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    storage = {"HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    printed = run_fresh("-c", _PROGRAM, cwd=tmp_path, env={"PYTHONPATH": paths} | storage).stdout
    assert printed.strip() == "[70123]"


def test_the_first_pass_reads_no_constants_and_later_rounds_do(
    trial: ExecutionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bool] = []

    def noted() -> Any:
        read.append(True)
        return providers._local_constants

    monkeypatch.setattr(providers, "_get_local_constants", noted)
    # Of 20 integers one is a constant.
    many = {"x": st.lists(st.integers(), min_size=200, max_size=201)}
    tested = a_property(lambda trial, x: None, strategies=many)
    tested.explore(trial, seed=1, max_examples=9, simplest=False)
    assert not read
    tested.explore(trial, seed=1, max_examples=9)
    assert read
