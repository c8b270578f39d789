"""compute-sanitizer as it is found on this machine, and its tools as watchers of cases."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from statecheck import rooms
from statecheck.workers.compute_sanitizer.parse import Parsed, ToolFinding, parse

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
    """compute-sanitizer as it is found on this machine."""

    path: str
    version: str
    options: frozenset[str]

    @classmethod
    def at(cls, path: str) -> ComputeSanitizer:
        options = re.findall(r"--[a-z][a-z-]+", _output(path, "--help"))
        return cls(path, _output(path, "--version"), frozenset(options))

    def command(self, tool: str) -> list[str]:
        wanted = _OPTIONS | (_MEMCHECK if tool == "memcheck" else {})
        known = ((name, value) for name, value in wanted.items() if name in self.options)
        return [self.path, "--tool", tool, *(word for pair in known for word in pair)]


def _output(*command: str) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(
            f"compute-sanitizer = {command[0]!r}, but should run [sanitize-gpu]: {error}"
        ) from error
    return (ended.stdout + ended.stderr).strip()


@dataclass(frozen=True)
class WatchingTool:
    """One of its tools."""

    sanitizer: ComputeSanitizer
    name: str

    def command(self, replay: Sequence[str]) -> list[str]:
        return [*self.sanitizer.command(self.name), *replay]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
        return kept | _ENVIRONMENT | rooms.variables()

    def parse(self, text: str, kernels: Collection[str]) -> Parsed:
        return parse(text, self.name, kernels)

    def judged(self, findings: Sequence[ToolFinding]) -> list[ToolFinding]:
        """Its word is taken as it is."""
        return list(findings)
