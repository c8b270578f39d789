"""Cases of what a solver has found: the smallest numbers that it allows, executed on the subject."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from properties.strategies.align.setup import Setup
from statecheck.case import Case
from statecheck.case.values import Let, Step, Tensor
from statecheck.execution.example import Bench, Falsified, KnownFailure
from statecheck.execution.port import ordinary_port
from statecheck.execution.registry import found, load_properties
from statecheck.prove.inputs import BLOCK_SIZE, STRIDE, Inputs
from statecheck.prove.memory import ADDRESS, LemmaViolation
from statecheck.prove.paths import Path, as_term
from statecheck.prove.scenes import COLUMNS, SymbolicScene
from statecheck.subject import Subject

_TRIED = (*range(9), -1, *(1 << places for places in range(4, 31)))
_AT_ONCE = 12
"""Violations of which the smallest numbers are executed first."""
_SIZES = 6
"""How many numbers of tokens a block are tried."""
_MILLISECONDS = 30_000


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
    """What the subject does on numbers that violate a lemma.

    `new` is the smallest case that no declared defect explains; `known` has a case of each defect that explains some, by its id.
    `unshown` are the violations of which no numbers failed, or were not tried in time; `inputs` counts the numbers that were executed.
    """

    new: Case | None = None
    known: dict[str, Case] = field(default_factory=dict)
    unshown: list[LemmaViolation] = field(default_factory=list)
    inputs: int = 0


def shown_cases(
    subject: Subject,
    scene: SymbolicScene,
    setup: Setup,
    violations: Sequence[LemmaViolation],
    size: Any,
    limit: float,
) -> ShownCases:
    """Execute the smallest numbers of each violation, until some fail in a way that is not declared.

    Where a declared defect explains the failure, the search goes on: with the other violations, and with other numbers for this one.

    Args:
        size: tokens of a block, or their symbol.
        limit: seconds after which no more are tried.
    """
    search = _Search(subject, scene, setup, size, time.monotonic() + limit)
    for first in range(0, len(violations), _AT_ONCE):
        search.batch(violations[first : first + _AT_ONCE])
        if search.shown.new is not None:
            break
    return search.shown


class _Search:
    def __init__(self, subject: Subject, scene: SymbolicScene, setup: Setup, size: Any, end: float) -> None:
        self.shown = ShownCases()
        self._subject, self._scene, self._setup, self._end = subject, scene, setup, end
        least = 1 + setup.num_spec
        self._sizes = (size,) if isinstance(size, int) else tuple(range(least, least + _SIZES))
        self._template = scene.steps(replace(setup, block_size=least), subject.profile)

    def batch(self, violations: Sequence[LemmaViolation]) -> None:
        """Those of them whose numbers are the smallest first."""
        unshown = list(violations)
        for cells in (True, False):
            chosen = [(one, self._numbers(one, cells=cells)) for one in unshown]
            pairs = [(numbers, one) for one, numbers in chosen if numbers is not None]
            for numbers, violation in sorted(pairs, key=lambda pair: pair[0].size):
                if self._fails(numbers, violation):
                    unshown = [one for one in unshown if one is not violation]
                    self._beside(numbers, violation, cells=cells)
                if self.shown.new is not None:
                    return
        self.shown.unshown += unshown

    def _beside(self, numbers: _Numbers, violation: LemmaViolation, *, cells: bool) -> None:
        """After numbers that show a declared defect: numbers of which one is another, each in turn."""
        for name in numbers.values:
            other = self._numbers(violation, cells=cells, besides=(name, numbers.values[name]))
            if self.shown.new is None and other is not None:
                self._fails(other, violation)

    def _numbers(
        self, violation: LemmaViolation, *, cells: bool, besides: tuple[str, int] | None = None
    ) -> _Numbers | None:
        if time.monotonic() > self._end or self.shown.new is not None:
            return None
        where = (self._subject, self._scene, self._template)
        return _chosen(*where, violation, self._sizes, cells=cells, besides=besides)

    def _fails(self, numbers: _Numbers, violation: LemmaViolation) -> bool:
        # What is left shows without the sanitizer, which may stop at something else.
        sanitized = violation.about == ADDRESS
        case = _executed(self._subject, self._scene, self._setup, numbers, sanitized=sanitized)
        self.shown.inputs += 1
        if case is None:
            return False
        known = self._subject.known(case)
        if known is None:
            self.shown.new = case
        else:
            self.shown.known.setdefault(known.id or known.link, case)
        return True


def _chosen(
    subject: Subject,
    scene: SymbolicScene,
    template: Sequence[Step],
    violation: LemmaViolation,
    sizes: Iterable[int],
    *,
    cells: bool,
    besides: tuple[str, int] | None = None,
) -> _Numbers | None:
    """Small numbers that violate a lemma, in a block of the first size for which there are some; a number is not that of `besides`."""
    for size in sizes:
        solver = z3.Solver()
        solver.set("timeout", _MILLISECONDS)
        # Of a known divisor products are sums.
        terms = (*violation.conditions, *violation.divisions)
        solver.add(*(z3.substitute(term, (BLOCK_SIZE, z3.IntVal(size))) for term in terms))
        inputs = Inputs(Path(), subject.profile, scene.by_slot, block_size=size)
        solver.add(*_as_template(inputs, template, cells=cells))
        opened = _open(scene, inputs)
        if besides is not None:
            solver.add(opened[besides[0]] != besides[1])
        values = _smallest(solver, opened)
        if values is not None:
            model = solver.model()
            row = [
                model.eval(as_term(_cell(inputs, column)), model_completion=True).as_long()
                for column in range(COLUMNS)
            ]
            return _Numbers(values, size, row)
    return None


def _as_template(inputs: Inputs, template: Sequence[Step], *, cells: bool) -> list[Any]:
    """A table as wide as that of a case, and, with `cells`, the blocks that stand there."""
    lets = {step.name: step.value for step in template if isinstance(step, Let)}
    limits = [inputs.width == COLUMNS, inputs.slots == 1]
    if "table0" in lets:
        table, blocks = lets["table0"], lets["config"]["num_blocks"]
        limits.append(inputs.blocks == blocks)
        if cells:
            limits += [
                _cell(inputs, column) == block for column, block in enumerate(table.elements[:COLUMNS])
            ]
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
        found = solver.model().eval(term, model_completion=True).as_long()
        chosen = next((value for value in _TRIED if solver.check(term == value) == z3.sat), found)
        solver.add(term == chosen)
        values[name] = chosen
    return values if solver.check() == z3.sat else None


def _executed(
    subject: Subject, scene: SymbolicScene, setup: Setup, numbers: _Numbers, *, sanitized: bool
) -> Case | None:
    steps = scene.steps(replace(setup, block_size=numbers.block_size), subject.profile)
    load_properties()
    bench = Bench(subject, ordinary_port(subject, "cpu", sanitized=sanitized), known_by=lambda case: None)
    bench.port.begin()
    try:
        bench.begin(found(scene.property_id)).agrees(*_with_numbers(steps, numbers))
    except Falsified as falsified:
        return falsified.case
    except KnownFailure:
        return None
    return None


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
