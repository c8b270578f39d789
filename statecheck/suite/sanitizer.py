"""The fixture `sanitizer`, for tests that declare what memory is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statecheck.kernels.sanitizer.watch import Sanitizer


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
