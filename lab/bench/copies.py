"""The bench of align mode: device time of the copies, and host time of the calls that launch them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import triton
from rich.table import Table

from lab.bench.cache import BenchCache, Shape, in_layout
from lab.bench.clock import Action, Clock, clock_of, in_turn, wait_for
from lab.bench.loads import POSTPROCESS, CopyLoad, Side, idle_loads, loads
from lab.bench.rows import Row, show, table, title_of
from statecheck.execution.executors import choose_device
from statecheck.report.environment import environment_of_numbers
from statecheck.subject import Subject, load
from statecheck.util.files import save_json

GDN = Shape("GDN", 36, 8192, (32, 128, 128), torch.float32)
MAMBA2 = Shape("Mamba-2", 24, 10240, (128, 64, 128), torch.bfloat16)
LAYOUTS = ("SD", "DS")
HOST_REQUESTS = 64
# How large the states are makes no difference to the host; that nothing is copied keeps the GPU ahead of it.
_HOST_SHAPE = Shape("", 2, 8, (2, 2), torch.float32)
_IN_A_ROW = 100
"""So many calls leave the GPU's queue room."""


@dataclass(frozen=True)
class Scale:
    """How much is measured. The largest of `requests` is also the number of rows of which one crosses."""

    shapes: tuple[Shape, ...]
    requests: tuple[int, ...]
    ceiling_bytes: int
    repeats: int
    host_repeats: int


FULL = Scale((GDN, MAMBA2), (1, 4, 16, 64), 4 << 30, 11, 100)
TINY = Scale((Shape("tiny", 2, 8, (2, 4, 4), torch.float32),), (1, 4), 1 << 20, 2, 2)


@dataclass(frozen=True)
class Measured:
    """On the device: the ceiling in bytes per microsecond, read and written; microseconds of no work and of a smallest kernel.

    `more` of a row: `floor`, the microseconds of its bytes at the ceiling, and which part of the ceiling it comes to, None
    where nothing is copied.
    """

    ceiling: float
    nothing: float
    smallest_kernel: float
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]


def run_copies(out: Path, device: str, peer: Subject | None, *, tiny: bool = False) -> None:
    """Print the tables and save `align.json` in `out`.

    Args:
        tiny: small states, on a CPU as well, to try the bench itself.
    """
    device, scale = choose_device(device), TINY if tiny else FULL
    measured = measure(scale, device, peer) if tiny or device == "cuda" else None
    show(shown(measured))
    calls = measure_calls(device, scale.host_repeats, peer)
    if calls:
        show([table(f"drivers, {HOST_REQUESTS} requests, nothing to copy, until the call returns", calls)])
    content = {
        "environment": environment_of_numbers(),
        "unit": "microseconds",
        "peer": title_of(peer),
        "device": measured and asdict(measured) | {"rows": [row.data for row in measured.rows]},
        "calls": [row.data for row in calls],
    }
    save_json(out / "align.json", content)
    show([f"saved {out / 'align.json'}"])


def shown(measured: Measured | None) -> Iterator[Table | str]:
    """A table for the driver of V1, one for those of V2, and what they are to be held against; None is no device."""
    if measured is None:
        yield f"{POSTPROCESS}: needs a GPU"
        return
    v1 = [row for row in measured.rows if row.name == POSTPROCESS]
    v2 = [row for row in measured.rows if row.name != POSTPROCESS]
    yield table("launches of V1", v1, quartiles=False)
    yield table("launches of V2, of which a step has three", v2, quartiles=False)
    yield "\n".join(_notes(measured))


def _notes(measured: Measured) -> Iterator[str]:
    yield f"ceiling: {measured.ceiling / 1e6:.3f} TB/s read and written by torch's copy_; floor: the copies' bytes at it"
    yield f"a launch: {measured.nothing:.1f} µs for nothing at all, {measured.smallest_kernel:.1f} µs to add 1 to a number"
    yield from (f"left out: {name}" for name in measured.left_out)
    different = sum(row.same is False for row in measured.rows)
    if different:
        yield f"the peer left other bytes than impl in {different} rows"


def measure(scale: Scale, device: str, peer: Subject | None = None) -> Measured:
    """Device times, one cache after the other."""
    clock, subject = clock_of(device), load("impl")
    ceiling = _ceiling(clock, scale, device)
    cell, repeats = torch.zeros(1, device=device), 3 * scale.repeats
    nothing, smallest = (_median(clock, one, repeats) for one in (lambda: None, lambda: cell.add_(1)))
    sides = [subject, peer] if peer else [subject]
    rows: list[Row] = []
    left_out = []
    for shape, layout in itertools.product(scale.shapes, LAYOUTS):
        if too_large := _too_large(shape, max(scale.requests), device, len(sides)):
            left_out.append(f"{shape.name} {layout} {too_large}")
            continue
        with in_layout(sides, layout):
            cache = BenchCache(shape, layout, max(scale.requests), device)
            compared = [Side(side, cache.context(side, subject)) for side in sides]
            rows += (
                _row(cache, one, compared, clock, scale.repeats, ceiling) for one in loads(scale.requests)
            )
    return Measured(ceiling, nothing, smallest, tuple(rows), tuple(left_out))


