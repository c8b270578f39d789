"""Fixtures for tests of several rooms of the harness."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from statecheck.execution.example import ExecutionContext

# `make test` hands these on, to a make that a test starts too.
for _name in ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"):
    os.environ.pop(_name, None)


_MOST_BYTES = 8 * 2**30
"""Address space of a test process. Linux refuses to fork a process with a mapping larger than the machine's memory, and examples with
strides of gigabytes map that much without touching it."""


@pytest.fixture(autouse=True)
def free_memory() -> Iterator[None]:
    """Frees the tensors of earlier examples, which torch and cycles of references keep, for tests that start other processes."""
    yield
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > 2**30:
        gc.collect()
        torch.cuda.empty_cache()
    elif _address_space() > _MOST_BYTES:
        gc.collect()


def _address_space() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="session")
def device(trial: ExecutionContext) -> str:
    """Where this session runs the subject, cpu or cuda; a process runs its kernels in one way only."""
    return trial.port.device


@pytest.fixture
def on_cpu(device: str) -> None:
    """For what runs kernels in this process, and wants them executed."""
    if device != "cpu":
        pytest.skip("in this process kernels are compiled, and the test needs them executed")


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Under nohup, and in the background of a script, SIGINT and SIGHUP are ignored, in all that is started there too."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
