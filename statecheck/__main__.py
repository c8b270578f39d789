"""The command `statecheck`, which is `python -m statecheck` too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from statecheck._rooms import open_rooms


def main() -> int:
    """Run one command; the exit code."""
    open_rooms()
    folder = str(Path.cwd())
    # A subject may lie where the command is run, as with `python -m`.
    if not sys.flags.safe_path and folder not in (str(Path(one).resolve()) for one in sys.path):
        sys.path.insert(0, folder)
    # How commands that are printed begin.
    os.environ["STATECHECK_COMMAND"] = "statecheck" if _is_script() else "python -m statecheck"
    from properties.__main__ import run

    return run()


def _is_script() -> bool:
    return Path(sys.argv[0]).name != "__main__.py"


if __name__ == "__main__":
    sys.exit(main())
