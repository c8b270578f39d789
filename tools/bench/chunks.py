"""Host time of the two chunk builders beside the loops that such code usually is.

A builder runs on the host while the device waits for its step, so what counts is the time until the call returns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise, product, starmap
from typing import Any

import torch
from rich.table import Table

from statecheck.execution.port import choose_device
from statecheck.report import numbers
from statecheck.rooms import home
from statecheck.subject import Subject
from statecheck.subject import load as subject
from tools.bench import align as bench_align
from tools.bench import builders as bench_builders
from tools.bench import report as bench_report
from tools.bench.cache import offers_copies
from tools.bench.clock import Times, in_turn, quartiles, waiting_for

RESULTS = home() / "build" / "bench.json"
REQUESTS, TOKENS, CHUNK_SIZE = (8, 64, 512), (8 * 1024, 64 * 1024), 256
_SEED = 0
_REPEATS = 200

Build = Callable[[torch.Tensor], Any]
VARLEN, CONV = "compute_varlen_chunk_metadata", "compute_causal_conv1d_metadata"


@dataclass(frozen=True)
class ChunkLoad:
    """What a function is called with."""

    function: str
    device: str
    requests: int
    tokens: int

    def starts(self) -> torch.Tensor:
        """int32 starts: one builder reads them where the batch has them, the other on the host."""
        starts = torch.tensor(random_starts(self.requests, self.tokens), dtype=torch.int32)
        return starts.to(self.device) if self.function == VARLEN else starts


@dataclass(frozen=True)
class ChunkTimes:
    """Microseconds until the call returns, of both sides."""

    load: ChunkLoad
    subject: Times
    plain: Times

    @property
    def ratio(self) -> float:
        """How many times as long plain Python takes."""
        return self.plain.median / self.subject.median


def run_bench(only: str, align: bench_align.BenchOptions, beside: Subject | None = None) -> int:
    """Time what the bench times, or `only` "builders", "align" or "host"; returns the exit code.

    `beside`: a subject that is timed in turn with impl: its builders, and its copies where it offers them.
    """
    if beside and offers_copies(beside):
        align = replace(align, peer=beside)
    code = _run_builders(beside, align.device) if only in ("", "builders") else 0
    if code == 0 and only != "builders":
        bench_align.run_align(align)
    return code


def _run_builders(beside: Subject | None, device: str) -> int:
    """Print the tables and save them as `build/bench.json`; 1 if the two sides do not build the same."""
    results: list[ChunkTimes] = []
    for load in _loads(device):
        ours, plain = contenders(load.function, load.device)
        starts = load.starts()
        if not same(ours(starts), plain(starts)):
            print(f"the results differ: {load}")
            return 1
        sides = [partial(ours, starts), partial(plain, starts)]
        times = map(quartiles, in_turn(sides, _REPEATS, before=waiting_for(load.device)))
        results.append(ChunkTimes(load, *times))
    builders = bench_builders.measure_builders(beside, device)
    name = f"{beside.name} {beside.release}".rstrip() if beside else ""
    console = bench_report.console()
    for table in (*_tables(results), *bench_builders.tables(builders, name)):
        console.print(table, "")
    _save(results, builders, name)
    return 0


def _loads(device: str) -> Iterator[ChunkLoad]:
    devices = dict.fromkeys(("cpu", choose_device(device)))
    return starmap(ChunkLoad, product((VARLEN, CONV), devices, REQUESTS, TOKENS))


def random_starts(requests: int, tokens: int) -> list[int]:
    """Cumulative starts of a random partition of `tokens` into non-empty requests, the same in every run."""
    cuts = random.Random(_SEED).sample(range(1, tokens), requests - 1)
    return [0, *sorted(cuts), tokens]


def contenders(function: str, device: str) -> tuple[Build, Build]:
    """The implementation and its plain peer, each as a function of the starts."""
    builder = subject("impl").resolve(function)
    if function == VARLEN:
        return lambda starts: builder(starts, CHUNK_SIZE), lambda starts: plain_varlen(starts, CHUNK_SIZE)
    return lambda starts: builder(starts, device=device), lambda starts: plain_conv(starts, device)


def plain_varlen(query_start_loc: torch.Tensor, chunk_size: int) -> tuple[torch.Tensor, ...]:
    """The packed chunks, found by walking from one to the next."""
    boundaries: list[int] = [0]
    last: list[int] = []
    owners: list[int] = []
    for sequence, (start, end) in enumerate(pairwise(query_start_loc.tolist())):
        last.append(-1)
        position = start
        while position < end:
            position = min(end, (position // chunk_size + 1) * chunk_size)
            last[sequence] = len(owners)
            owners.append(sequence)
            boundaries.append(position)
    device = query_start_loc.device
    return tuple(
        torch.tensor(items, dtype=torch.int32, device=device) for items in (boundaries, last, owners)
    )


def plain_conv(query_start_loc_p_cpu: torch.Tensor, device: str, block: int = 8) -> Any:
    """The convolution's programs, appended one by one."""
    counts: list[int] = []
    rows: list[int] = []
    ordinals: list[int] = []
    for row, (start, end) in enumerate(pairwise(query_start_loc_p_cpu.tolist())):
        counts.append(-(-(end - start) // block))
        for ordinal in range(counts[-1]):
            rows.append(row)
            ordinals.append(ordinal)
    filler = [-1] * (2 * max(1024, len(rows)) - len(rows))
    batch_ptr = torch.tensor(rows + filler, dtype=torch.int32, device=device)
    token_chunk_offset_ptr = torch.tensor(ordinals + filler, dtype=torch.int32, device=device)
    nums = {
        "nums": torch.tensor(counts, dtype=query_start_loc_p_cpu.dtype),
        "tot": len(rows),
        "mlist": torch.tensor(rows),
        "mlist_len": len(rows),
        "offsetlist": torch.tensor(ordinals, dtype=torch.int32),
        "batch_ptr": batch_ptr,
        "token_chunk_offset_ptr": token_chunk_offset_ptr,
    }
    return {block: nums}, batch_ptr, token_chunk_offset_ptr


def same(result: Any, other: Any) -> bool:
    """Equal in structure, dtypes, devices and values."""
    if isinstance(result, torch.Tensor):
        alike = isinstance(other, torch.Tensor) and (result.dtype, result.device) == (
            other.dtype,
            other.device,
        )
        return alike and torch.equal(result, other)
    if isinstance(result, dict):
        return list(result) == list(other) and all(same(item, other[key]) for key, item in result.items())
    if isinstance(result, tuple):
        return len(result) == len(other) and all(map(same, result, other))
    return type(result) is type(other) and bool(result == other)


def _tables(results: list[ChunkTimes]) -> Iterator[Table]:
    kinds = [(result.load.function, result.load.device) for result in results]
    for function, device in dict.fromkeys(kinds):
        rows = [result for result, kind in zip(results, kinds, strict=True) if kind == (function, device)]
        yield bench_report.table(
            f"{function}\n{device}; µs until the call returns, median (quartiles)",
            ("requests", "tokens", "impl", "plain Python", "ratio"),
            [
                (
                    str(row.load.requests),
                    f"{row.load.tokens:,}",
                    str(row.subject),
                    str(row.plain),
                    f"{row.ratio:.1f}x",
                )
                for row in rows
            ],
            left=0,
        )


def _save(results: list[ChunkTimes], builders: list[bench_builders.BuilderTimes], beside: str) -> None:
    content = {
        "environment": numbers.environment() | {"seed": _SEED},
        "beside": beside or None,
        "unit": "microseconds",
        "chunk_size": CHUNK_SIZE,
        "results": [asdict(result) | {"ratio": result.ratio} for result in results],
        "builders": [asdict(result) | {"ratio": result.ratio} for result in builders],
    }
    numbers.save(RESULTS, content)
