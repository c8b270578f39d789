"""Host time of `build()`: what a runner waits for before it can launch a step, beside another subject's if there is one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch

from lab.bench.clock import in_turn, wait_for
from lab.bench.rows import Row, show, table, title_of
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.execution.executors import choose_device
from statecheck.execution.in_process import InProcess
from statecheck.report.environment import environment_of_numbers
from statecheck.rooms import home
from statecheck.subject import Subject, load
from statecheck.util.files import save_json

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


def run_builders(beside: Subject | None, device: str) -> None:
    """Print a table for each device, and save them as `build/bench.json`."""
    results = measure_builders(beside, device)
    show(table(f"build() until it returns, {device}", rows) for device, rows in results.items())
    content = {
        "environment": environment_of_numbers() | {"seed": _SEED},
        "peer": title_of(beside),
        "unit": "microseconds",
        "builders": {device: [row.data for row in rows] for device, rows in results.items()},
    }
    save_json(RESULTS, content)


def measure_builders(beside: Subject | None = None, device: str = "auto") -> dict[str, list[Row]]:
    """Time every load on the CPU and, where that is the device, on the GPU; rows by device.

    `more` of a row has what a build enqueues on a GPU. `same`: whether both sides count the same requests and tokens of each kind.
    """
    devices = dict.fromkeys(("cpu", choose_device(device)))
    sides = [load("impl"), beside] if beside else [load("impl")]
    with _one_thread():
        return {device: [_measure(load_, sides, device) for load_ in loads()] for device in devices}


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


def _measure(load_: BuilderLoad, sides: Sequence[Subject], device: str) -> Row:
    builds = [_build(load_, side, device) for side in sides if side.has(load_.setup.builder)]
    times = in_turn(builds, _REPEATS, before=lambda number: wait_for(device))
    more = _enqueued(builds[0]) if device == "cuda" else {}
    ours, *others = [_counts(build()) for build in builds]
    return Row(load_.name, {}, times, ours == others[0] if others else None, more)


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


def _enqueued(build: Callable[[], Any]) -> dict[str, float | int | None]:
    """Kernels, host-to-device copies, and fills and other copies of one build."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True
    ) as profile:
        build()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    uploads = sum("HtoD" in name for name in names)
    others = sum(name.startswith(("Memset", "Memcpy")) and "HtoD" not in name for name in names)
    return {"kernels": len(names) - uploads - others, "uploads": uploads, "other": others}
