"""Helpers that worked examples of rules share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oracle.align.memory import StateTensor
from oracle.layout import StateGeometry
from oracle.rules import Refused


def case(name: str, *values: object) -> Any:
    return pytest.param(*values, id=name)


@contextmanager
def refused(argument: str) -> Iterator[None]:
    """The argument is refused in it, and nothing where none is named."""
    if not argument:
        yield
        return
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.argument == argument, f"{caught.value}: but should name {argument}"


WIDTH, PAGE = 5, 8
"""Rows of a conv window, and bytes of a page."""
CONV = StateTensor("pool", StateGeometry(12, (WIDTH, 1), 1, PAGE), "conv")
TEMPORAL = StateTensor("pool", StateGeometry(12, (1,), 1, PAGE, WIDTH), "temporal")
STATES = (CONV, TEMPORAL)
