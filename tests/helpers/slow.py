"""Parameters of which only some run without `--slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(count: int, values: Iterable[Any]) -> list[Any]:
    """The values, of which all after the first `count` are slow; a tuple is one value for each argument."""
    several = [value if isinstance(value, tuple) else (value,) for value in values]
    return [
        pytest.param(*value, marks=[pytest.mark.slow] * (at >= count)) for at, value in enumerate(several)
    ]
