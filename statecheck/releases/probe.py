"""Whether the adapter can be imported in an environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from statecheck import rooms

_BROKEN = "statecheck-broken "
_SCRIPT = f"""
import importlib, sys

from statecheck import rooms
try:
    importlib.import_module(sys.argv[1])
except BaseException as error:
    print()
    print("{_BROKEN}" + f"{{type(error).__name__}}: {{error}}".replace(chr(10), " "))
    sys.exit(1)
"""


def probe(python: Path, module: str, variables: Mapping[str, str] | None = None) -> str:
    """Import a module in an interpreter of its own; the error, "" where there is none.

    Args:
        variables: of the environment, beside this process's.
    """
    given = rooms.added_to({**os.environ, **(variables or {})})
    command = [str(python), "-c", _SCRIPT, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    if done.returncode == 0:
        return ""
    last = (done.stdout.splitlines() or [""])[-1]
    if last.startswith(_BROKEN):
        return last.removeprefix(_BROKEN)
    return (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
