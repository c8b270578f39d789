"""Host time of a context's drivers: what a runner pays to launch the copies of a step, however long these take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import triton
from rich.table import Table

from statecheck.subject import Subject, load
from tools.bench import report
from tools.bench.cache import BenchCache, Shape, in_layout
from tools.bench.clock import Action, Times, in_turn, quartiles
from tools.bench.device import launcher
from tools.bench.loads import (
    CopyLoad,
    Side,
    postprocess,
    postprocess_align,
    precopy,
    v2_step,
)

REQUESTS = 64
# How large the states are makes no difference to the host; that nothing is copied keeps the GPU ahead of it.
_SHAPE = Shape("", 2, 8, (2, 2), torch.float32)
_IN_A_ROW = 100


@dataclass(frozen=True)
class CallTimes:
    """Microseconds until a call returns; `peer`: of the peer's, None where it has no such driver."""

    call: str
    ours: Times
    peer: Times | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as long the peer takes."""
        return None if self.peer is None else self.peer.median / self.ours.median


@triton.jit
def nothing_kernel():  # type: ignore[no-untyped-def]
    """Does nothing."""


def loads() -> Iterator[CopyLoad]:
    """One call of each driver, and a V2 step; none of the requests copies anything."""
    yield postprocess(REQUESTS, 0)
    still = postprocess_align(REQUESTS, REQUESTS).vectors | {"new_num_computed_tokens_gpu": [20] * REQUESTS}
    yield CopyLoad("run_fused_postprocess_align", REQUESTS, 0, 0, still)
    fresh = precopy(REQUESTS, REQUESTS).vectors | {"src_col_gpu": [-1] * REQUESTS}
    yield CopyLoad("run_fused_precopy", REQUESTS, 0, 0, fresh)
    yield v2_step(REQUESTS, REQUESTS, crossing=False)


def measure_calls(device: str, repeats: int, peer: Subject | None = None) -> list[CallTimes]:
    """One row per driver, and one for a launch of a kernel without arguments; none where there is no GPU."""
    if device != "cuda":
        return []
    ours = load("impl")
    sides = [ours, peer] if peer else [ours]
    empty = CallTimes("an empty kernel, through Triton's JIT", *_times([nothing_kernel[(1,)]], repeats))
    with in_layout(sides, "SD"):
        cache = BenchCache(_SHAPE, "SD", REQUESTS, device)
        compared = [Side(side, cache.context(side, ours)) for side in sides]
        return [empty, *(_row(load_, compared, device, repeats) for load_ in loads())]


def _row(load_: CopyLoad, sides: Sequence[Side], device: str, repeats: int) -> CallTimes:
    calls = [launcher(load_, side, device)[0] for side in sides if load_.offered_by(side)]
    return CallTimes(load_.driver, *_times(calls, repeats))


def _times(calls: Sequence[Action], repeats: int) -> list[Times]:
    """Of each side, the sides in turn; so many calls in a row as leave the GPU's queue room."""
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for taken, call in zip(samples, calls, strict=True):
            torch.cuda.synchronize()
            taken.extend(in_turn([call], _IN_A_ROW)[0])
    return [quartiles(taken) for taken in samples]


def tables(rows: Sequence[CallTimes]) -> list[Table]:
    """One table, or none where nothing was timed."""
    if not rows:
        return []
    with_peer = any(row.peer is not None for row in rows)
    title = f"drivers, {REQUESTS} requests, nothing to copy; µs until the call returns, median (quartiles)"
    columns = ("call", "host time", *["peer", "ratio"] * with_peer)
    return [report.table(title, columns, [_cells(row, with_peer) for row in rows])]


def _cells(row: CallTimes, with_peer: bool) -> Sequence[str]:
    against = ("-", "-") if row.peer is None else (row.peer.precise, f"{row.ratio:.2f}x")
    return (row.call, row.ours.precise, *against * with_peer)
