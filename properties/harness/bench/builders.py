"""Host time of `build()`: what a runner waits for before it can launch a step."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table

from properties.harness.execution.port import InProcess, choose_device
from properties.harness.subject import Subject, load
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest

_SEED = 0
_WARM_UP, _REPEATS = 20, 300
_CONTEXT = 4096


@dataclass(frozen=True)
class BuilderLoad:
    """A builder and the step that it is timed on."""

    name: str
    setup: BuilderSetup
    step: BuildCall


@dataclass(frozen=True)
class BuilderTimes:
    """Microseconds until `build` returns, and what it enqueues on a GPU (None where there is none)."""

    load: str
    device: str
    low: float
    median: float
    high: float
    kernels: int | None
    uploads: int | None
    fills: int | None


def measure_builders() -> list[BuilderTimes]:
    """Time every load on the CPU and, where there is one, on the GPU."""
    devices = ("cpu", "cuda") if choose_device("auto") == "cuda" else ("cpu",)
    return [_measure(load_, device) for device in devices for load_ in loads()]


def loads() -> Iterator[BuilderLoad]:
    """(decodes, prefills) of Mamba-2, all-speculative steps of both kinds, and a mixed one of GDN."""
    drawn = random.Random(_SEED)
    for decodes, prefills in ((256, 0), (0, 64), (128, 16)):
        rows = (*_decodes(drawn, decodes, 0), *_prefills(drawn, prefills))
        yield BuilderLoad(f"mamba2 ({decodes}, {prefills})", _setup("mamba2", 0), BuildCall(rows))
    for kind in ("mamba2", "gdn"):
        yield BuilderLoad(f"{kind} all-spec 64x3", _setup(kind, 2), BuildCall(tuple(_decodes(drawn, 64, 2))))
    for decodes, prefills in ((256, 0), (0, 64), (128, 16)):
        rows = (*_decodes(drawn, decodes, 0), *_prefills(drawn, prefills))
        yield BuilderLoad(f"gdn ({decodes}, {prefills})", _setup("gdn", 0), BuildCall(rows))
    mixed = (*_decodes(drawn, 48, 2), *_decodes(drawn, 16, 0), *_prefills(drawn, 16))
    yield BuilderLoad("gdn mixed spec 48x3, 16x1, 16 prefills", _setup("gdn", 2), BuildCall(mixed))


def _setup(kind: str, num_spec: int) -> BuilderSetup:
    return BuilderSetup(
        kind=kind,
        mode="align",
        block_size=1024,
        num_spec=num_spec,
        max_num_seqs=512,
        full_cudagraphs=True,
        max_model_len=32 * 1024,
        chunk_size=256,
    )


def _decodes(drawn: random.Random, rows: int, drafts: int) -> Iterator[StepRequest]:
    for _ in range(rows):
        yield StepRequest(1 + drafts, drawn.randrange(1, _CONTEXT), False, 1 + drafts, drafts or -1)


def _prefills(drawn: random.Random, rows: int) -> Iterator[StepRequest]:
    for _ in range(rows):
        yield StepRequest(drawn.randrange(64, 1024), drawn.choice((0, 1024)), True)


def _measure(load_: BuilderLoad, device: str) -> BuilderTimes:
    build = _build(load_, load("impl"), device)
    for _ in range(_WARM_UP):
        build()
    gc.disable()
    clocks = sorted(_clock(build, device) for _ in range(_REPEATS))
    gc.enable()
    low, median, high = statistics.quantiles(clocks, n=4)
    return BuilderTimes(load_.name, device, low, median, high, *_enqueued(build, device))


def _build(load_: BuilderLoad, subject: Subject, device: str) -> Callable[[], Any]:
    port = InProcess(subject, device)
    keywords = {name: port.materialise(value) for name, value in load_.setup.construct().keywords}
    builder = subject.resolve(load_.setup.builder)(**keywords)
    call = load_.step.build(load_.setup)
    common = port.materialise(call.named["common_attn_metadata"])
    options = {name: port.materialise(value) for name, value in call.keywords}
    return lambda: builder.build(0, common, **options)


def _clock(build: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter_ns()
    kept = build()
    ended = time.perf_counter_ns()
    del kept
    return (ended - started) / 1000


def _enqueued(build: Callable[[], Any], device: str) -> tuple[int | None, int | None, int | None]:
    """Kernels, host-to-device copies and fills of one build."""
    if device == "cpu":
        return None, None, None
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True
    ) as profile:
        build()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    uploads = sum("HtoD" in name for name in names)
    fills = sum(name.startswith("Memset") for name in names)
    others = sum(name.startswith("Memcpy") and "HtoD" not in name for name in names)
    return len(names) - uploads - fills - others, uploads, fills + others


def tables(results: list[BuilderTimes]) -> list[Table]:
    """A table for each device."""
    return [_table(results, device) for device in dict.fromkeys(one.device for one in results)]


def _table(results: list[BuilderTimes], device: str) -> Table:
    table = Table(
        title=f"build(), {device}; µs until it returns, median (quartiles)",
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    columns = (
        ("step", "host time", "kernels", "uploads", "other") if device == "cuda" else ("step", "host time")
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "step" else "right", no_wrap=True)
    for one in results:
        if one.device == device:
            counts = [] if one.kernels is None else [str(one.kernels), str(one.uploads), str(one.fills)]
            table.add_row(one.load, f"{one.median:,.0f} ({one.low:,.0f}-{one.high:,.0f})", *counts)
    return table
