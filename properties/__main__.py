"""`python -m properties`."""

from __future__ import annotations

import sys

from properties.harness.cli import main
from properties.harness.nightly.console import Unbreakable, finish, prepare


def run() -> int:
    """Run the command that this process was started with; the exit code is the verdict's, whatever becomes of the output."""
    prepare()
    sys.stdout, sys.stderr = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    code = main()
    finish()
    return code


if __name__ == "__main__":
    sys.exit(run())
