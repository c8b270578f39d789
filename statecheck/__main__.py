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
    is_script = Path(sys.argv[0]).name != "__main__.py"
    if not is_checkout():
        # Processes that multiprocessing starts have this path, and no other one that leads to the rooms.
        sys.path.insert(0, str(FOLDER))
        # How commands that are printed begin.
        os.environ.setdefault("STATECHECK_COMMAND", "statecheck" if is_script else "python -m statecheck")
    try:
        from statecheck.cli.main import run
    except ModuleNotFoundError as error:
        # Python's own exit code for this is 1, which here means that the subject is wrong.
        print(f"error: {error.name} = not installed, but should be, for {sys.executable}", file=sys.stderr)
        return 3
    code = run()
    end_command(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
