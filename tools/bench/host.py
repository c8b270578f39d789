"""Host time of `preprocess_mamba`: what a V1 runner waits for before it can launch a forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.table import Table

from statecheck.case.values import BufferMaker
from statecheck.execution.port import InProcess
from statecheck.subject import Subject, load
from tools.bench import report
from tools.bench.cache import COPY_FUNCTIONS, DRAFTS, BenchCache, Shape, in_layout
from tools.bench.clock import Times, in_turn, quartiles, waiting_for

REQUESTS = 64
# As many layers as a GDN model has, of small states: how many bytes are copied makes no difference to the host.
_SHAPE = Shape("", 36, 8, (2, 2), torch.float32)
_KERNELS = ("batch_memcpy_kernel", "precopy_mamba_align_fused_kernel")
_WARM_UP = 5
# A step of 1 token and 2 drafts behind 31 tokens runs in column 2; 3 tokens were accepted before it.
_COMPUTED, _SCHEDULED, _ACCEPTED = 31, 1 + DRAFTS, 3
_RUN, _BEFORE = 2, 1


@dataclass(frozen=True)
class PreprocessCase:
    """Whether the rows come from another column, and whether the batch has block tables on the device."""

    name: str
    moving: bool
    by_table: bool


CASES = (
    PreprocessCase("every row changes its column, copies by address", moving=True, by_table=False),
    PreprocessCase("every row changes its column, copies by block table", moving=True, by_table=True),
    PreprocessCase("no row changes its column", moving=False, by_table=True),
)


@dataclass(frozen=True)
class PreprocessTimes:
    """Microseconds until `preprocess_mamba` returns."""

    case: str
    device: str
    times: Times


class PreprocessStep:
    """A V1 step of 64 requests that can be prepared again and again."""

    def __init__(self, case: PreprocessCase, subject: Subject, device: str) -> None:
        self._cache = BenchCache(_SHAPE, "SD", REQUESTS, device)
        self._preprocess = subject.resolve("preprocess_mamba")
        self._ids = [f"request {i}" for i in range(REQUESTS)]
        self._before = dict.fromkeys(self._ids, _BEFORE if case.moving else _RUN)
        self.columns: dict[str, int] = {}
        self.counts = np.zeros(REQUESTS, np.int32)
        self._arguments = self._made(case, subject, device)

    def _made(self, case: PreprocessCase, subject: Subject, device: str) -> dict[str, Any]:
        config = self._cache.config(subject)
        copy_functions = tuple(map(subject.resolve, COPY_FUNCTIONS))
        make_buffer = InProcess(subject, device).materialise(BufferMaker())
        buffers = subject.resolve("MambaCopyBuffers").create(REQUESTS, config, copy_functions, make_buffer)
        return {
            "scheduler_output": _scheduler_output(self._ids),
            "kv_cache_config": config,
            "cache_config": SimpleNamespace(enable_prefix_caching=True),
            "mamba_state_idx": self.columns,
            "input_batch": self._input_batch(case),
            "requests": {
                name: SimpleNamespace(
                    block_ids=[self._cache.table[i].tolist()], num_computed_tokens=_COMPUTED
                )
                for i, name in enumerate(self._ids)
            },
            "forward_context": self._cache.forward_context(),
            "mamba_state_copy_funcs": copy_functions,
            "copy_bufs": buffers,
        }

    def _input_batch(self, case: PreprocessCase) -> SimpleNamespace:
        batch = SimpleNamespace(req_ids=self._ids, num_accepted_tokens_cpu=self.counts)
        if case.by_table:
            table = self._cache.table
            batch.block_table = [SimpleNamespace(get_device_tensor=lambda rows: table[:rows])]
        return batch

    def reset(self) -> None:
        """As before the first time."""
        self.columns.clear()
        self.columns.update(self._before)
        self.counts[:] = _ACCEPTED

    def entries(self) -> int:
        """Copies by address of the last time."""
        copies: int = self._arguments["copy_bufs"].offset
        return copies

    def __call__(self) -> None:
        self._preprocess(**self._arguments)


def _scheduler_output(ids: Sequence[str]) -> SimpleNamespace:
    return SimpleNamespace(
        num_scheduled_tokens=dict.fromkeys(ids, _SCHEDULED),
        scheduled_spec_decode_tokens={name: [0] * DRAFTS for name in ids},
        finished_req_ids=set(),
        preempted_req_ids=None,
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
    )


def measure_host(device: str, repeats: int) -> list[PreprocessTimes]:
    """One row per case. On the CPU kernels are not launched: our executor would be what is timed."""
    subject = load("impl")
    with in_layout([subject], "SD"), launches(subject, device):
        return [
            PreprocessTimes(case.name, device, _times(PreprocessStep(case, subject, device), device, repeats))
            for case in CASES
        ]


@contextmanager
def launches(subject: Subject, device: str) -> Iterator[None]:
    """While it is entered, kernels are launched on a GPU only."""
    with ExitStack() as stack:
        for kernel in _KERNELS if device == "cpu" else ():
            stack.enter_context(patch.object(subject.resolve(kernel), "run", lambda *_, **__: None))
        yield


def _times(step: PreprocessStep, device: str, repeats: int) -> Times:
    wait = waiting_for(device)

    def prepare() -> None:
        step.reset()
        wait()

    return quartiles(in_turn([step], repeats, before=prepare, warm_up=_WARM_UP)[0])


def tables(rows: Sequence[PreprocessTimes]) -> list[Table]:
    """A table for each device."""
    devices = dict.fromkeys(row.device for row in rows)
    return [_table([row for row in rows if row.device == name], name) for name in devices]


def _table(rows: Sequence[PreprocessTimes], device: str) -> Table:
    left_out = "; the launch of kernels left out" if device == "cpu" else ""
    title = (
        f"preprocess_mamba, {REQUESTS} requests, {_SHAPE.layers} layers of 2 states, {device}\n"
        f"µs until it returns, median (quartiles){left_out}"
    )
    return report.table(title, ("step", "host time"), [(row.case, str(row.times)) for row in rows])
