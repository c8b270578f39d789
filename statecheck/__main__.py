"""The command `statecheck`, which is `python -m statecheck` too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from statecheck.rooms import FOLDER, is_checkout, open_rooms, with_working_folder
from statecheck.workers.own_process import begin_command, end_command


def main() -> int:
    """Run one command; the exit code."""
    begin_command()
    open_rooms()
    with_working_folder()
    if not is_checkout():
        # Processes that multiprocessing starts have this path, and no other one that leads to the rooms.
        sys.path.insert(0, str(FOLDER))
        # How commands that are printed begin.
        os.environ.setdefault("STATECHECK_COMMAND", "statecheck" if _is_script() else "python -m statecheck")
    from statecheck.cli.process import run

    code = run()
    end_command(code)
    return code


def _is_script() -> bool:
    return Path(sys.argv[0]).name != "__main__.py"


if __name__ == "__main__":
    sys.exit(main())
