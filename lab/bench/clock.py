"""How the benches take time: on the host until a call returns, on a GPU from event to event."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Action = Callable[[], object]
Clock = Callable[[Action], float]
"""Does something once; the microseconds that it took."""


@dataclass(frozen=True)
class Times:
    """Microseconds per call: the quartiles over all repeats."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:,.1f} ({self.low:,.1f}-{self.high:,.1f})"


def host_clock(action: Action) -> float:
    started = time.perf_counter_ns()
    kept = action()
    ended = time.perf_counter_ns()
    # Freeing memory is not what is timed.
    del kept
    return (ended - started) / 1000


def in_turn(
    actions: Sequence[Action],
    repeats: int,
    *,
    clock: Clock = host_clock,
    before: Callable[[int], object] = lambda number: None,
    warm_up: int = 20,
    in_a_row: int = 1,
) -> list[Times]:
    """Times of each action, the actions in turn, so that a busy machine slows all of them.

    Args:
        before: is done before each turn, with the number of the action; its time does not count.
        warm_up: turns that do not count.
        in_a_row: how often an action is done in a turn.
    """
    samples: list[list[float]] = [[] for _ in actions]
    gc.collect()
    gc.disable()
    try:
        for turn in range(warm_up + repeats):
            for number, action in enumerate(actions):
                before(number)
                taken = [clock(action) for _ in range(in_a_row)]
                samples[number] += taken if turn >= warm_up else []
    finally:
        gc.enable()
    return [Times(*statistics.quantiles(taken, n=4, method="inclusive")) for taken in samples]


def wait_for(device: str) -> None:
    """Until the device has done all its work."""
    if device == "cuda":
        torch.cuda.synchronize()


class DeviceClock:
    """Queues the work behind a pause of the GPU, so that what the host takes to launch it does not count.

    Where the host was not done before the pause ended, the pause was too short: it is doubled and the work done again, up
    to a limit, since some work waits for the GPU itself.
    """

    _LONGEST_PAUSE = 6_000_000

    def __init__(self) -> None:
        self._cycles = 700_000

    def __call__(self, action: Action) -> float:
        while True:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(self._cycles)
            begin.record()
            action()
            end.record()
            in_time = not begin.query()
            end.synchronize()
            if in_time or self._cycles >= self._LONGEST_PAUSE:
                return begin.elapsed_time(end) * 1000
            self._cycles *= 2


def clock_of(device: str) -> Clock:
    return DeviceClock() if device == "cuda" else host_clock
