"""SymbolicMemory of a launch on a path: vectors and tables of numbers, and pools of bytes that are only moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from lab.prove.paths import Path, Term, Unreachable, as_term, concrete, is_symbolic
from statecheck.kernels.source.ir import NotUnderstoodError

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
    regions: list[Region]
    moved: list[MovedBytes] = field(default_factory=list)
    violations: list[LemmaViolation] = field(default_factory=list)

    def region(self, name: str) -> Region:
        return next(region for region in self.regions if region.name == name)

    def violated(self, about: str, condition: Term, text: str) -> None:
        """Note what is wrong where the condition holds; the first at a place is enough."""
        if all((found.about, found.text) != (about, text) for found in self.violations):
            wrong = condition if is_symbolic(condition) else z3.BoolVal(condition)
            conditions = (*self.path.solver.assertions(), wrong)
            self.violations.append(LemmaViolation(about, conditions, tuple(self.path.divisions), text))

    def find(self, address: Term, size: int, text: str) -> tuple[Region, Term]:
        """The region of an address, and how far behind its start. Where it may be in several or in none, each is followed.

        Raises:
            Unreachable: it is in none, which is noted: what follows such an access is undefined.
        """
        address = concrete(address)
        likely = self.path.choose(lambda: self._likely(address))
        others = range(len(self.regions)) if is_symbolic(address) else ()
        for number in dict.fromkeys((*likely, *others)):
            region = self.regions[number]
            offset = concrete(address - region.start)
            behind = as_term(offset) - as_term(region.first)
            inside = concrete(z3.And(behind >= 0, behind + size <= as_term(region.size)))
            if self.path.implied(inside) or self.path.decide(inside):
                return region, offset
        names = [self.regions[number].name or "a vector of the launch" for number in likely]
        self.violated(ADDRESS, True, f"{text} outside of {', '.join(names) or 'everything'}")
        raise Unreachable

    def _likely(self, address: Term) -> tuple[int, ...]:
        """The number of the region near which an address is for some input, if there is one."""
        if is_symbolic(address):
            assert self.path.possible(), "only of what can be reached"
            address = concrete(self.path.solver.model().eval(address, model_completion=True))
        nearest = (address + (1 << APART - 1)) >> APART
        return tuple(number for number, one in enumerate(self.regions) if one.start >> APART == nearest)

    def load(self, address: Term, size: int, text: str) -> Any:
        region, offset = self.find(address, size, f"{text} reads")
        if region.initial is None:
            return Data(concrete(address))
        return region.number(self._index(region, offset, size))

    def store(self, address: Term, size: int, value: Any, text: str) -> None:
        region, offset = self.find(address, size, f"{text} writes")
        if isinstance(value, Data) != (region.initial is None):
            raise NotUnderstoodError("a kernel that writes numbers into a pool, or a state's bytes elsewhere")
        if region.initial is not None:
            region.stores.append((self._index(region, offset, size), value))

    def _index(self, region: Region, offset: Term, size: int) -> Term:
        if size != region.item:
            raise NotUnderstoodError(f"an access of {size} bytes to elements of {region.item}")
        part = _part(as_term(offset), size)
        if part is None and not self.path.implied(as_term(offset) % size == 0):
            raise NotUnderstoodError("an access between two elements")
        return concrete(as_term(offset) / size if part is None else part)

    def reads(self, runs: Iterable[tuple[Term, int]], text: str) -> None:
        """Bytes of a pool are read: they must be those from before the launch."""
        for address, count in runs:
            over = [_overlap(address, count, run.target, run.count) for run in self.moved]
            if over and self.path.possible(z3.Or(*over)):
                self.violated(EQUAL, z3.Or(*over), f"{text} reads a byte after it was overwritten")

    def compare(self, vectors: Mapping[str, Callable[[Term], Term]], copies: Iterable[MovedBytes]) -> None:
        """Note where it is left otherwise than expected, each tensor by itself: what is not among `vectors` is to stay as it was."""
        byte, index = self.path.fresh("byte"), self.path.fresh("index")
        differs = {"bytes of the pool": source_in(self.moved, byte) != source_in(copies, byte)}
        for number, region in enumerate(self.regions):
            name = region.name or f"a vector of the launch, the {number}th,"
            if region.name in vectors:
                inside = z3.And(index >= 0, region.item * index < as_term(region.size))
                other = as_term(region.number(index)) != as_term(vectors[region.name](index))
                differs[name] = z3.And(inside, other)
            elif region.stores:
                assert region.initial is not None
                changed = (
                    as_term(region.number(at)) != as_term(region.initial(at)) for at, _ in region.stores
                )
                differs[name] = z3.Or(*changed)
        self.differ(differs)

    def differ(self, differs: Mapping[str, Any]) -> None:
        """Note which of these conditions, by what each is about, are possible."""
        if self.path.possible(z3.Or(*differs.values())):
            for name, condition in differs.items():
                if self.path.possible(condition):
                    self.violated(EQUAL, condition, f"{name} may be left otherwise")


def source_in(runs: Iterable[MovedBytes], byte: Any) -> Any:
    """The address whose byte from before these moves is at the address `byte` after them."""
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
    """A number divided by `size`, term by term where each can be divided; otherwise None."""
    terms = offset.children() if z3.is_add(offset) else [offset]
    found = []
    for term in terms:
        factor = term if z3.is_int_value(term) else term.arg(0) if z3.is_mul(term) else None
        if factor is None or not z3.is_int_value(factor) or factor.as_long() % size:
            return None
        rest = [] if z3.is_int_value(term) else term.children()[1:]
        found.append(z3.Product(z3.IntVal(factor.as_long() // size), *rest))
    return z3.Sum(found)


def _distance(first: Term, second: Term) -> int | None:
    apart = concrete(first - second)
    return None if is_symbolic(apart) else int(apart)
