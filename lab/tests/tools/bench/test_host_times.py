"""Host times of the bench: calls that launch copies, and builders beside another subject's own."""

from __future__ import annotations

import pytest
import torch

from lab.bench import builders as bench_builders
from lab.bench.clock import Times
from lab.bench.rows import Row, table
from statecheck.execution.example import ExecutionContext
from statecheck.subject import load


def test_calls_stand_beside_those_of_a_peer_that_has_them() -> None:
    ours, peer = Times(9.0, 10.0, 11.0), Times(24.0, 25.0, 26.0)
    rows = [Row("both", {"requests": 3}, [ours, peer], same=False), Row("one", {"requests": 4}, [ours])]
    cells = [list(column.cells) for column in table("calls", rows).columns]
    assert cells == [
        ["both", "one"],
        ["3", "4"],
        ["10.0 (9.0-11.0)"] * 2,
        ["25.0 (24.0-26.0)", "-"],
        ["2.50x, another result", "-"],
    ]


def test_builders_are_timed_beside_a_subject_s_own(
    monkeypatch: pytest.MonkeyPatch, trial: ExecutionContext
) -> None:
    device = trial.port.device
    first, *_ = bench_builders.loads()
    monkeypatch.setattr(bench_builders, "loads", lambda: iter([first]))
    monkeypatch.setattr(bench_builders, "_REPEATS", 3)
    threads = torch.get_num_threads()
    alone = bench_builders.measure_builders(device=device)
    beside = bench_builders.measure_builders(load("impl"), device)
    assert {(row.peer, row.same, row.ratio) for rows in alone.values() for row in rows} == {
        (None, None, None)
    }
    assert all(row.peer and row.same and row.ratio for rows in beside.values() for row in rows)
    assert torch.get_num_threads() == threads


def test_a_builder_is_timed_without_what_an_adapter_adds() -> None:
    class Released:
        __module__ = "engine.builders"

    class Adapter(Released):
        __module__ = "subjects.engine"

    assert bench_builders._own_class(Adapter) is Released
