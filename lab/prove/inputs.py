"""The numbers of a call that are left open: symbols for scalars, and functions of an index for vectors and tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import z3

from lab.prove.numbers import Number, Numbers, term_of
from lab.prove.paths import Path, Term, as_term, concrete
from statecheck.subject.profile import Profile

BLOCK_SIZE = z3.Int("block_size")
DRAFTS = 2
"""Most drafts of a step; the oracle looks at each accepted token."""
INT32 = 2**31 - 1
STRIDE = 1 << 22
"""Elements from one row of a block table to the next."""


@dataclass
class Inputs:
    """The symbols of a scene on a path: scalars, and vectors by their names; those of two scenes differ by `prefix`."""

    path: Path
    profile: Profile
    by_slot: bool
    prefix: str = ""
    block_size: Any = BLOCK_SIZE
    width: Any = field(default_factory=lambda: z3.Int("table width"))
    blocks: Any = field(default_factory=lambda: z3.Int("blocks"))
    slots: Any = field(default_factory=lambda: z3.Int("slots"))

    def __post_init__(self) -> None:
        self.path.assume(
            *within(as_term(self.block_size), 1 + DRAFTS, INT32),
            *within(self.width, 1, STRIDE),
            *within(self.blocks, 2, INT32),
            *within(self.slots, 1, 1 << 20),
        )
        self.slot = self.at("mapping", 0) if self.by_slot else as_term(0)
        if self.by_slot:
            self.path.assume(*within(self.slot, -1, self.slots - 1))
        self.row = self.slot if self.by_slot and self.profile.tables_by_slot else as_term(0)

    def at(self, vector: str, index: Term) -> Any:
        """What a vector holds; any int32."""
        found = z3.Function(self.prefix + vector, z3.IntSort(), z3.IntSort())(as_term(index))
        self.path.assume(*within(found, -INT32 - 1, INT32))
        return found

    def own(self, vector: str) -> Any:
        """What a vector holds for the request."""
        return self.at(vector, self.slot)

    def cell(self, index: Term) -> Any:
        """What the block table holds: a block of the pool or the null block; -1 where that is skipped."""
        found = z3.Function("table0", z3.IntSort(), z3.IntSort())(as_term(index))
        least = -1 if self.profile.skips_missing_states else 0
        self.path.assume(*within(found, least, self.blocks - 1))
        return found

    def vector(self, name: str) -> Numbers:
        return Numbers(self.path, lambda index: self.at(name, index), 1)

    def number(self, term: Term) -> Any:
        return Number(self.path, term)

    def table(self) -> Any:
        return [_Rows(self)]


@dataclass
class _Rows:
    """A block table: its rows."""

    inputs: Inputs

    def __getitem__(self, row: int) -> Numbers:
        first = concrete(term_of(row) * STRIDE)
        inputs = self.inputs
        return Numbers(
            inputs.path, lambda column: inputs.cell(concrete(first + column)), inputs.number(inputs.width)
        )


def within(term: Any, least: Term, most: Term) -> tuple[Any, Any]:
    return term >= as_term(least), term <= as_term(most)
