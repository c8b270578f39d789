"""A defect that Triton's interpreter does not show: a checkout of statecheck replays the case, under its sanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from properties.harness.report.repro.runtime.child import conclude
from properties.harness.report.repro.runtime.ending import cannot_try

__all__ = ["replay_with_statecheck"]


def replay_with_statecheck(module: str, folder: str, checkout: str) -> NoReturn:
    """Exit as the replay of the case.json beside this file does.

    Args:
        module: the subject, unless SUBJECT names another one.
        folder: where to import it from, relative to this file, unless SUBJECT_PATH names a folder; "" for where Python
            imports from.
        checkout: the checkout of statecheck, relative to this file, unless STATECHECK names it.
    """
    here = Path(__file__).absolute().parent
    named = os.environ.get("STATECHECK")
    statecheck = Path(os.path.normpath(Path(named).absolute() if named else here / checkout))
    if not (statecheck / "properties" / "sanitizer.py").exists():
        cannot_try(f"no statecheck in {statecheck}: STATECHECK=path/to/its/checkout says where it is")
    path = [str(statecheck), os.environ.get("PYTHONPATH", "")]
    if os.environ.get("SUBJECT_PATH"):
        path.insert(0, str(Path(os.environ["SUBJECT_PATH"]).absolute()))
    elif folder:
        path.insert(0, os.path.normpath(here / folder))
    subject = os.environ.get("SUBJECT", module)
    command = [sys.executable, "-m", "properties", "replay", str(here / "case.json")]
    command += ["--subject", subject, "--device", "cpu"]
    code = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": os.pathsep.join(path)}, check=False
    ).returncode
    if code not in (0, 1):
        cannot_try("it could not be tried")
    print("the defect is there" if code else "the defect is gone")
    conclude(code)
