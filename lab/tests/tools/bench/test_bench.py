"""The bench of align mode: what it times is what its tables say, and a peer is held to the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lab.bench import copies as bench_copies
from lab.bench import loads as bench_loads
from lab.bench import rows as bench_rows
from lab.bench.__main__ import main
from lab.bench.cache import BenchCache, in_layout
from lab.bench.copies import HOST_REQUESTS, LAYOUTS, TINY, Measured, launcher
from lab.bench.loads import CopyLoad, Side
from statecheck.execution.example import ExecutionContext
from subjects import Subject, load

TINY_STATES = TINY.shapes[0]
ROWS = 4
RUN, DEST = 2, 1
COLUMNS = (1, 2, 3)
IMPL = load("impl")


def idle_peer(**methods: Any) -> Subject:
    """A peer whose postprocess does nothing."""

    def run_fused_postprocess(self: Any, num_reqs: int, num_accepted_tokens_gpu: Any, **_: Any) -> None:
        self.num_accepted_tokens_out[:num_reqs] = num_accepted_tokens_gpu[:num_reqs]

    known = IMPL.resolve("MambaSpecDecodeGPUContext")
    idle = type(
        "MambaSpecDecodeGPUContext", (known,), {"run_fused_postprocess": run_fused_postprocess, **methods}
    )
    module = ModuleType("toy_peer")
    vars(module).update(vars(IMPL.module), MambaSpecDecodeGPUContext=idle)
    return Subject("toy_peer", module)


@pytest.fixture(scope="module")
def device(trial: ExecutionContext) -> str:
    return trial.port.device


@pytest.fixture
def subject() -> Subject:
    return load("impl")


def launched(
    subject: Subject, layout: str, load_: CopyLoad, device: str
) -> tuple[BenchCache, list[torch.Tensor]]:
    """The cache after one launch, and its pools before."""
    with in_layout([subject], layout):
        cache = BenchCache(TINY_STATES, layout, ROWS, device)
        before = [pool.clone() for pool in cache.pools]
        launch, _ = launcher(load_, Side(subject, cache.context(subject, subject)), device)
        launch()
    return cache, before


def changed(cache: BenchCache, before: list[torch.Tensor]) -> set[tuple[int, int]]:
    """Row and column of each block with other bytes than before."""
    page = cache.shape.page_bytes
    blocks = {
        (row, column): int(cache.table[row, column]) * page for row in range(ROWS) for column in COLUMNS
    }
    return {
        place
        for place, first in blocks.items()
        for pool, old in zip(cache.pools, before, strict=True)
        if not torch.equal(pool[first : first + page], old[first : first + page])
    }


def few(load_: CopyLoad) -> CopyLoad:
    """The load of the host's clock, for as many rows as the cache has."""
    vectors = {name: values[: ROWS + 1] for name, values in load_.vectors.items()}
    return replace(load_, requests=ROWS, vectors=vectors)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("load_", "rows", "columns"),
    [
        (bench_loads.postprocess(ROWS, ROWS), range(ROWS), [DEST]),
        (bench_loads.postprocess(ROWS, 1), [2], [DEST]),
        (bench_loads.postprocess(ROWS, 0), [], []),
        (bench_loads.postprocess_align(ROWS, ROWS), range(ROWS), [DEST]),
        (bench_loads.precopy(ROWS, ROWS), range(ROWS), [RUN]),
        (bench_loads.v2_step(ROWS, ROWS, crossing=True), range(ROWS), [RUN, DEST]),
        *[(few(load_), [], []) for load_ in bench_loads.idle_loads(HOST_REQUESTS)],
    ],
)
def test_a_load_changes_the_columns_that_it_is_about(
    load_: CopyLoad, rows: Iterable[int], columns: list[int], layout: str, subject: Subject, device: str
) -> None:
    cache, before = launched(subject, layout, load_, device)
    assert changed(cache, before) == set(product(rows, columns))


@dataclass(frozen=True)
class BenchRun:
    """A run with a peer: what it measured, and the file that it saved."""

    measured: Measured
    saved: Path


@pytest.fixture(scope="module")
def bench_run(device: str, tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    out, measured = tmp_path_factory.mktemp("bench"), list[Measured]()
    measure = bench_copies.measure

    def noting(*arguments: Any) -> Measured:
        measured.append(measure(*arguments))
        return measured[-1]

    options = ["--tiny", "--device", device, "--subject", "impl", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_copies, "measure", noting)
        assert main(["--only", "align", *options]) == 0
    return BenchRun(measured[0], out / "align.json")


@pytest.fixture
def measured(bench_run: BenchRun) -> Measured:
    return bench_run.measured


def test_every_situation_is_timed_in_both_layouts(measured: Measured) -> None:
    rows = [(row.name, *row.about.values()) for row in measured.rows]
    expected = [
        (one.driver, f"tiny {layout}", one.requests, one.crossing)
        for layout in LAYOUTS
        for one in bench_loads.loads(TINY.requests)
    ]
    assert rows == expected
    assert all(row.ours.median > 0 for row in measured.rows)
    assert all((row.more["of ceiling"] is None) == (row.about["crossing"] == 0) for row in measured.rows)


def test_a_peer_is_timed_and_leaves_the_same_bytes(measured: Measured) -> None:
    assert all(row.peer is not None and row.same for row in measured.rows)


def test_a_peer_that_leaves_other_bytes_is_told(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench_copies.measure(replace(TINY, requests=(1,)), device, idle_peer()).rows
    compared = [row for row in rows if row.name == bench_loads.POSTPROCESS]
    assert all(row.same is (row.about["crossing"] == 0) for row in compared)
    bench_rows.show(bench_copies.shown(bench_copies.Measured(1.0, 1.0, 1.0, rows, ())))
    out = capsys.readouterr().out
    assert "another" in out
    different = sum(not row.same for row in rows)
    assert different > 0
    assert f"the peer left other bytes than impl in {different} rows" in out


def test_a_peer_without_counts_is_refused(device: str) -> None:
    def forgets(self: Any, *_: Any) -> None:
        vars(self).clear()

    with pytest.raises(ValueError, match="num_accepted_tokens_out"):
        bench_copies.measure(TINY, device, idle_peer(initialize_from_forward_context=forgets))


def test_without_a_gpu_the_bench_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(bench_copies, "FULL", TINY)
    assert main(["--only", "align", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "needs a GPU" in out
    saved = json.loads((tmp_path / "align.json").read_text(encoding="utf-8"))
    assert saved["device"] is None


def test_all_numbers_are_saved(bench_run: BenchRun) -> None:
    saved = json.loads(bench_run.saved.read_text(encoding="utf-8"))
    assert saved["environment"].keys() >= {"gpu", "torch", "triton", "revision"}
    assert saved["peer"].endswith("impl/__init__.py")
    assert saved["device"]["ceiling"] > 0
    assert len(saved["device"]["rows"]) == 2 * len(list(bench_loads.loads(TINY.requests)))
