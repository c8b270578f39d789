"""How often each model of a port of sequences keeps the law, property by property and seed by seed: whether there is a false alarm.

    python -m lab.sequence_seeds llamacpp --seeds 10 --examples 5 --models 'mamba*'

A row for each model: examples that were compared, those that ended in a declared defect, by its id, and those that ended in a new failure.
The exit code is 1 if there is a new failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from statecheck.case import Case
from statecheck.execution.example import ExecutionContext, Observer
from statecheck.execution.executors import ordinary_port
from statecheck.execution.property import Property
from statecheck.execution.registry import load_properties
from statecheck.subject import Subject, load
from statecheck.subject.known import KnownDeviation


@dataclass
class Tally:
    """What examples of a model came to."""

    examples: int = 0
    compared: int = 0
    known: Counter[str] = field(default_factory=Counter)
    new: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        """Cells of the table."""
        known = ", ".join(f"{name} {count}" for name, count in self.known.most_common())
        return f"{self.examples} | {self.compared} | {known} | {len(self.new)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subject", help="a port of sequences")
    parser.add_argument("--seeds", type=int, default=10, help="from 1 to this one")
    parser.add_argument("--examples", type=int, default=5, help="of each property and seed")
    parser.add_argument("--models", default="*", help="patterns of names, separated by commas")
    options = parser.parse_args(arguments)
    subject = load(options.subject)
    if subject.sequences is None:
        raise ValueError(f"subject = {options.subject!r}, but should be a port of sequences [sequence_seeds]")
    patterns = options.models.split(",")
    models = [
        name for name in subject.sequences.models if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    tested = [loaded for loaded in load_properties().values() if loaded.id.startswith("sequences/")]
    print(
        "| model | examples | compared | declared defects | new failures |\n|---|---|---|---|---|", flush=True
    )
    started, total = time.monotonic(), Tally()
    for model in models:
        tally = tallied(subject, model, tested, range(1, options.seeds + 1), options.examples)
        print(f"| {model} | {tally.row} |", *tally.new, sep="\n", flush=True)
        total.examples += tally.examples
        total.compared += tally.compared
        total.known += tally.known
        total.new += tally.new
    seconds = time.monotonic() - started
    print(f"| all | {total.row} |")
    decodes = subject.module.Sequences.library.calls["extend"]
    print(
        f"\n{seconds:.0f} s, {total.examples / seconds:.1f} scenarios and {decodes / seconds:.1f} batches a second"
    )
    return int(bool(total.new))


@dataclass
class _Tallying(Observer):
    """Counts failures, which end nothing but their example."""

    tally: Tally

    def known_defect(self, subject: Subject, case: Case) -> KnownDeviation | None:
        known = subject.known(case)
        if known is not None:
            self.tally.known[known.id] += 1
        return known

    def was_met_before(self, case: Case) -> bool:
        self.tally.new.append(f"  {case.property_id}: {case.message}")
        return True


def tallied(
    subject: Subject, model: str, tested: Sequence[Property], seeds: Sequence[int], examples: int
) -> Tally:
    """Explore each property with each seed, on one model; a failure ends its example and nothing else."""
    assert subject.sequences is not None
    subject.sequences.models = (model,)
    tally = Tally()
    bench = ExecutionContext(subject, ordinary_port(subject, "cpu"), _Tallying(tally))
    for one in tested:
        for seed in seeds:
            one.explore(bench, seed=seed, max_examples=examples)
    tally.examples, tally.compared = bench.counts.examples, bench.counts.compared
    return tally


if __name__ == "__main__":
    sys.exit(main())
