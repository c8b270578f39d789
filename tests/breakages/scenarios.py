"""Defects planted where scenarios of a release's own engine come by, and how many scenarios it takes to find each."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statecheck.kernels import triton_mode
from statecheck.text import visible

if TYPE_CHECKING:
    from statecheck.case import Case
    from subjects import Subject

SEED = 20


@dataclass(frozen=True)
class LiveTrial:
    """A planted defect in words, where it is, the property of scenarios that looks for it, and the subject that has it for a while."""

    name: str
    where: str
    property_id: str
    planted: Callable[[], AbstractContextManager[Subject]]
    shrinks: bool = False

    def row(self, examples: int) -> str:
        """Look for the defect in this process, which has not imported the release; what was found, in a line."""
        triton_mode.prepare("cpu")
        with self.planted() as subject:
            scenarios, case = scenarios_until_wrong(subject, self.property_id, examples, SEED)
            if case is not None and self.shrinks:
                _, case = scenarios_until_wrong(subject, self.property_id, examples, SEED, shrinks=True)
        cells = [self.name, self.where, str(scenarios) if case else f"not in {scenarios}"]
        cells += [_size(case) if case else ""] * self.shrinks
        return f"| {' | '.join((*cells, visible(case.message) if case else ''))} |"


def _size(case: Case) -> str:
    """How small a shrunk case is: requests of an engine; the model, calls, sequences and tokens of a library of sequences."""
    if not case.model:
        return str(sum(call.function.endswith((".add_request", ".add_turn")) for call in case.calls))
    rows = [row for call in case.calls for row in call.named.get("rows", ())]
    tokens = sum(len(one) for _, one in rows)
    return f"{case.model}: {len(case.calls) - 1} calls, {len({number for number, _ in rows})} sequences, {tokens} tokens"


def print_table(
    module: str,
    description: str | None,
    where: str,
    trials: Sequence[LiveTrial],
    most: int,
    size: str = "requests",
) -> None:
    """Try all of a module's defects, or those that are asked for, each in a process of its own.

    Args:
        module: the one to run, whose `main` this is.
        description: of its command.
        where: what the table's second column is.
        trials: its defects.
        most: scenarios of each, at most, unless the command says how many.
        size: what the column about the shrunk case is.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--where", default="", help=f"those whose {where} has this in it")
    parser.add_argument("--number", type=int, help="this one, in this process")
    parser.add_argument("--examples", type=int, default=most, help="scenarios, at most")
    given = parser.parse_args()
    if given.number is not None:
        print(trials[given.number].row(given.examples), flush=True)
        return
    head = ("planted defect", where, "scenarios", *[size] * trials[0].shrinks, "found")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for number, trial in enumerate(trials):
        if given.only in trial.name and given.where in trial.where:
            command = [sys.executable, "-m", module, "--number", str(number)]
            subprocess.run([*command, "--examples", str(given.examples)], check=True)


def scenarios_until_wrong(
    subject: Subject, property_id: str, examples: int, seed: int, *, shrinks: bool = False
) -> tuple[int, Case | None]:
    """How many scenarios of the property there were, and the last one if it showed anything; those that shrink it count, too.

    The process has prepared Triton for a CPU before it imported the release.
    """
    from hypothesis import HealthCheck, Phase, settings

    from statecheck.execution.example import Bench, Falsified
    from statecheck.execution.ports import ordinary_port
    from statecheck.execution.registry import load_properties

    bench = Bench(subject, ordinary_port(subject, "cpu"))
    tested = next(one for one in load_properties().values() if one.id == property_id)
    chosen = settings(
        deadline=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, *[Phase.shrink] * shrinks],
        suppress_health_check=list(HealthCheck),
    )
    settings.register_profile("planted", chosen)
    settings.load_profile("planted")
    try:
        tested.explore(bench, seed=seed, max_examples=examples)
    except Falsified as found:
        return bench.examples, found.case
    return bench.examples, None
