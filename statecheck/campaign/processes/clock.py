"""How long a worker has been doing what it does, as far as it could: seen from outside, without its help.

Time in which it wanted to run and other processes had the processors does not count. Time in which it sleeps, or is stopped,
does: no other process keeps it from going on.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_MOST_SECONDS = 1.0
"""Between two looks no more than this counts: after a longer time, the coordinator itself did not run."""
_TICKS = os.sysconf("SC_CLK_TCK")
_RUNNABLE, _STOPPED = "R", ("T", "t")


@dataclass(frozen=True)
class Reading:
    """What the system says of a process's first thread.

    `state` is a letter of `/proc/<pid>/stat`, "" unknown; `used` the seconds of processors that the process had, `delayed` those
    in which the thread wanted to run and others did, None where the system does not count them.
    """

    state: str
    used: float
    delayed: float | None

    def waited_since(self, before: Reading, passed: float) -> float:
        """Seconds, of `passed`, in which other processes kept it from running."""
        if self.delayed is not None and before.delayed is not None:
            return self.delayed - before.delayed
        if self.state == before.state == _RUNNABLE:
            return max(0.0, passed - (self.used - before.used))
        return 0.0


def read(pid: int) -> Reading:
    """A reading of now; it knows nothing where there is no `/proc`."""
    process, state, used = Path("/proc") / str(pid), "", 0.0
    try:
        fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        state, used = fields[0], (int(fields[11]) + int(fields[12])) / _TICKS
        delayed = int((process / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return Reading(state, used, None)
    return Reading(state, used, delayed)


class ActivityClock:
    """Counts the seconds of what a process is doing now."""

    def __init__(self, pid: int) -> None:
        self._pid, self._activity = pid, object()
        self.seconds = 0.0
        self._at, self._reading = time.monotonic(), read(pid)

    @property
    def stopped(self) -> bool:
        """Whether it was stopped, as SIGSTOP does, when it was looked at last."""
        return self._reading.state in _STOPPED

    def look(self, activity: object, since: float) -> float:
        """The seconds by now.

        Args:
            activity: what it is doing, another value for each thing.
            since: when it began to, by the monotonic clock.
        """
        now, reading = time.monotonic(), read(self._pid)
        if activity != self._activity:
            self._activity, self.seconds, self._at = activity, 0.0, max(self._at, min(since, now))
        passed = now - self._at
        waited = reading.waited_since(self._reading, passed)
        self.seconds += max(0.0, min(passed, _MOST_SECONDS) - waited)
        self._at, self._reading = now, reading
        return self.seconds
