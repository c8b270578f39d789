"""Arithmetic on i1: integers of one bit, of which the signed one that is set is -1.

What LLVM leaves undefined is what it makes of a lone operation: nothing is shifted, and a divisor is 1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic.elements import DTYPES, is_scalar

Function = Callable[..., Any]


def truth(value: Any) -> Any:
    """A bool, or an array of them."""
    return value != 0 if type(value) is int else value


def _of_both(compute: Function) -> Function:
    return lambda a, b: compute(truth(a), truth(b))


def _first(a: Any, b: Any) -> Any:
    return a & (b | True)


def _nothing(a: Any, b: Any) -> Any:
    return a & b & False


BINARY: dict[str, Function] = {
    name: _of_both(compute)
    for name, compute in {
        "addi": operator.xor,
        "subi": operator.xor,
        "xori": operator.xor,
        "muli": operator.and_,
        "andi": operator.and_,
        "ori": operator.or_,
        "minsi": operator.or_,
        "maxsi": operator.and_,
        "minui": operator.and_,
        "maxui": operator.or_,
        "divsi": _first,
        "divui": _first,
        "ceildivsi": _first,
        "ceildivui": _first,
        "floordivsi": operator.and_,
        "remsi": _nothing,
        "remui": _nothing,
        "shli": _first,
        "shrsi": _first,
        "shrui": _first,
    }.items()
}

COMPARISONS: dict[str, Function] = {
    name: _of_both(compute)
    for name, compute in {
        "eq": operator.eq,
        "ne": operator.ne,
        "slt": operator.gt,
        "sle": operator.ge,
        "sgt": operator.lt,
        "sge": operator.le,
        "ult": operator.lt,
        "ule": operator.le,
        "ugt": operator.gt,
        "uge": operator.ge,
    }.items()
}


def select(element: str) -> Function:
    """`a` where the condition holds, else `b`; of any element type."""
    dtype = DTYPES[element]

    def typed(value: Any) -> Any:
        return dtype(value) if is_scalar(value) else value

    def compute(condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, np.ndarray):
            chosen, other = (a, b) if condition else (b, a)
            if isinstance(chosen, np.ndarray) or not isinstance(other, np.ndarray):
                return chosen
            return np.full(other.shape, chosen, dtype)
        return np.where(condition, typed(a), typed(b))

    return compute
