"""What a worker takes over from the process that asked for it: environment, folder and import path."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from statecheck.rooms import import_path, working_folder
from statecheck.subject.process_state import go_to
from statecheck.workers.forkserver import worker_environment

Surroundings = tuple[dict[str, str], str, list[str]]
"""Environment, folder and import path."""


def surroundings() -> Surroundings:
    """Those of this process, for a worker."""
    return worker_environment(), str(working_folder()), import_path()


def move_to(environment: dict[str, str], folder: str, path: Sequence[str]) -> None:
    """Take over the parent's environment, folder and import path."""
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
    go_to(folder)
    sys.path[:] = path
