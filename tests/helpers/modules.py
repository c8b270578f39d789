"""Modules and scripts that a test writes, and runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def module(folder: Path, name: str, source: str) -> Iterator[str]:
    """An importable module `name`; gone from this process afterwards."""
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield name
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)


_RUN_SCRIPTS = """
import contextlib, io, json, os, runpy, sys, traceback

jobs = json.load(open(sys.argv.pop(), encoding="utf-8"))
# In this process: a child's output would not be collected.
sys.argv.append("--here")
results, path = [], list(sys.path)
for script, variables in jobs:
    before, output = dict(os.environ), io.StringIO()
    os.environ.update(variables)
    with contextlib.redirect_stdout(output):
        try:
            runpy.run_path(script, run_name="__main__")
            code = "no exit"
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
    os.environ.clear()
    os.environ.update(before)
    sys.path[:] = path
    results.append((code, output.getvalue()))
print(json.dumps({"results": results, "modules": sorted(sys.modules)}))
"""


@dataclass(frozen=True)
class ScriptVerdict:
    """How a script ended: its exit code, or the traceback it died of, and what it printed."""

    code: int | str
    output: str


def run_scripts(
    folder: Path, jobs: list[tuple[Path, dict[str, str]]]
) -> tuple[list[ScriptVerdict], set[str]]:
    """Run scripts one after the other in one process, which imports torch once; also its modules at the end.

    Args:
        folder: a place for the runner.
        jobs: scripts with the environment variables to add.
    """
    (folder / "run_scripts.py").write_text(_RUN_SCRIPTS, encoding="utf-8")
    (folder / "jobs.json").write_text(json.dumps([(str(script), added) for script, added in jobs]))
    clean = {
        name: value for name, value in os.environ.items() if name not in ("SUBJECT", "SUBJECT_PATH", "DEVICE")
    }
    command = [sys.executable, str(folder / "run_scripts.py"), str(folder / "jobs.json")]
    done = subprocess.run(
        command, env=clean | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return [ScriptVerdict(code, output) for code, output in found["results"]], set(found["modules"])
