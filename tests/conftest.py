"""What tests of several rooms of the harness need."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
import torch

from statecheck.execution.example import ExecutionContext

# `make test` hands these on, to a make that a test starts too.
for _name in ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"):
    os.environ.pop(_name, None)


@pytest.fixture(autouse=True)
def free_cuda_cache() -> Iterator[None]:
    """Tests of other processes want a GPU's memory, too, which torch keeps for the next one of this process."""
    yield
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > 2**30:
        gc.collect()
        torch.cuda.empty_cache()


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
