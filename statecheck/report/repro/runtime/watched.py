"""A defect that Triton's interpreter does not show: statecheck replays the case, and watches each access."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn


def replay_with_statecheck(usage: str, module: str, folder: str, checkout: str) -> NoReturn:
    """Exit as the replay of the case.json beside this file does.

    Args:
        module: the subject, unless SUBJECT names another one.
        folder: where to import it from, relative to this file, unless SUBJECT_PATH names a folder; "" for where Python
            imports from.
        checkout: the checkout of statecheck, relative to this file, unless STATECHECK names it.
    """
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        print(usage.strip())
        sys.exit(0)
    untried = 125 if arguments == ["--bisect"] else 2
    if arguments not in ([], ["--bisect"], ["--here"]):
        print(f"arguments = {arguments}, but should be none, --bisect, --here or --help")
        sys.exit(untried)
    here = Path(__file__).absolute().parent
    statecheck = _absolute(os.environ.get("STATECHECK") or here / checkout)
    if not Path(statecheck, "statecheck", "__init__.py").exists():
        print(f"no statecheck in {statecheck}: STATECHECK=path/to/its/checkout says where it is")
        sys.exit(untried)
    subject_folder = os.environ.get("SUBJECT_PATH") or (here / folder if folder else "")
    path = [_absolute(subject_folder)] if subject_folder else []
    path += [statecheck, os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "statecheck", "replay", str(here / "case.json")]
    command += ["--subject", os.environ.get("SUBJECT", module), "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    code = subprocess.run(command, env=environment, check=False).returncode
    known = {0: "the defect is gone", 1: "the defect is there"}
    print(known.get(code, "it could not be tried"))
    sys.exit(code if code in known else untried)


def _absolute(path: str | Path) -> str:
    return os.path.normpath(Path(path).absolute())
