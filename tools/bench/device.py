"""Device time of the copies in align mode, beside the time in which the device could move their bytes."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from statecheck.subject import Subject, load
from tools.bench.cache import BenchCache, Shape, in_layout
from tools.bench.clock import Action, Clock, clock_of
from tools.bench.loads import POSTPROCESS, CopyLoad, Side, loads

GDN = Shape("GDN", 36, 8192, (32, 128, 128), torch.float32)
MAMBA2 = Shape("Mamba-2", 24, 10240, (128, 64, 128), torch.bfloat16)
LAYOUTS = ("SD", "DS")


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
class CopyTimes:
    """Microseconds of a launch, of the bytes at the ceiling, and of the peer's launch (None where it has none).

    `same`: whether the peer left the same bytes and counts.
    """

    driver: str
    shape: str
    layout: str
    requests: int
    crossing: int
    microseconds: float
    floor: float
    peer: float | None = None
    same: bool | None = None

    @property
    def share(self) -> float | None:
        """Of the ceiling's bytes per second; None where nothing is copied."""
        return self.floor / self.microseconds if self.floor else None

    @property
    def ratio(self) -> float | None:
        """How many times as long the peer takes."""
        return None if self.peer is None else self.peer / self.microseconds


@dataclass(frozen=True)
class Measured:
    """Ceiling in bytes per microsecond, read and written; microseconds of no work at all and of a smallest kernel."""

    ceiling: float
    nothing: float
    smallest_kernel: float
    rows: tuple[CopyTimes, ...]
    left_out: tuple[str, ...]


def measure(scale: Scale, device: str, peer: Subject | None = None) -> Measured:
    """All rows, one cache after the other."""
    clock, subject = clock_of(device), load("impl")
    ceiling = _ceiling(clock, scale, device)
    nothing, smallest_kernel = _launches(clock, scale, device)
    sides = [subject, peer] if peer else [subject]
    rows: list[CopyTimes] = []
    left_out = []
    for shape, layout in itertools.product(scale.shapes, LAYOUTS):
        too_large = _too_large(shape, max(scale.requests), device, len(sides))
        if too_large:
            left_out.append(f"{shape.name} {layout} {too_large}")
            continue
        with in_layout(sides, layout):
            rows += _measure_cache(shape, layout, scale, device, sides, clock, ceiling)
    return Measured(ceiling, nothing, smallest_kernel, tuple(rows), tuple(left_out))


def _ceiling(clock: Clock, scale: Scale, device: str) -> float:
    """Bytes read and written per microsecond by torch's own copy: the better of two medians."""
    size = scale.ceiling_bytes if device == "cpu" else min(scale.ceiling_bytes, _free() // 4)
    source = torch.empty(size, dtype=torch.uint8, device=device).random_(0, 256)
    target = torch.empty_like(source)
    best = min(_median(clock, lambda: target.copy_(source), scale.repeats) for _ in range(2))
    return 2 * size / best


def _launches(clock: Clock, scale: Scale, device: str) -> tuple[float, float]:
    cell = torch.zeros(1, device=device)
    repeats = 3 * scale.repeats
    return _median(clock, lambda: None, repeats), _median(clock, lambda: cell.add_(1), repeats)


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


def _median(clock: Clock, action: Action, repeats: int) -> float:
    action()
    return statistics.median(clock(action) for _ in range(repeats))


def _measure_cache(
    shape: Shape,
    layout: str,
    scale: Scale,
    device: str,
    sides: Sequence[Subject],
    clock: Clock,
    ceiling: float,
) -> Iterator[CopyTimes]:
    cache = BenchCache(shape, layout, max(scale.requests), device)
    compared = [Side(side, cache.context(side, sides[0])) for side in sides]
    for load_ in loads(scale.requests):
        offering = [side for side in compared if load_.offered_by(side)]
        same = same_results(cache, load_, *offering) if len(offering) > 1 else None
        times = _times(cache, load_, offering, clock, scale.repeats)
        yield CopyTimes(
            driver=load_.driver,
            shape=shape.name,
            layout=layout,
            requests=load_.requests,
            crossing=load_.crossing,
            microseconds=times[0],
            floor=load_.moved_bytes(shape) / ceiling,
            peer=times[1] if len(times) > 1 else None,
            same=same,
        )


def launcher(load_: CopyLoad, side: Side, device: str) -> tuple[Action, Action]:
    """The launch, ready to be done, and what makes its vectors, which are on the device, those of the load again."""
    vectors, given = load_.tensors(device), load_.tensors(device)

    def restore() -> None:
        for name, vector in vectors.items():
            vector.copy_(given[name])

    return load_.launch(side, vectors), restore


def _times(
    cache: BenchCache, load_: CopyLoad, sides: Sequence[Side], clock: Clock, repeats: int
) -> list[float]:
    """Medians of the sides, taken in turn."""
    launches = [launcher(load_, side, cache.device) for side in sides]
    for launch, _ in launches:
        launch()
    samples: list[list[float]] = [[] for _ in launches]
    for rotation in range(repeats * len(launches)):
        number = rotation % len(launches)
        launch, restore = launches[number]
        cache.rotate(rotation)
        restore()
        samples[number].append(clock(launch))
    return [statistics.median(taken) for taken in samples]


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
