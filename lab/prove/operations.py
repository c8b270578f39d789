"""Operations of the IR on integers of which only terms are known.

An integer of any width is held as the number that its bits stand for, with its sign; a boolean is a boolean term. Where a result may not
fit in its width, that is noted, and it wraps around. Numbers are computed by the executor's own arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import z3

from lab.prove.paths import Path, Term, as_term, concrete, is_symbolic
from statecheck.kernels.arithmetic import operation as arithmetic_of
from statecheck.kernels.source.ir import NotUnderstoodError

INTEGERS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
Overflows = Callable[[Term], None]
"""Called with the condition under which a result does not fit."""


class SymbolicArithmetic:
    """Computes on a path.

    Args:
        overflows: receives the condition under which a result does not fit into its type.
    """

    def __init__(self, path: Path, overflows: Overflows = lambda condition: None) -> None:
        self._path, self._overflows = path, overflows
        self._fitting: dict[tuple[int, int], Any] = {}
        """Terms that fit in a width, by their identity; kept, so that it stays theirs."""

    def _note(self, value: Any, width: int) -> None:
        self._fitting[value.get_id(), width] = value

    def compute(
        self,
        name: str,
        elements: Sequence[str],
        result: str,
        attributes: Mapping[str, str],
        values: Sequence[Term],
    ) -> Term:
        """The result of an operation on values of these types.

        Raises:
            NotUnderstoodError: it is not known, on terms or at all.
        """
        if name == "arith.select":
            return self._select(*values)
        if not any(is_symbolic(value) for value in values):
            function = _executors(name, tuple(elements), result, tuple(attributes.items()))
            if function is None:
                raise NotUnderstoodError(f"{name} of {', '.join(elements)}")
            found = function(*values)
            if result == "i1":
                return bool(found)
            exact = _EXACT.get(name)
            if exact is not None and exact(*map(int, values)) != int(found):
                self._overflows(True)
            return int(found)
        if any(element not in INTEGERS for element in elements):
            raise NotUnderstoodError(f"{name} of {', '.join(elements)} that are not known")
        short = name.partition(".")[2]
        if short == "cmpi":
            return self._compared(attributes["predicate"], elements[0], values)
        if "i1" in (elements[0], result):
            return _of_booleans(short, result, values)
        return self._integer(short, INTEGERS[elements[0]], INTEGERS[result], values)

    def _compared(self, predicate: str, element: str, values: Sequence[Term]) -> Term:
        numbers = [self._whole(value, element) for value in values]
        if predicate[0] == "u":
            numbers = [unsigned(number, INTEGERS[element]) for number in numbers]
            predicate = f"s{predicate[1:]}"
        elif element == "i1":
            numbers = [-number for number in numbers]
        return concrete(_COMPARISONS[predicate](*numbers))

    def _select(self, condition: Term, first: Term, second: Term) -> Term:
        condition = concrete(condition)
        if isinstance(condition, bool):
            return first if condition else second
        if isinstance(first, bool) or z3.is_bool(first):
            return concrete(z3.If(condition, _boolean(first), _boolean(second)))
        return concrete(z3.If(condition, as_term(first), as_term(second)))

    @staticmethod
    def _whole(value: Term, element: str) -> Any:
        return z3.If(_boolean(value), as_term(1), as_term(0)) if element == "i1" else as_term(value)

    def _integer(self, name: str, width: int, result: int, values: Sequence[Term]) -> Term:
        for value in filter(is_symbolic, values):
            self._note(value, width)
        if name in ("extsi", "index_cast"):
            return values[0]
        if name in ("divsi", "remsi"):
            return self._fitted(self._divided(name, *values), result)
        if name in ("divui", "remui"):
            found = self._path.divide(*(unsigned(value, width) for value in values))
            return self._fitted(found[0 if name == "divui" else 1], result)
        if name == "muli":
            return self._fitted(self._path.multiply(*values), result)
        if name in ("andi", "ori", "xori"):
            return self._masked(name, *values)
        if name in ("shli", "shrsi", "shrui"):
            return self._fitted(self._shifted(name, width, *values), result)
        if name in _UNSIGNED:
            return wrapped(_UNSIGNED[name](*(unsigned(value, width) for value in values)), result)
        if name not in _SIGNED:
            raise NotUnderstoodError(f"arith.{name} of integers that are not known")
        return self._fitted(_SIGNED[name](*map(as_term, values)), result)

    def _divided(self, name: str, number: Term, divisor: Term) -> Term:
        """Towards zero, as the GPU's instructions."""
        path, least = self._path, as_term(number) >= 0
        quotient, remainder = map(as_term, path.divide(number, divisor))
        if not path.implied(least):
            up = z3.And(z3.Not(least), remainder != 0)
            quotient = z3.If(up, quotient + 1, quotient)
            remainder = z3.If(up, remainder - as_term(divisor), remainder)
        return concrete(quotient if name == "divsi" else remainder)

    def _masked(self, name: str, first: Term, second: Term) -> Term:
        """Of a mask of low bits a remainder; of other bits only whether the lowest ones, up to four, are all 0."""
        number, mask = (second, first) if isinstance(first, int) else (first, second)
        if name == "andi" and isinstance(mask, int) and mask >= 0 and mask & (mask + 1) == 0:
            return concrete(as_term(number) % (mask + 1))
        if name == "andi":
            raise NotUnderstoodError("arith.andi of integers that are not known")
        found, a, b = self._path.fresh("bits"), as_term(first), as_term(second)
        if name == "ori":
            self._path.assume((found >= 0) == z3.And(a >= 0, b >= 0))
        else:
            self._path.assume((found >= 0) == ((a >= 0) == (b >= 0)))
        for unit in (2, 4, 8, 16):
            none = z3.And(a % unit == 0, b % unit == 0) if name == "ori" else a % unit == b % unit
            self._path.assume((found % unit == 0) == none)
        return found

    def _shifted(self, name: str, width: int, number: Term, places: Term) -> Term:
        if not isinstance(places, int) or not 0 <= places < width:
            raise NotUnderstoodError(f"arith.{name} by a number that is not known")
        if name == "shli":
            return as_term(number) * (1 << places)
        return (unsigned(number, width) if name == "shrui" else as_term(number)) / (1 << places)

    def _fitted(self, value: Term, width: int) -> Term:
        """The value where it always fits; otherwise it wraps around, and that is noted."""
        value = concrete(value)
        if not is_symbolic(value):
            if wrapped(value, width) != value:
                self._overflows(True)
            return wrapped(value, width)
        # Most are sums of one number that is not known with zeros.
        if (value.get_id(), width) in self._fitting:
            return value
        half = 1 << (width - 1)
        outside = z3.Or(value < -half, value >= half)
        if not self._path.possible(outside):
            self._note(value, width)
            return value
        self._overflows(outside)
        return wrapped(value, width)


