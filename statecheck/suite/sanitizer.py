"""A fixture for tests that launch kernels: `pytest -p statecheck.suite.sanitizer`.

    def test_blocks_are_copied(sanitizer):
        sanitizer.register(state, "state")
        copy_kernel[(4,)](table, out, BLOCK=64)

Loaded as a plugin it has the kernels of the whole run executed on the CPU, from Triton's IR; with TRITON_INTERPRET=0 they
are compiled, and tests that ask for the fixture are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from statecheck.case.findings import NotExecuted
from statecheck.kernels.sanitizer.watch import Sanitizer

_INTERPRET = "TRITON_INTERPRET"


def pytest_configure() -> None:
    """Called before test modules are imported."""
    from statecheck.kernels import triton_mode

    if os.environ.get(_INTERPRET) == "0":
        return
    try:
        triton_mode.prepare("cpu")
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """A test whose kernel the executor does not know is skipped, with the operation."""
    try:
        return (yield)
    except NotExecuted as unknown:
        pytest.skip(str(unknown))


@pytest.fixture
def sanitizer() -> Iterator[Sanitizer]:
    """Every launch of the test is watched, and what `torch.empty` returns is unwritten."""
    from statecheck.kernels import triton_mode
    from statecheck.kernels.sanitizer.empties import empties_unwritten
    from statecheck.sanitizer import sanitize

    if not triton_mode.executes():
        pytest.skip("kernels are compiled in this process, and cannot be watched")
    with sanitize() as watch, empties_unwritten(watch):
        yield watch
