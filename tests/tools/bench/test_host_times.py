"""Host times of the bench: calls that launch copies, and builders beside another subject's own."""

from __future__ import annotations

import pytest
import torch

from statecheck.execution.example import Bench
from statecheck.subject import load
from tools.bench import builders as bench_builders
from tools.bench import calls as bench_calls
from tools.bench.clock import Times


def test_calls_stand_beside_those_of_a_peer_that_has_them() -> None:
    ours, peer = Times(9.0, 10.0, 11.0), Times(24.0, 25.0, 26.0)
    rows = [bench_calls.CallTimes("both", ours, peer), bench_calls.CallTimes("one", ours)]
    (table,) = bench_calls.tables(rows)
    cells = [list(column.cells) for column in table.columns]
    assert cells == [["both", "one"], ["10.0 (9.0-11.0)"] * 2, ["25.0 (24.0-26.0)", "-"], ["2.50x", "-"]]
    assert bench_calls.tables(bench_calls.measure_calls("cpu", 1)) == []


def test_builders_are_timed_beside_a_subject_s_own(monkeypatch: pytest.MonkeyPatch, trial: Bench) -> None:
    device = trial.port.device
    first, *_ = bench_builders.loads()
    monkeypatch.setattr(bench_builders, "loads", lambda: iter([first]))
    monkeypatch.setattr(bench_builders, "_REPEATS", 3)
    threads = torch.get_num_threads()
    alone = bench_builders.measure_builders(device=device)
    beside = bench_builders.measure_builders(load("impl"), device)
    assert {(one.beside, one.same, one.ratio) for one in alone} == {(None, None, None)}
    assert all(one.beside and one.same and one.ratio for one in beside)
    assert torch.get_num_threads() == threads
    heads = [column.header for column in bench_builders.tables(beside, "other 1.0")[0].columns]
    assert heads[:4] == ["step", "ratio", "host time", "other 1.0"]


def test_a_builder_is_timed_without_what_an_adapter_adds() -> None:
    class Released:
        __module__ = "engine.builders"

    class Adapter(Released):
        __module__ = "subjects.engine"

    assert bench_builders._own_class(Adapter) is Released
