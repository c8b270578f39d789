"""Steps as bytes: what is read is what was written."""

from __future__ import annotations

import pytest

from statecheck.case.packed import pack, unpack
from statecheck.case.values import Let, Overwrite, Tensor, View, call, int32, record
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import load_properties
from tests.breakages.broken import a_case


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
    [b"", b"no JSON", b"5", b'["text"]', b'[{"Name": {"name": "a"}}]', b"\xff", pack([call("f")])[:-3]],
    ids=["empty", "text", "number", "no step", "another value", "no UTF-8", "torn"],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"steps|can't decode"):
        unpack(data)
