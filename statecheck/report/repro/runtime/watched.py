"""A defect that Triton's interpreter does not show: statecheck replays the case, and watches each access."""

from __future__ import annotations

import importlib
import os
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
    untried = _checked_arguments(usage)
    here = Path(__file__).absolute().parent
    folders = [os.environ.get("STATECHECK") or str(here / checkout)]
    folders += filter(None, [os.environ.get("SUBJECT_PATH") or (folder and str(here / folder))])
    for path in folders:
        sys.path.insert(0, os.path.normpath(Path(path).absolute()))
    try:
        # By its name: it is the script that needs the command line, and not the room of reports.
        replay = importlib.import_module("statecheck.cli.main").main
    except ImportError as error:
        print(f"cannot import statecheck: {error}; STATECHECK=path/to/its/checkout says where it is")
        sys.exit(untried)
    subject = os.environ.get("SUBJECT", module)
    code = replay(["replay", str(here / "case.json"), "--subject", subject, "--device", "cpu"])
    known = {0: "the defect is gone", 1: "the defect is there"}
    print(known.get(code, "it could not be tried"))
    sys.exit(code if code in known else untried)


def _checked_arguments(usage: str) -> int:
    """The exit code without a verdict: 2, or 125, for which `git bisect run` skips a revision."""
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        print(usage.strip())
        sys.exit(0)
    untried = 125 if arguments == ["--bisect"] else 2
    if arguments not in ([], ["--bisect"], ["--here"]):
        print(f"arguments = {arguments}, but should be none, --bisect, --here or --help")
        sys.exit(untried)
    return untried
