"""`python -m properties`."""

from __future__ import annotations

import sys

from properties.harness.cli import main
from properties.harness.nightly.console import Unbreakable, finish, prepare

if __name__ == "__main__":
    # The exit code is the verdict's, whatever becomes of the output.
    prepare()
    sys.stdout, sys.stderr = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    code = main()
    finish()
    sys.exit(code)