def _ceiling(clock: Clock, scale: Scale, device: str) -> float:
    """Bytes read and written per microsecond by torch's own copy: the better of two medians."""
    size = scale.ceiling_bytes if device == "cpu" else min(scale.ceiling_bytes, _free() // 4)
    source = torch.empty(size, dtype=torch.uint8, device=device).random_(0, 256)
    target = torch.empty_like(source)
    return 2 * size / min(_median(clock, lambda: target.copy_(source), scale.repeats) for _ in range(2))


def _median(clock: Clock, action: Action, repeats: int) -> float:
    return in_turn([action], repeats, clock=clock, warm_up=1)[0].median


def _free() -> int:
    torch.cuda.empty_cache()
    free: int = torch.cuda.mem_get_info()[0]
    return free


def _too_large(shape: Shape, rows: int, device: str, sides: int) -> str:
    # With a peer one side's bytes are kept; beside the pools there is the noise that fills them, and some room.
    needed = (sides * shape.layers + 3) * BenchCache.pool_bytes(shape, rows)
    if device == "cpu" or needed < _free():
        return ""
    return f"needs {needed / 2**30:.0f} GiB of free GPU memory"


def launcher(load_: CopyLoad, side: Side, device: str) -> tuple[Action, Action]:
    """The launch, ready to be done, and what makes its vectors, which are on the device, those of the load again."""
    vectors, given = load_.tensors(device), load_.tensors(device)

    def restore() -> None:
        for name, vector in vectors.items():
            vector.copy_(given[name])

    return load_.launch(side, vectors), restore


def _row(
    cache: BenchCache, load_: CopyLoad, sides: Sequence[Side], clock: Clock, repeats: int, ceiling: float
) -> Row:
    offering = [side for side in sides if load_.offered_by(side)]
    same = same_results(cache, load_, *offering) if len(offering) > 1 else None
    launches, turns = [launcher(load_, side, cache.device) for side in offering], itertools.count()

    def before(number: int) -> None:
        cache.rotate(next(turns))
        launches[number][1]()

    actions = [launch for launch, _ in launches]
    times = in_turn(actions, repeats, clock=clock, before=before, warm_up=1)
    floor = load_.moved_bytes(cache.shape) / ceiling
    return Row(
        load_.driver,
        {
            "states": f"{cache.shape.name} {cache.layout}",
            "requests": load_.requests,
            "crossing": load_.crossing,
        },
        times,
        same=same,
        more={"floor": floor or None, "of ceiling": floor / times[0].median if floor else None},
    )


def same_results(cache: BenchCache, load_: CopyLoad, ours: Side, theirs: Side) -> bool:
    """Whether two sides leave the same bytes in all pools, and the same counts, from the same beginning."""
    expected = [tensor.clone() for tensor in _result(cache, load_, ours)]
    return all(map(torch.equal, expected, _result(cache, load_, theirs)))


def _result(cache: BenchCache, load_: CopyLoad, side: Side) -> list[torch.Tensor]:
    cache.fill()
    cache.rotate(0)
    vectors = load_.tensors(cache.device)
    load_.launch(side, vectors)()
    counts = [side.context.num_accepted_tokens_out[: load_.requests]] if load_.driver == POSTPROCESS else []
    return [*cache.pools, *vectors.values(), *counts]


@triton.jit
def nothing_kernel():  # type: ignore[no-untyped-def]
    """Does nothing."""


def measure_calls(device: str, repeats: int, peer: Subject | None = None) -> list[Row]:
    """What a runner pays to launch the copies of a step, however long these take: none where there is no GPU.

    A row for each driver, and before them one for a launch of a kernel without arguments.
    """
    if device != "cuda":
        return []
    ours = load("impl")
    sides = [ours, peer] if peer else [ours]
    rows = [_call_row("an empty kernel, through Triton's JIT", [nothing_kernel[(1,)]], repeats)]
    with in_layout(sides, "SD"):
        cache = BenchCache(_HOST_SHAPE, "SD", HOST_REQUESTS, device)
        compared = [Side(side, cache.context(side, ours)) for side in sides]
        for load_ in idle_loads(HOST_REQUESTS):
            calls = [launcher(load_, side, device)[0] for side in compared if load_.offered_by(side)]
            rows.append(_call_row(load_.driver, calls, repeats))
    return rows


def _call_row(name: str, calls: Sequence[Action], repeats: int) -> Row:
    before = lambda number: wait_for("cuda")  # noqa: E731 - the number of the call does not matter
    return Row(name, {}, in_turn(calls, repeats, before=before, warm_up=1, in_a_row=_IN_A_ROW))
