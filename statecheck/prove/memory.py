"""SymbolicMemory of a launch on a path: vectors and tables of numbers, and pools of bytes that are only moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.prove.paths import Path, Term, Unreachable, as_term, concrete, is_symbolic

APART = 48
"""Regions lie so many bits apart, whatever their sizes are."""
EQUAL, ADDRESS, OVERFLOW = "equal", "address", "overflow"
"""What a lemma can be about: what is written, where, and whether integers fit on the way."""


@dataclass(frozen=True)
class LemmaViolation:
    """What a lemma is `about` does not hold where all `conditions` do, and all quotients are right: `divisions`."""

    about: str
    conditions: tuple[Any, ...]
    divisions: tuple[Any, ...]
    text: str


@dataclass(frozen=True)
class Data:
    """Bytes that were read from a pool at an address."""

    source: Term


@dataclass
class Region:
    """A tensor: where it begins, and which `size` bytes from `first` on may be touched.

    `initial` gives the number of an index; None for a pool.
    """

    name: str
    start: int
    size: Term
    item: int
    initial: Callable[[Term], Term] | None = None
    first: Term = 0
    stores: list[tuple[Term, Term]] = field(default_factory=list)

    def number(self, index: Term) -> Term:
        """What stands at an index by now."""
        assert self.initial is not None
        value = self.initial(index)
        for at, stored in self.stores:
            same = concrete(as_term(at) == as_term(index))
            if isinstance(same, bool):
                value = stored if same else value
            else:
                value = z3.If(same, as_term(stored), as_term(value))
        return concrete(value)


@dataclass(frozen=True)
class MovedBytes:
    """Bytes that were moved as one: where from, where to, and how many."""

    source: Term
    target: Term
    count: int


@dataclass
class SymbolicMemory:
    """Regions, what a launch did to them, and what was wrong with that."""

    path: Path
    regions: Sequence[Region]
    moved: list[MovedBytes] = field(default_factory=list)
    violations: list[LemmaViolation] = field(default_factory=list)

    def region(self, name: str) -> Region:
        return next(region for region in self.regions if region.name == name)

    def violated(self, about: str, condition: Term, text: str) -> None:
        """Note what is wrong where the condition holds; the first of a kind is enough."""
        if all(found.about != about for found in self.violations):
            conditions = (*self.path.solver.assertions(), condition)
            self.violations.append(LemmaViolation(about, conditions, tuple(self.path.divisions), text))

    def find(self, address: Term, size: int, text: str) -> tuple[Region, Term]:
        """The region of an address, and how far behind its start; from then on the access is taken to be inside."""
        address = concrete(address)
        value = address
        if is_symbolic(address):
            # Whatever an earlier access was taken for.
            assert self.path.possible(), "only of what can be reached"
            value = concrete(self.path.solver.model().eval(address, model_completion=True))
        region = next((one for one in self.regions if one.start >> APART == value >> APART), None)
        if region is None:
            self.violated(ADDRESS, as_term(address) == value, f"{text} outside of everything")
            raise Unreachable
        offset = concrete(address - region.start)
        behind = as_term(offset) - as_term(region.first)
        inside = concrete(z3.And(behind >= 0, behind + size <= as_term(region.size)))
        if not self.path.implied(inside):
            self.violated(ADDRESS, z3.Not(inside), f"{text} outside of {region.name}")
            if inside is False or not self.path.possible(inside):
                raise Unreachable
            self.path.assume(inside)
        return region, offset

    def load(self, address: Term, size: int, text: str) -> Any:
        region, offset = self.find(address, size, f"{text} reads")
        if region.initial is None:
            return Data(concrete(address))
        return region.number(self._index(region, offset, size))

    def store(self, address: Term, size: int, value: Any, text: str) -> Region:
        region, offset = self.find(address, size, f"{text} writes")
        if region.initial is not None:
            region.stores.append((self._index(region, offset, size), value))
        elif not isinstance(value, Data):
            raise NotUnderstoodError("a kernel that writes numbers into a pool")
        return region

    @staticmethod
    def _index(region: Region, offset: Term, size: int) -> Term:
        if size != region.item:
            raise NotUnderstoodError(f"an access of {size} bytes to elements of {region.item}")
        if not is_symbolic(offset):
            return offset // size
        return concrete(_part(offset, size))

    def reads(self, runs: Iterable[tuple[Term, int]], text: str) -> None:
        """Bytes of a pool are read: they must be those from before the launch."""
        for address, count in runs:
            over = [_overlap(address, count, run.target, run.count) for run in self.moved]
            if over and self.path.possible(z3.Or(*over)):
                self.violated(EQUAL, z3.Or(*over), f"{text} reads a byte after it was overwritten")

    def source_of(self, byte: Any) -> Any:
        """The address whose byte from before the launch is at the address `byte` now."""
        return source_in(self.moved, byte)


def source_in(runs: Iterable[MovedBytes], byte: Any) -> Any:
    """As `SymbolicMemory.source_of`, after these moves."""
    found = byte
    for run in runs:
        inside = z3.And(byte >= as_term(run.target), byte < as_term(run.target) + run.count)
        found = z3.If(inside, as_term(run.source) + (byte - as_term(run.target)), found)
    return found


def _overlap(first: Term, first_count: int, second: Term, second_count: int) -> Any:
    return z3.And(
        as_term(first) < as_term(second) + second_count, as_term(second) < as_term(first) + first_count
    )


def joined(runs: Iterable[tuple[Term, Term, int]]) -> list[MovedBytes]:
    """Lanes that lie side by side, at both ends, as one run each."""
    found: list[MovedBytes] = []
    for source, target, count in runs:
        last = found[-1] if found else None
        if (
            last is not None
            and _distance(source, last.source) == last.count
            and _distance(target, last.target) == last.count
        ):
            found[-1] = MovedBytes(last.source, last.target, last.count + count)
        else:
            found.append(MovedBytes(source, target, count))
    return found


def _part(offset: Any, size: int) -> Any:
    """A number divided by `size`, term by term where each can be divided."""
    terms = offset.children() if z3.is_add(offset) else [offset]
    found = []
    for term in terms:
        factor = term if z3.is_int_value(term) else term.arg(0) if z3.is_mul(term) else None
        if factor is None or not z3.is_int_value(factor) or factor.as_long() % size:
            return offset / size
        rest = [] if z3.is_int_value(term) else term.children()[1:]
        found.append(z3.Product(z3.IntVal(factor.as_long() // size), *rest))
    return z3.Sum(found)


def _distance(first: Term, second: Term) -> int | None:
    apart = concrete(first - second)
    return None if is_symbolic(apart) else int(apart)
