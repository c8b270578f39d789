"""`nightly` with several devices that are all the CPU: the indices of --gpus only tell them apart."""

from __future__ import annotations

import sys

from statecheck.cli import nightly as cli_nightly
from statecheck.cli.main import main

if __name__ == "__main__":
    cli_nightly._gpus = lambda text, device: tuple(filter(None, text.split(",")))
    sys.exit(main())
