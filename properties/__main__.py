"""`python -m properties`."""

from __future__ import annotations

import sys

from properties.harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
