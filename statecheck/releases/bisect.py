"""Since when a case is wrong: which releases to try next, so that few are enough, and the replay on one of them."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from statecheck.execution.verdict import MISCONFIGURED
from statecheck.releases.command import PROGRAM, last_line, run_on
from statecheck.releases.project import VLLM, Project
from statecheck.report.bisection import NO_VERDICT, NOT_SET_UP, Bisection, TriedRelease
from statecheck.text import brief

Try = Callable[[str], TriedRelease]
_LONGEST = 400


def search(
    bisection: Bisection, try_release: Try, first: Sequence[str] = (), *, everything: bool = False
) -> Bisection:
    """Try releases until every change of verdict that was seen lies between two neighbours.

    Between two releases of one verdict nothing is tried: a change there and back would not be seen.

    Args:
        bisection: all releases, and those that were tried already.
        first: tried before anything else, such as those that cost nothing.
        everything: try all of them.

    Returns: what is known at the end, or when the user interrupts it.
    """
    while (name := _following(bisection, first, everything=everything)) is not None:
        try:
            bisection = replace(bisection, tried=(*bisection.tried, try_release(name)))
        except KeyboardInterrupt:
            return replace(bisection, interrupted=True)
    return bisection


def _following(bisection: Bisection, first: Sequence[str], *, everything: bool) -> str | None:
    tried = bisection.by_name
    asked = [name for name in first if name in bisection.names]
    wanted = [*asked, *_ends(bisection), *(bisection.names if everything else ())]
    return next((name for name in (*wanted, *_middles(bisection)) if name not in tried), None)


def _ends(bisection: Bisection) -> Iterator[str]:
    """From both ends inwards, up to the first one that something is known of."""
    tried = bisection.by_name
    for names in (bisection.names, bisection.names[::-1]):
        for name in names:
            yield name
            if name not in tried or tried[name].state:
                break


def _middles(bisection: Bisection) -> Iterator[str]:
    """Of what was not tried between two neighbours of different verdicts, the one in the middle."""
    tried = bisection.by_name
    for one, other in pairwise(bisection.decided):
        if one.state != other.state:
            between = [name for name in bisection.between(one.name, other.name) if name not in tried]
            yield from between[len(between) // 2 :][:1]


@dataclass(frozen=True)
class Replays:
    """Replays `case` on a device; `time_limit` is that of a call, as `replay` takes it."""

    case: Path
    device: str
    time_limit: str
    program: Sequence[str] = PROGRAM
    project: Project = VLLM

    def on_release(self, name: str) -> TriedRelease:
        started = time.monotonic()
        verdict, message = self._replayed(name)
        return TriedRelease(name, verdict, brief(message, _LONGEST), round(time.monotonic() - started, 1))

    def _replayed(self, name: str) -> tuple[str, str]:
        """The verdict and its line."""
        with tempfile.TemporaryDirectory() as folder:
            said, log = Path(folder, "verdict.json"), Path(folder, "log.txt")
            options = ("--device", self.device, "--verdict", str(said), "--time-limit", self.time_limit)
            arguments = ("replay", str(self.case.resolve()), "--subject", self.project.subject, *options)
            code = run_on(self.project, name, arguments, log, self.program)
            if said.is_file():
                verdict = json.loads(said.read_text(encoding="utf-8"))
                return verdict["verdict"], verdict["message"]
            if code == MISCONFIGURED:
                return NOT_SET_UP, last_line(log)
            return NO_VERDICT, f"the replay ended with exit code {code}: {last_line(log)}"
