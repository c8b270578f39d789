"""Cases of what a solver has found: the smallest numbers that it allows, executed on the subject."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import z3

from lab.prove.inputs import BLOCK_SIZE, STRIDE, Inputs
from lab.prove.memory import ADDRESS, LemmaViolation
from lab.prove.paths import Path, as_term
from lab.prove.scenes import COLUMNS, SymbolicScene
from properties.strategies.align.setup import Setup
from statecheck.case import Case
from statecheck.case.values import Let, Step, Tensor
from statecheck.execution.example import ExampleEnded, ExecutionContext, Falsified, Observer
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import KnownDeviation, Subject

_TRIED = (*range(9), -1, *(1 << places for places in range(4, 31)))
_AT_ONCE = 12
"""Violations of which the smallest numbers are executed first."""
_SIZES = 6
"""How many numbers of tokens a block are tried."""
_MILLISECONDS = 30_000
_CELLS = ("given", "apart", "any")
"""What the row of the table holds: the blocks of the template, each block once, or anything."""


class _AllFailures(Observer):
    """Declared defects are reported as other failures are."""

    def known_defect(self, subject: Subject, case: Case) -> KnownDeviation | None:  # noqa: ARG002
        return None


@dataclass(frozen=True)
class _Numbers:
    """What a solver has chosen: numbers by vector and index, the tokens of a block, and the row of the table."""

    values: Mapping[str, int]
    block_size: int
    table: Sequence[int]

    @property
    def size(self) -> tuple[int, int]:
        return self.block_size, sum(map(abs, self.values.values()))


@dataclass
class ShownCases:
    """What a subject does on numbers that violate a lemma.

    `new` is the smallest case that no declared defect explains; `known` has a case of each defect that explains some, by its id.
    `unshown` are the violations of which no numbers failed, or were not tried in time; `inputs` counts the numbers that were executed.
    """

    new: Case | None = None
    known: dict[str, Case] = field(default_factory=dict)
    unshown: list[LemmaViolation] = field(default_factory=list)
    inputs: int = 0


@dataclass
class CaseSearch:
    """Executes numbers that violate a lemma about a scene's launch.

    Args:
        size: tokens of a block, or their symbol.
        limit: seconds after which no more are tried.
    """

    subject: Subject
    scene: SymbolicScene
    setup: Setup
    size: Any
    limit: float

    def __post_init__(self) -> None:
        self._shown, self._end = ShownCases(), time.monotonic() + self.limit
        least = 1 + self.setup.num_spec
        self._sizes = (self.size,) if isinstance(self.size, int) else range(least, least + _SIZES)
        self._template = self._steps(least)

    def _steps(self, block_size: int) -> list[Step]:
        return self.scene.steps(replace(self.setup, block_size=block_size), self.subject.profile)

    def shown(self, violations: Sequence[LemmaViolation]) -> ShownCases:
        """Execute the smallest numbers of each violation, until some fail in a way that is not declared.

        Where a declared defect explains the failure, the search goes on: with the other violations, and with other numbers of this one.
        """
        for first in range(0, len(violations), _AT_ONCE):
            self._try(violations[first : first + _AT_ONCE])
        return self._shown

    @property
    def _over(self) -> bool:
        return self._shown.new is not None or time.monotonic() > self._end

    def _try(self, violations: Sequence[LemmaViolation]) -> None:
        """Those of them whose numbers are the smallest first."""
        unshown = list(violations)
        for cells in _CELLS:
            chosen = [(self._numbers(one, cells), one) for one in unshown]
            pairs = [(numbers, one) for numbers, one in chosen if numbers is not None]
            for numbers, violation in sorted(pairs, key=lambda pair: pair[0].size):
                if self._over or not self._fails(numbers, violation):
                    continue
                unshown = [one for one in unshown if one is not violation]
                # After a declared defect: each of the numbers is another, in turn.
                for name, value in numbers.values.items():
                    other = self._numbers(violation, cells, besides=(name, value))
                    if other is not None:
                        self._fails(other, violation)
        self._shown.unshown += unshown

    def _numbers(
        self, violation: LemmaViolation, cells: str, besides: tuple[str, int] | None = None
    ) -> _Numbers | None:
        """Small numbers that violate a lemma, in a block of the first size for which there are some; one is not that of `besides`."""
        for size in self._sizes if not self._over else ():
            solver = z3.Solver()
            solver.set("timeout", _MILLISECONDS)
            # Of a known divisor products are sums.
            terms = (*violation.conditions, *violation.divisions)
            solver.add(*(z3.substitute(term, (BLOCK_SIZE, z3.IntVal(size))) for term in terms))
            inputs = Inputs(Path(), self.subject.profile, self.scene.by_slot, block_size=size)
            solver.add(*_as_template(inputs, self._template, cells))
            opened = _open(self.scene, inputs)
            if besides is not None:
                solver.add(opened[besides[0]] != besides[1])
            values = _smallest(solver, opened)
            if values is not None:
                row = [_number(solver, as_term(_cell(inputs, column))) for column in range(COLUMNS)]
                return _Numbers(values, size, row)
        return None

    def _fails(self, numbers: _Numbers, violation: LemmaViolation) -> bool:
        """Execute numbers, and keep the case if they fail in what the lemma is about."""
        tested = load_properties()[self.scene.property_id]
        # What is left shows without the sanitizer, which may stop at something else.
        sanitized = violation.about == ADDRESS
        port = ordinary_port(self.subject, "cpu", sanitized=sanitized)
        self._shown.inputs += 1
        trial = ExecutionContext(self.subject, port, _AllFailures()).begin(tested)
        try:
            trial.agrees(*_with_numbers(self._steps(numbers.block_size), numbers))
        except Falsified as falsified:
            case = falsified.case
        except ExampleEnded:
            # They are outside of the subject's contract.
            return False
        else:
            return False
        if sanitized and (case.failure is None or case.failure.kind not in ("memory", "fault")):
            return False
        known = self.subject.known(case)
        if known is None:
            self._shown.new = case
        else:
            self._shown.known.setdefault(known.id or known.link, case)
        return True


def _as_template(inputs: Inputs, template: Sequence[Step], cells: str) -> list[Any]:
    """A table as wide as that of a case, and what is known of its `cells`, of _CELLS."""
    lets = {step.name: step.value for step in template if isinstance(step, Let)}
    limits = [inputs.width == COLUMNS, inputs.slots == 1]
    if "table0" in lets:
        table, blocks = lets["table0"], lets["config"]["num_blocks"]
        limits.append(inputs.blocks == blocks)
        row = [_cell(inputs, column) for column in range(COLUMNS)]
        if cells == "given":
            limits += [cell == block for cell, block in zip(row, table.elements, strict=False)]
        elif cells == "apart":
            limits += [z3.Or(one != other, one <= 0) for one, other in combinations(row, 2)]
    return limits


def _cell(inputs: Inputs, column: int) -> Any:
    return inputs.cell(inputs.row * STRIDE + column)


def _open(scene: SymbolicScene, inputs: Inputs) -> dict[str, Any]:
    """What a solver may choose, by the name of its vector and the index."""
    found = {}
    if scene.by_slot:
        found["mapping 0"] = inputs.slot
    if "starts" in scene.vectors:
        found |= {f"starts {index}": inputs.at("starts", index) for index in (0, 1)}
    own = [name for name in scene.vectors if name not in ("mapping", "starts") and "." not in name]
    return found | {f"{name} 0": inputs.own(name) for name in own}


def _smallest(solver: z3.Solver, terms: Mapping[str, Any]) -> dict[str, int] | None:
    """The smallest number of each, one after the other; None where the solver knows none."""
    values = {}
    for name, term in terms.items():
        if solver.check() != z3.sat:
            return None
        some = _number(solver, term)
        values[name] = next((value for value in _TRIED if solver.check(term == value) == z3.sat), some)
        solver.add(term == values[name])
    return values if solver.check() == z3.sat else None


def _number(solver: z3.Solver, term: Any) -> int:
    """A number that a term may be, by the solver's model."""
    return int(solver.model().eval(term, model_completion=True).as_long())


def _with_numbers(steps: Sequence[Step], numbers: _Numbers) -> Iterator[Step]:
    for step in steps:
        if not isinstance(step, Let) or not isinstance(step.value, Tensor) or step.value.dtype != "int32":
            yield step
            continue
        elements = list(step.value.values())
        if step.name == "table0":
            elements[: len(numbers.table)] = numbers.table
        for index in range(len(elements)):
            elements[index] = numbers.values.get(f"{step.name} {index}", elements[index])
        yield replace(step, value=replace(step.value, elements=tuple(elements)))
