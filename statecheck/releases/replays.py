"""One case, replayed on releases of a subject, each in the environment that it takes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statecheck.execution.verdict import MISCONFIGURED
from statecheck.releases.command import PROGRAM, last_line, run_on
from statecheck.report.bisection import NO_VERDICT, NOT_SET_UP, TriedRelease
from statecheck.text import brief
from statecheck.text.command_lines import RELEASED

_LONGEST = 400


@dataclass(frozen=True)
class Replays:
    """Replays `case` on a device; `time_limit` is that of a call, as `replay` takes it."""

    case: Path
    device: str
    time_limit: str
    program: Sequence[str] = PROGRAM

    def on_release(self, name: str) -> TriedRelease:
        started = time.monotonic()
        verdict, message = self._replayed(name)
        return TriedRelease(name, verdict, brief(message, _LONGEST), round(time.monotonic() - started, 1))

    def _replayed(self, name: str) -> tuple[str, str]:
        """The verdict and its line."""
        with tempfile.TemporaryDirectory() as folder:
            said, log = Path(folder, "verdict.json"), Path(folder, "log.txt")
            options = ("--device", self.device, "--verdict", str(said), "--time-limit", self.time_limit)
            arguments = ("replay", str(self.case.resolve()), "--subject", RELEASED, *options)
            code = run_on(name, arguments, log, self.program)
            if said.is_file():
                verdict = json.loads(said.read_text(encoding="utf-8"))
                return verdict["verdict"], verdict["message"]
            if code == MISCONFIGURED:
                return NOT_SET_UP, last_line(log)
            return NO_VERDICT, f"the replay ended with exit code {code}: {last_line(log)}"
