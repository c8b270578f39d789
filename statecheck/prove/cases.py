"""A case of what a solver has found: the smallest numbers that it allows, executed on the subject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


def smallest_case(
    subject: Subject, scene: SymbolicScene, setup: Setup, violations: Sequence[LemmaViolation], size: Any
) -> Case | None:
    """The case of the smallest numbers for which the subject fails; None where it does not.

    Args:
        size: tokens of a block, or their symbol.
    """
    least = 1 + setup.num_spec
    template = scene.steps(replace(setup, block_size=least), subject.profile)
    sizes = (size,) if isinstance(size, int) else range(least, least + _SIZES)
    for cells in (True, False):
        chosen = (
            _chosen(subject, scene, template, violation, sizes, cells=cells) for violation in violations
        )
        for numbers in sorted(filter(None, chosen), key=lambda one: one.size):
            # What is left shows without the sanitizer, which may stop at something else.
            sanitized = violations[0].about == ADDRESS
            case = _executed(subject, scene, setup, numbers, sanitized=sanitized)
            if case is not None:
                return case
    return None


def _chosen(
    subject: Subject,
    scene: SymbolicScene,
    template: Sequence[Step],
    violation: LemmaViolation,
    sizes: Iterable[int],
    *,
    cells: bool,
) -> _Numbers | None:
    """Small numbers that violate a lemma, in a block of the first size for which there are some."""
    for size in sizes:
        solver = z3.Solver()
        solver.set("timeout", _MILLISECONDS)
        # Of a known divisor products are sums.
        terms = (*violation.conditions, *violation.divisions)
        solver.add(*(z3.substitute(term, (BLOCK_SIZE, z3.IntVal(size))) for term in terms))
        inputs = Inputs(Path(), subject.profile, scene.by_slot, block_size=size)
        solver.add(*_as_template(inputs, template, cells=cells))
        if solver.check() == z3.sat:
            values = _smallest(solver, _open(scene, inputs))
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


def _smallest(solver: z3.Solver, terms: Mapping[str, Any]) -> dict[str, int]:
    """The smallest number of each, one after the other."""
    values = {}
    for name, term in terms.items():
        chosen = next((value for value in _TRIED if solver.check(term == value) == z3.sat), None)
        if chosen is None:
            assert solver.check() == z3.sat
            chosen = solver.model().eval(term, model_completion=True).as_long()
        solver.add(term == chosen)
        values[name] = chosen
    assert solver.check() == z3.sat
    return values


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
