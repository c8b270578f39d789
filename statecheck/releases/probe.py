"""Whether the adapter can be imported in an environment, and what is missing if not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statecheck import rooms

ADAPTER = "subjects.vllm"
_MISSING, _BROKEN = "statecheck-missing ", "statecheck-broken "
# Libraries that import lazily raise an error of their own, which the one with the module's name is the cause of.
_SCRIPT = f"""
import importlib, sys

from statecheck import rooms
try:
    importlib.import_module(sys.argv[1])
except BaseException as error:
    raised, seen = error, None
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            seen = error.name
        error = error.__cause__ or error.__context__
    print()
    why = f"{{type(raised).__name__}}: {{raised}}".replace(chr(10), " ")
    print("{_MISSING}" + seen + " " + why if seen else "{_BROKEN}" + why)
    sys.exit(1)
"""


@dataclass(frozen=True)
class Probed:
    """What came of importing: the module that is missing, if one is, and the error."""

    missing: str = ""
    error: str = ""

    @property
    def fine(self) -> bool:
        return not self.error


def probe(python: Path, module: str = ADAPTER, variables: Mapping[str, str] | None = None) -> Probed:
    """Import a module in an interpreter of its own.

    Args:
        variables: of the environment, beside this process's.
    """
    given = {**os.environ, **(variables or {})}
    done = subprocess.run(
        [str(python), "-c", _SCRIPT, module],
        capture_output=True,
        text=True,
        check=False,
        env=rooms.added_to(given),
    )
    return Probed() if done.returncode == 0 else _read(done)


def _read(done: subprocess.CompletedProcess[str]) -> Probed:
    last = (done.stdout.splitlines() or [""])[-1]
    if last.startswith(_MISSING):
        missing, _, error = last.removeprefix(_MISSING).partition(" ")
        return Probed(missing, error)
    if last.startswith(_BROKEN):
        return Probed(error=last.removeprefix(_BROKEN))
    return Probed(error=(done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1])
