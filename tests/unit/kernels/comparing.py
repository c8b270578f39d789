"""Results of the executor's arithmetic as bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic import operation
from tests.unit.kernels.cases import ArithmeticCase
from tests.unit.kernels.values import Array, decode, encode


def known(case: ArithmeticCase) -> Callable[..., Any]:
    compute = operation(case.name, case.operands, case.result, case.attributes)
    assert compute is not None, f"{case} is not known"
    return compute


def computed(case: ArithmeticCase, columns: list[Array]) -> Array:
    """The bits of the executor's results on all rows."""
    values = [decode(bits, element) for bits, element in zip(columns, case.operands, strict=True)]
    with np.errstate(all="ignore"):
        return encode(known(case)(*values), case.result)
