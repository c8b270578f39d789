"""The oracle's code on symbolic integers.

    with symbolic(path):
        after_step(row=0, run=Number(path, run), ...)

Nothing of the oracle is written down again: its functions run as they are, on numbers whose comparisons are decisions of a `Path`. Where
they use `range`, `len`, `list` and `tuple`, which want Python's own integers, they get those of this module meanwhile.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import z3

from lab.prove.paths import OutOfReach, Path, Term, Unreachable, as_term, concrete, is_symbolic
from oracle import layout, types
from oracle.align import decisions, memory, pointers
from oracle.rules import Refused
from statecheck.reference.situations import unwatched

_MODULES = (decisions, layout, memory, pointers, types)


class Truth:
    """A condition; Python asks whether it holds, which is a decision."""

    def __init__(self, path: Path, condition: Term) -> None:
        self._path, self._condition = path, condition

    def __bool__(self) -> bool:
        return self._path.decide(self._condition)


def _operator(compute: Callable[[Any, Any], Term]) -> Any:
    """An operator of `Number`, by what it does to terms."""
    return lambda number, other: number._with(other, compute)


class Number(int):
    """An integer of which only a term is known. It is an `int`, because the oracle asks for that."""

    path: Path
    term: Any

    def __new__(cls, path: Path, term: Term) -> Any:
        """A term that is a number becomes Python's own."""
        term = concrete(term)
        if not is_symbolic(term):
            return term
        number = int.__new__(cls, 0)
        number.path, number.term = path, term
        return number

    def _with(self, other: Any, compute: Callable[[Any, Any], Term]) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        found = compute(self.term, term_of(other))
        return Truth(self.path, found) if z3.is_bool(found) else Number(self.path, found)

    def __neg__(self) -> Any:
        return Number(self.path, -self.term)

    def __mul__(self, other: int) -> Any:
        return self._with(other, self.path.multiply)

    def __divmod__(self, other: int) -> Any:
        return tuple(Number(self.path, part) for part in self.path.divide(self.term, term_of(other)))

    def __rdivmod__(self, other: int) -> Any:
        return tuple(Number(self.path, part) for part in self.path.divide(other, self.term))

    def __floordiv__(self, other: int) -> Any:
        return divmod(self, other)[0]

    def __mod__(self, other: int) -> Any:
        return divmod(self, other)[1]

    def __rfloordiv__(self, other: int) -> Any:
        return divmod(other, self)[0]

    def __rmod__(self, other: int) -> Any:
        return divmod(other, self)[1]

    __rmul__ = __mul__
    __add__ = __radd__ = _operator(operator.add)
    __sub__ = _operator(operator.sub)
    __rsub__ = _operator(lambda a, b: b - a)
    __eq__ = _operator(operator.eq)
    __ne__ = _operator(operator.ne)
    __lt__ = _operator(operator.lt)
    __le__ = _operator(operator.le)
    __gt__ = _operator(operator.gt)
    __ge__ = _operator(operator.ge)

    def __bool__(self) -> bool:
        return self.path.decide(self.term != 0)

    def __hash__(self) -> int:
        # Two numbers may be equal whatever their terms are: sets and dicts have to ask.
        return 0

    def __repr__(self) -> str:
        return str(self.term)


def term_of(number: int) -> Any:
    """The term of a number, symbolic or not."""
    return number.term if isinstance(number, Number) else as_term(number)


class Numbers:
    """A sequence of `size` numbers of which only the function `at`, of an index, is known; and what was written to it."""

    def __init__(self, path: Path, at: Callable[[Any], Term], size: int) -> None:
        self._path, self.at, self.size = path, at, size

    def __getitem__(self, index: int) -> Any:
        return Number(self._path, self.at(term_of(index)))

    def __setitem__(self, index: int, value: int) -> None:
        before, place, new = self.at, term_of(index), term_of(value)
        self.at = lambda at: z3.If(as_term(at) == place, new, as_term(before(at)))

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in Range(0, self.size))

    def copy(self) -> Numbers:
        return Numbers(self._path, self.at, self.size)


class Range:
    """`range` of a step of 1, of which each number is a decision."""

    def __init__(self, start: int, stop: int | None = None) -> None:
        self._start, self._stop = (0, start) if stop is None else (start, stop)

    def __iter__(self) -> Iterator[int]:
        number = self._start
        while number < self._stop:
            yield number
            number = number + 1

    def index(self, number: int) -> int:
        """As of a range that has the number."""
        assert self._start <= number < self._stop, "only of a number of the range"
        return number - self._start


def _length(of: Any) -> Any:
    return of.size if isinstance(of, Numbers) else builtins.len(of)


def _list(of: Any) -> Any:
    return of.copy() if isinstance(of, Numbers) else builtins.list(of)


def _tuple(of: Any) -> Any:
    return of if isinstance(of, Numbers) else builtins.tuple(of)


_BUILTINS: dict[str, Any] = {"range": Range, "len": _length, "list": _list, "tuple": _tuple}


@contextmanager
def symbolic() -> Iterator[None]:
    """The oracle's rules may be asked about symbolic numbers; their watchers are not called."""
    with unwatched():
        for module in _MODULES:
            vars(module).update(_BUILTINS)
        try:
            yield
        finally:
            for module in _MODULES:
                for name in _BUILTINS:
                    del vars(module)[name]


def answered(rule: Callable[..., Any], *arguments: Any) -> Any:
    """What a rule answers.

    Raises:
        Unreachable: it refuses the input, which is outside of its domain.
        OutOfReach: an assertion of the oracle fails, so that what it says is not known.
    """
    with symbolic():
        try:
            return rule(*arguments)
        except (Refused, layout.Unrepresentable):
            raise Unreachable from None
        except AssertionError as error:
            raise OutOfReach(f"an assertion of the oracle fails: {error}") from error
