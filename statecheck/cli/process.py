"""The process of a command: its output, its signals and its exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from statecheck.execution.verdict import CLEAN, MEANINGS, MISCONFIGURED

try:
    from statecheck.campaign.terminal.output import Unbreakable, finish, prepare
    from statecheck.cli.main import main
    from statecheck.text.command_lines import by_make, remembered
except ModuleNotFoundError as error:
    # Python's own exit code for this is 1, which here means that the subject is wrong.
    print(f"error: {error.name} = not installed, but should be, for {sys.executable}", file=sys.stderr)
    sys.exit(MISCONFIGURED)


def run(command: Callable[[], int] = main) -> int:
    """Run a command, by default what this process's command line asks for; the exit code is the verdict's, whatever becomes of the output."""
    prepare()
    sys.stdout, sys.stderr = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    os.environ.update(remembered())
    try:
        code = command()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else CLEAN
    # The verdict stands: a signal that comes until the process is gone must not change its exit code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    finish()
    if code and by_make():
        print(f"exit {code}: {MEANINGS[code]}; make itself exits 2 whatever fails", file=sys.stderr)
    return code
