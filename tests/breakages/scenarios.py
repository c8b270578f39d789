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

if TYPE_CHECKING:
    from subjects import Subject

SEED = 20


@dataclass(frozen=True)
class LiveTrial:
    """A planted defect in words, where it is, the property of scenarios that looks for it, and the subject that has it for a while."""

    name: str
    where: str
    property_id: str
    planted: Callable[[], AbstractContextManager[Subject]]

    def row(self, examples: int) -> str:
        """Look for the defect in this process, which has not imported the release; what was found, in a line."""
        triton_mode.prepare("cpu")
        with self.planted() as subject:
            scenarios, found = scenarios_until_wrong(subject, self.property_id, examples, SEED)
        return f"| {self.name} | {self.where} | {scenarios if found else f'not in {scenarios}'} | {found} |"


def print_table(
    module: str, description: str | None, where: str, trials: Sequence[LiveTrial], most: int
) -> None:
    """Try all of a module's defects, or those that are asked for, each in a process of its own.

    Args:
        module: the one to run, whose `main` this is.
        description: of its command.
        where: what the table's second column is.
        trials: its defects.
        most: scenarios of each, at most, unless the command says how many.
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
    print(f"| planted defect | {where} | scenarios | found |\n|---|---|---|---|", flush=True)
    for number, trial in enumerate(trials):
        if given.only in trial.name and given.where in trial.where:
            command = [sys.executable, "-m", module, "--number", str(number)]
            subprocess.run([*command, "--examples", str(given.examples)], check=True)


def scenarios_until_wrong(subject: Subject, property_id: str, examples: int, seed: int) -> tuple[int, str]:
    """How many scenarios of the property there were, and what the last one showed, "" where none showed anything.

    What it showed is not shrunk. The process has prepared Triton for a CPU before it imported the release.
    """
    from hypothesis import HealthCheck, Phase, settings

    from statecheck.execution.example import Bench, Falsified
    from statecheck.execution.port import ordinary_port
    from statecheck.execution.registry import load_properties

    bench = Bench(subject, ordinary_port(subject, "cpu"))
    tested = next(one for one in load_properties().values() if one.id == property_id)
    chosen = settings(
        deadline=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    settings.register_profile("planted", chosen)
    settings.load_profile("planted")
    try:
        tested.explore(bench, seed=seed, max_examples=examples)
    except Falsified as found:
        return bench.examples, str(found)
    return bench.examples, ""
