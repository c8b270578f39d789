"""compute-sanitizer as it is found on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from statecheck import rooms

ERROR_EXITCODE = 86
_PRINT_LIMIT = 100_000
"""So much that what torch's kernels do hides nothing."""
# Those that a version's --help does not name are left out.
_OPTIONS: dict[str, str] = {
    "--print-limit": str(_PRINT_LIMIT),
    "--error-exitcode": str(ERROR_EXITCODE),
    "--show-backtrace": "no",
    # Triton starts ptxas, which has no need to be watched.
    "--target-processes": "application-only",
    # Importing torch takes longer than the tool is used to wait for a first call of CUDA.
    "--launch-timeout": "300",
    "--require-cuda-init": "no",
}
_MEMCHECK: dict[str, str] = {
    # Allocations next to each other would hide what reaches from one into the other.
    "--padding": "4096",
}
_UNSET = ("TRITON_INTERPRET", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_ENVIRONMENT: dict[str, str] = {
    # Each tensor its own cudaMalloc: the tools know nothing of what torch's allocator makes of one.
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "NO_COLOR": "1",
    "PYTHONFAULTHANDLER": "1",
}


@dataclass(frozen=True)
class ComputeSanitizer:
    """Where it is, and the options that this version has."""

    path: str
    version: str
    options: frozenset[str]

    @classmethod
    def found(cls) -> ComputeSanitizer:
        """That on PATH.

        Raises:
            ValueError: there is none, or it does not run.
        """
        path = shutil.which("compute-sanitizer")
        if path is None:
            rule = "on PATH; it comes with the CUDA toolkit"
            raise ValueError(f"compute-sanitizer = None, but should be {rule} [sanitize-gpu]")
        options = re.findall(r"--[a-z][a-z-]+", _output(path, "--help"))
        return cls(path, _output(path, "--version"), frozenset(options))

    def command(self, tool: str, replay: Sequence[str] = ()) -> list[str]:
        """A command under one of its tools."""
        wanted = _OPTIONS | (_MEMCHECK if tool == "memcheck" else {})
        known = ((name, value) for name, value in wanted.items() if name in self.options)
        return [self.path, "--tool", tool, *(word for pair in known for word in pair), *replay]


def environment() -> dict[str, str]:
    """What a watched process gets."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return kept | _ENVIRONMENT | rooms.variables()


def _output(*command: str) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(
            f"compute-sanitizer = {command[0]!r}, but should run [sanitize-gpu]: {error}"
        ) from error
    return (ended.stdout + ended.stderr).strip()
