"""Host time of `build()`: what a runner waits for before it can launch a step, beside another subject's if there is one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from rich.table import Table

from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.execution.port import InProcess, choose_device
from statecheck.report import numbers
from statecheck.rooms import home
from statecheck.subject import Subject, load
from tools.bench import report
from tools.bench.clock import Times, in_turn, quartiles, waiting_for

RESULTS = home() / "build" / "bench.json"
_SEED = 0
_REPEATS = 300
_CONTEXT = 4096


@dataclass(frozen=True)
class BuilderLoad:
    """A builder and the step that it is timed on."""

    name: str
    setup: BuilderSetup
    step: BuildCall


@dataclass(frozen=True)
class BuilderTimes:
    """Microseconds until `build` returns, and what it enqueues on a GPU (None where there is none).

    `beside`: of the other subject's own builder, None where there is none. `same`: whether both have counted the same
    requests and tokens of each kind.
    """

    load: str
    device: str
    times: Times
    kernels: int | None
    uploads: int | None
    fills: int | None
    beside: Times | None = None
    same: bool | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as long the other one takes."""
        return None if self.beside is None else self.beside.median / self.times.median


def run_builders(beside: Subject | None, device: str) -> None:
    """Print the tables, and save them as `build/bench.json`."""
    results = measure_builders(beside, device)
    name = f"{beside.name} {beside.release}".rstrip() if beside else ""
    console = report.console()
    for table in tables(results, name):
        console.print(table, "")
    content = {
        "environment": numbers.environment() | {"seed": _SEED},
        "beside": name or None,
        "unit": "microseconds",
        "builders": [asdict(result) | {"ratio": result.ratio} for result in results],
    }
    numbers.save(RESULTS, content)


def measure_builders(beside: Subject | None = None, device: str = "auto") -> list[BuilderTimes]:
    """Time every load on the CPU and, where that is the device, on the GPU."""
    devices = dict.fromkeys(("cpu", choose_device(device)))
    sides = [load("impl"), beside] if beside else [load("impl")]
    with _one_thread():
        return [_measure(load_, sides, device) for device in devices for load_ in loads()]


@contextmanager
def _one_thread() -> Iterator[None]:
    """As in the workers of engines: torch shares out a few hundred numbers, and waits for all threads of a busy host."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


def _measure(load_: BuilderLoad, sides: Sequence[Subject], device: str) -> BuilderTimes:
    builds = [_build(load_, side, device) for side in sides if side.has(load_.setup.builder)]
    ours, *others = map(quartiles, in_turn(builds, _REPEATS, before=waiting_for(device)))
    enqueued = _enqueued(builds[0], device)
    if not others:
        return BuilderTimes(load_.name, device, ours, *enqueued)
    counts = [_counts(build()) for build in builds]
    return BuilderTimes(load_.name, device, ours, *enqueued, others[0], counts[0] == counts[1])


def _counts(metadata: Any) -> dict[str, int]:
    """What the metadata says of how many requests and tokens of each kind there are."""
    names = (field.name for field in fields(metadata) if field.name.startswith("num_"))
    return {name: value for name in names if isinstance(value := getattr(metadata, name), int)}


def _build(load_: BuilderLoad, subject: Subject, device: str) -> Callable[[], Any]:
    port = InProcess(subject, device)
    keywords = {name: port.materialise(value) for name, value in load_.setup.construct().keywords}
    builder = subject.resolve(load_.setup.builder)(**keywords)
    call = load_.step.build(load_.setup)
    common = port.materialise(call.named["common_attn_metadata"])
    options = {name: port.materialise(value) for name, value in call.keywords}
    build = _own_class(type(builder)).build
    return lambda: build(builder, 0, common, **options)


def _own_class(adapted: type[Any]) -> type[Any]:
    """The builder's class without what an adapter of the harness's adds, whose time is not the subject's."""
    return next(base for base in adapted.__mro__ if not base.__module__.startswith("subjects."))


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


def tables(results: Sequence[BuilderTimes], beside: str = "") -> list[Table]:
    """A table for each device. `beside`: what the other subject is called."""
    return [
        _table([row for row in results if row.device == device], device, beside)
        for device in dict.fromkeys(row.device for row in results)
    ]


def _table(rows: Sequence[BuilderTimes], device: str, beside: str) -> Table:
    counted = ("kernels", "uploads", "other") if device == "cuda" else ()
    compared = ("ratio", "host time", beside) if beside else ("host time",)
    return report.table(
        f"build(), {device}; µs until it returns, median (quartiles)",
        ("step", *compared, *counted),
        [(row.load, *_times(row, beside), *_counted(row, device)) for row in rows],
    )


def _times(row: BuilderTimes, beside: str) -> Sequence[str]:
    other = "" if row.same in (None, True) else ", other counts"
    return (f"{row.ratio:.2f}x{other}", str(row.times), str(row.beside)) if beside else (str(row.times),)


def _counted(row: BuilderTimes, device: str) -> Sequence[str]:
    return (str(row.kernels), str(row.uploads), str(row.fills)) if device == "cuda" else ()
