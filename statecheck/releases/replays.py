"""One case, replayed on releases of a subject, each in the environment that it takes."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from statecheck.releases.command import last_line, run_in
from statecheck.releases.environment import Environment, Maker
from statecheck.releases.start import wanted_release
from statecheck.report.bisection import NO_VERDICT, NOT_SET_UP, TriedRelease
from statecheck.text import brief
from statecheck.text.command_lines import RELEASED

_LONGEST = 400


@dataclass(frozen=True)
class Replays:
    """Replays `case` on a device.

    Args:
        time_limit: seconds for one replay, without what has to be set up.
    """

    maker: Maker
    case: Path
    device: str
    time_limit: float

    def on_release(self, name: str) -> TriedRelease:
        started = time.monotonic()
        try:
            environment = self.maker.enter(wanted_release(name))
        except ValueError as error:
            verdict, message = NOT_SET_UP, str(error)
        else:
            verdict, message = self._replayed(environment, name)
        return TriedRelease(name, verdict, brief(message, _LONGEST), round(time.monotonic() - started, 1))

    def _replayed(self, environment: Environment, name: str) -> tuple[str, str]:
        """The verdict and its line."""
        with tempfile.TemporaryDirectory() as folder:
            said, log = Path(folder, "verdict.json"), Path(folder, "log.txt")
            options = ("--subject", RELEASED, "--device", self.device, "--verdict", str(said))
            arguments = ["-m", "statecheck", "replay", str(self.case.resolve()), *options]
            code = run_in(environment, arguments, {"VLLM": name}, log, time_limit=self.time_limit)
            if said.is_file():
                verdict = json.loads(said.read_text(encoding="utf-8"))
                return verdict["verdict"], verdict["message"]
            if code is None:
                return NO_VERDICT, f"the replay took longer than {self.time_limit:g} s"
            return NO_VERDICT, f"the replay ended with exit code {code}: {last_line(log)}"
