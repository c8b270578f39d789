"""One case, replayed on versions of a subject, each in the environment that it takes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from statecheck.releases.command import last_line, run_in
from statecheck.releases.commits import Commits, put_into, version_of_commit
from statecheck.releases.environment import Environment, Maker, Wanted
from statecheck.releases.start import entered, wanted_release
from statecheck.report.bisection import NO_VERDICT, NOT_SET_UP, TriedVersion
from statecheck.text import brief
from statecheck.text.command_lines import RELEASED

_LONGEST = 400
Enter = Callable[[], tuple[Environment, Mapping[str, str]]]


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

    def on_release(self, name: str) -> TriedVersion:
        return self._timed(name, lambda: (self.maker.enter(wanted_release(name)), {"VLLM": name}))

    def on_commit(self, commits: Commits, folder: Path, version: str, name: str) -> TriedVersion:
        """The commit of that name.

        Args:
            folder: gets its files, in place of those of another commit.
            version: of all commits; "" for what the tags say.
        """

        def enter() -> tuple[Environment, Mapping[str, str]]:
            put_into(folder, commits, name)
            wanted = Wanted(version or version_of_commit(commits, name), folder.resolve())
            return entered(wanted, self.maker), {"VLLM": wanted.version, "VLLM_PATH": str(folder.resolve())}

        return self._timed(name, enter)

    def _timed(self, name: str, enter: Enter) -> TriedVersion:
        started = time.monotonic()
        try:
            environment, variables = enter()
        except ValueError as error:
            verdict, message = NOT_SET_UP, str(error)
        else:
            verdict, message = self._replayed(environment, variables)
        return TriedVersion(name, verdict, brief(message, _LONGEST), round(time.monotonic() - started, 1))

    def _replayed(self, environment: Environment, variables: Mapping[str, str]) -> tuple[str, str]:
        """The verdict and its line."""
        with tempfile.TemporaryDirectory() as folder:
            said, log = Path(folder, "verdict.json"), Path(folder, "log.txt")
            options = ("--subject", RELEASED, "--device", self.device, "--verdict", str(said))
            arguments = ["-m", "statecheck", "replay", str(self.case.resolve()), *options]
            code = run_in(environment, arguments, variables, log, time_limit=self.time_limit)
            if said.is_file():
                verdict = json.loads(said.read_text(encoding="utf-8"))
                return verdict["verdict"], verdict["message"]
            if code is None:
                return NO_VERDICT, f"the replay took longer than {self.time_limit:g} s"
            return NO_VERDICT, f"the replay ended with exit code {code}: {last_line(log)}"
