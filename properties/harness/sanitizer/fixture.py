"""A fixture for tests that launch kernels: `pytest -p properties.harness.sanitizer.fixture`.

    def test_blocks_are_copied(sanitizer):
        sanitizer.register(state, "state")
        copy_kernel[(4,)](table, out, BLOCK=64)

Loaded as a plugin it has the kernels of the whole run interpreted, unless TRITON_INTERPRET says otherwise; tests that ask
for the fixture are skipped where they are compiled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from properties.harness.sanitizer.watch import Sanitizer

_INTERPRET = "TRITON_INTERPRET"


def pytest_configure() -> None:
    """Called before test modules are imported, whose kernels are then interpreted."""
    _choose_interpreter()


@pytest.fixture
def sanitizer() -> Iterator[Sanitizer]:
    """Every launch of the test is watched, and what `torch.empty` returns is unwritten."""
    _choose_interpreter()
    import triton

    from properties.harness import triton_mode
    from properties.harness.sanitizer.empties import empties_unwritten
    from properties.sanitizer import sanitize

    # What Triton was imported for, and what it would do with the next kernel.
    if not (triton_mode.executes() and triton.knobs.runtime.interpret):
        pytest.skip(f"kernels are compiled in this process, and cannot be watched: {_INTERPRET} is not 1")
    with sanitize() as watch, empties_unwritten(watch):
        yield watch


def _choose_interpreter() -> None:
    if "triton" not in sys.modules:
        os.environ.setdefault(_INTERPRET, "1")