def _of_booleans(name: str, result: str, values: Sequence[Term]) -> Term:
    """Of booleans, or to one."""
    if name == "trunci":
        return concrete(as_term(values[0]) % 2 == 1)
    if name in ("extsi", "extui"):
        return concrete(z3.If(values[0], as_term(1 if name == "extui" else -1), as_term(0)))
    if name not in _OF_BOOLEANS or result != "i1":
        raise NotUnderstoodError(f"arith.{name} of booleans that are not known")
    return concrete(_OF_BOOLEANS[name](*map(_boolean, values)))


@cache
def _executors(
    name: str, elements: tuple[str, ...], result: str, attributes: tuple[tuple[str, str], ...]
) -> Callable[..., Any] | None:
    """The executor's function for an operation; made once, because lanes are many."""
    return arithmetic_of(name, elements, result, dict(attributes))


def wrapped(value: Term, width: int) -> Term:
    """The number that the lowest bits of a value stand for."""
    half = 1 << (width - 1)
    return concrete((as_term(value) + half) % (1 << width) - half)


def unsigned(value: Term, width: int) -> Any:
    """The same bits as a number of at least 0."""
    return z3.If(as_term(value) < 0, as_term(value) + (1 << width), as_term(value))


def _boolean(value: Term) -> Any:
    return z3.BoolVal(value) if isinstance(value, bool) else value


_EXACT: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
}
"""What may not fit in its type where both numbers are known."""
_SIGNED: dict[str, Callable[..., Any]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "minsi": lambda a, b: z3.If(a <= b, a, b),
    "maxsi": lambda a, b: z3.If(a >= b, a, b),
    "trunci": lambda a: a,
}
_UNSIGNED: dict[str, Callable[..., Any]] = {
    "extui": lambda a: a,
    "minui": lambda a, b: z3.If(a <= b, a, b),
    "maxui": lambda a, b: z3.If(a >= b, a, b),
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
}
_OF_BOOLEANS: dict[str, Callable[..., Any]] = {
    "andi": z3.And,
    "ori": z3.Or,
    "xori": z3.Xor,
}
