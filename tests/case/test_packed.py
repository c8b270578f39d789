"""Steps as bytes: what is read is what was written."""

from __future__ import annotations

import json
import math
import os
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from statecheck.case.codec import encode
from statecheck.case.packed import pack, unpack
from statecheck.case.values import Let, Name, Overwrite, Tensor, View, call, int32, record
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import load_properties
from statecheck.workers.log import State
from tests.helpers.cases import a_case


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


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no record",
        pickle.dumps(5),
        pickle.dumps(["text"]),
        pickle.dumps([Name("a")]),
        b"\xff",
        pack([call("f")])[:-3],
    ],
    ids=["empty", "text", "number", "no step", "another value", "no opcode", "torn"],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="steps"):
        unpack(data)


def test_the_json_of_a_log_of_an_earlier_version_is_read() -> None:
    step, case = call("f", x=int32([0, 3]), y={"k": b"\xff"}), a_case()
    assert unpack(json.dumps([encode(step)]).encode()) == [step]
    assert unpack(json.dumps(case.to_data()).encode()) == case


@pytest.mark.parametrize(
    "value", [object(), print, {1, 2}, Bench], ids=["object", "function", "set", "class"]
)
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"plain data|should be steps"):
        unpack(pack([call("f", x=value)]))


def test_numbers_and_texts_of_other_types_are_written_as_plain_ones() -> None:
    step = call("f", x=np.float64(0.5), y=(np.str_("a"), State.CALL), z=math.inf)
    assert unpack(pack([step])) == [call("f", x=0.5, y=("a", 2), z=math.inf)]


class _Effect:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("made by reading",)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_reading_runs_no_function_that_the_bytes_name(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="should be steps"):
        unpack(pickle.dumps([_Effect()], protocol))
    assert not list(tmp_path.iterdir())


def test_parts_that_refer_to_each_other_and_too_deep_ones_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    for data in (pickle.dumps(endless), pickle.dumps([deep, deep])):
        with pytest.raises(ValueError, match="should be steps"):
            unpack(data)
    with pytest.raises(ValueError, match="lists in lists"):
        unpack(pack([call("f", x=deep)]))


@pytest.mark.parametrize("at", range(0, 60, 3))
def test_bytes_that_changed_give_other_steps_or_are_refused(at: int) -> None:
    data = pack([call("f", x=int32([1, 2]), y={"k": [1.5, None]})])
    for new in range(256):
        changed = data[:at] + bytes([new]) + data[at + 1 :]
        with suppress(ValueError):
            assert isinstance(unpack(changed), list)
