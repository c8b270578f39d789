"""Steps as bytes: what is read is what was written, and reading runs nothing."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from statecheck.case.packed import pack, unpack
from statecheck.case.values import Let, Overwrite, Tensor, View, call, int32, record
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import load_properties
from tests.breakages.broken import a_case

_VALUES = b"\x80\x05cstatecheck.case.values\nCall\n"


@pytest.mark.parametrize(
    "step",
    [
        call("f", x=int32([0, 3]), y=[1.5, None, True, "a"], environment={"A": "1"}, observes=("x",)),
        Let("a", record("Config", sizes=(1, 2), more={"k": b"\x00\xff"})),
        Overwrite("a", bytes(1 << 20)),
        Let("v", View("a", "int8", (2, 2), (4, 1), 3)),
        Let("t", Tensor("int64", (1 << 12,), (7,) * (1 << 12))),
    ],
    ids=["call", "record", "megabyte", "view", "tensor"],
)
def test_steps_come_back_as_they_were(step: object) -> None:
    assert unpack(pack([step])) == [step]  # type: ignore[list-item]


@pytest.mark.parametrize("name", sorted(load_properties())[::9])
def test_the_steps_of_properties_come_back_as_they_were(
    name: str, trial: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Trial] = []

    def keep(one: Trial) -> None:
        kept.append(one)

    tested = load_properties()[name]
    if tested.not_applicable(trial) is None:
        monkeypatch.setattr(Trial, "end", keep)
        tested.explore(trial, seed=1, max_examples=1)
    for one in kept:
        assert unpack(pack(one.begun)) == list(one.begun)


def test_a_failing_case_comes_back_as_it_was() -> None:
    case = a_case()
    assert unpack(pack(case)) == case


class RunsCode:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_reading_runs_no_code(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"name = posix.mkdir, but should be a value's"):
        unpack(pickle.dumps((RunsCode(tmp_path / "made"),)))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no pickle",
        pickle.dumps(5),
        pickle.dumps(("text",)),
        pack([call("f")])[:-3],
        # Attributes of what stands for a class.
        _VALUES + b"}\x8c\x08functionK\x01sb.",
        _VALUES + b"N}\x8c\x05_kindK\x01s\x86b.",
        # The class itself, among the steps.
        _VALUES + b"\x85.",
    ],
    ids=["empty", "text", "number", "no step", "torn", "state", "slots", "a class"],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="but should be steps"):
        unpack(data)
