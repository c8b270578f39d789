"""Runs of code on symbolic integers: each decision is followed both ways, as far as a solver says that both are possible.

The bits of a kernel's integer are held as the number that they stand for, which wraps around where it does not fit in its width (see
`operations`). So the oracle's integers and a kernel's are terms of one kind, and the solver adds numbers instead of circuits: a
question that takes it seconds on 64-bit vectors takes it milliseconds.

Division by a number that is not known is out of reach of either. `Path.divide` says of each quotient what holds of all quotients by
the same divisor, in sums only (`_euclid`): what is proved with that holds. A model may be none, since a quotient may have a wrong
value in it; that is why a counterexample is executed before it is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import z3

T = TypeVar("T")
Term = Any
"""A z3 term, or a Python number that stands for itself."""


class Unreachable(Exception):
    """No input goes this way."""


class OutOfReach(Exception):
    """The solver did not come to an end in its time."""


def is_symbolic(value: Term) -> bool:
    return isinstance(value, z3.ExprRef)


def as_term(value: Term) -> Any:
    """A number as a term."""
    return value if isinstance(value, z3.ExprRef) else z3.IntVal(int(value))


def concrete(term: Term) -> Term:
    """The number or truth value that a term is, where it is one; otherwise the term, simplified."""
    if not isinstance(term, z3.ExprRef):
        return term
    term = z3.simplify(term)
    if z3.is_int_value(term):
        return term.as_long()
    return True if z3.is_true(term) else False if z3.is_false(term) else term


@dataclass(frozen=True)
class _Division:
    number: Any
    divisor: Any
    quotient: Any
    remainder: Any


@dataclass
class Path:
    """One way through code: what was assumed and decided on it.

    Args:
        prefix: the decisions and choices to repeat.
        limit: milliseconds for each question to the solver.
    """

    prefix: Sequence[Any] = ()
    limit: int = 20_000
    choices: list[Any] = field(default_factory=list)
    others: list[list[Any]] = field(default_factory=list)
    """Prefixes of the ways that this one leaves open."""

    def __post_init__(self) -> None:
        self.solver = z3.SolverFor("QF_UFLIA")
        self.solver.set("timeout", self.limit)
        self._divisions: list[_Division] = []
        self._names = 0
        self._implied: dict[int, Any] = {}
        """By their identity; kept, so that it stays theirs."""

    def assume(self, *conditions: Term) -> None:
        self.solver.add(*conditions)

    def fresh(self, name: str) -> Any:
        """A symbol that has not been used on this path."""
        self._names += 1
        return z3.Int(f"{name}!{self._names}")

    def possible(self, *conditions: Term) -> bool:
        """Whether some input comes here with these conditions.

        Raises:
            OutOfReach: the solver does not know.
        """
        answer = self.solver.check(*(condition for condition in conditions if condition is not True))
        if answer == z3.unknown:
            raise OutOfReach(self.solver.reason_unknown())
        return answer == z3.sat and False not in conditions

    def implied(self, condition: Term) -> bool:
        """Whether it holds for every input that comes here."""
        condition = concrete(condition)
        if isinstance(condition, bool):
            return condition
        # What holds once holds from then on.
        if condition.get_id() in self._implied:
            return True
        holds = not self.possible(z3.Not(condition))
        if holds:
            self._implied[condition.get_id()] = condition
        return holds

    def decide(self, condition: Term) -> bool:
        """Which way to go at a condition; the other one is noted, if it is possible.

        Raises:
            Unreachable: neither is.
        """
        condition = concrete(condition)
        if isinstance(condition, bool):
            return condition
        at = len(self.choices)
        if at < len(self.prefix):
            chosen = self.prefix[at]
        else:
            chosen = self.possible(condition)
            if self.possible(z3.Not(condition)):
                if chosen:
                    self.others.append([*self.choices, False])
            elif not chosen:
                raise Unreachable
        self.choices.append(chosen)
        self.solver.add(condition if chosen else z3.Not(condition))
        return chosen

    def choose(self, choice: Callable[[], T]) -> T:
        """What `choice` gives where a path comes first; the paths that repeat it take the same, whatever the solver's model is then."""
        at = len(self.choices)
        self.choices.append(self.prefix[at] if at < len(self.prefix) else choice())
        return cast("T", self.choices[at])

    def only(self, term: Term) -> Term:
        """The one value that a term has here, if there is only one; otherwise the term."""
        term = concrete(term)
        if not is_symbolic(term) or not self.possible():
            return term
        value = self.solver.model().eval(term, model_completion=True)
        return concrete(value) if self.implied(term == value) else term

    def divide(self, number: Term, divisor: Term) -> tuple[Term, Term]:
        """Quotient rounded down, and remainder in 0..divisor - 1; the divisor is positive."""
        number, divisor = concrete(number), concrete(divisor)
        if not is_symbolic(number) and (number == 0 or not is_symbolic(divisor)):
            return (0, 0) if number == 0 else divmod(number, divisor)
        number, divisor = as_term(number), as_term(divisor)
        if not self.implied(divisor > 0):
            raise OutOfReach("a division by a number that may be below 1")
        for one in self._divisions:
            if one.number.eq(number) and one.divisor.eq(divisor):
                return one.quotient, one.remainder
        new = _Division(number, divisor, self.fresh("quotient"), self.fresh("remainder"))
        self.assume(*_bounds(new))
        for one in self._divisions:
            if one.divisor.eq(divisor):
                self.assume(*_euclid(one, new))
        self._divisions.append(new)
        return new.quotient, new.remainder

    @property
    def divisions(self) -> list[Any]:
        """What quotients are, in full: products with numbers that need not be known."""
        return [
            division.number == division.quotient * division.divisor + division.remainder
            for division in self._divisions
        ]

    def multiply(self, first: Term, second: Term) -> Term:
        """A product; that of a quotient and its divisor is the number without its remainder."""
        first, second = concrete(first), concrete(second)
        if not is_symbolic(first) or not is_symbolic(second):
            return first * second
        for division in self._divisions:
            for factor, other in ((first, second), (second, first)):
                if division.divisor.eq(other):
                    distance = concrete(factor - division.quotient)
                    if not is_symbolic(distance):
                        return division.number - division.remainder + distance * other
        return first * second


def _bounds(one: _Division) -> list[Any]:
    number, divisor, quotient, remainder = one.number, one.divisor, one.quotient, one.remainder
    known = [remainder >= 0, remainder < divisor]
    if z3.is_int_value(divisor):
        known.append(number == quotient * divisor + remainder)
    # A quotient is at most as far from 0 as its number, or -1.
    known += [
        z3.Implies(number >= 0, z3.And(quotient >= 0, quotient <= number)),
        z3.Implies(number < 0, z3.And(quotient < 0, quotient >= number)),
        z3.Implies(quotient == 0, remainder == number),
        z3.Implies(quotient == -1, remainder == number + divisor),
        z3.Implies(z3.And(number >= 0, number < divisor), quotient == 0),
        z3.Implies(z3.And(number < 0, number >= -divisor), quotient == -1),
    ]
    return known


def _euclid(one: _Division, new: _Division) -> list[Any]:
    """What two quotients by one divisor have to do with each other."""
    divisor, apart, total = one.divisor, new.number - one.number, new.number + one.number
    shifted = one.remainder + apart
    both, summed = one.remainder + new.remainder, one.quotient + new.quotient
    known = [
        z3.Implies(
            z3.And(shifted >= turns * divisor, shifted < (turns + 1) * divisor),
            z3.And(new.quotient == one.quotient + turns, new.remainder == shifted - turns * divisor),
        )
        for turns in (-1, 0, 1)
    ]
    return [
        *known,
        z3.Implies(one.number <= new.number, one.quotient <= new.quotient),
        z3.Implies(new.number <= one.number, new.quotient <= one.quotient),
        # Of a number and its opposite, or what is left to a multiple.
        z3.Implies(
            z3.And(total >= 0, total < divisor),
            z3.Or(
                z3.And(both == total, summed == 0),
                z3.And(both == total + divisor, summed == -1),
            ),
        ),
    ]


@dataclass(frozen=True)
class EndedPath(Generic[T]):
    """A path, and what the code returned on it."""

    path: Path
    result: T


def paths(run: Callable[[Path], T], limit: int) -> Iterator[EndedPath[T]]:
    """Every way through `run`, which is called anew for each."""
    waiting: list[list[Any]] = [[]]
    while waiting:
        path = Path(waiting.pop(), limit)
        with suppress(Unreachable):
            yield EndedPath(path, run(path))
        waiting += path.others
