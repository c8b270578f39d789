"""Search a subject for a failure in another way than a campaign does: `python -m tests.hunt.ways.search`.

Writes `found.json` at the first failure, and `ended.json` at the end. The limit is in CPU seconds of this process, imports among them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from statecheck.case import Case
from statecheck.execution.example import Bench, Falsified, Trial
from statecheck.execution.port import InProcess
from statecheck.execution.property import Property
from statecheck.kernels import triton_mode
from subjects import load
from tests.hunt.ways import traffic, types, uniform
from tests.hunt.ways.inputs import TARGETS, Target

EXAMPLES, LAUNCHES = 100, 20
"""Examples of a call in a round: Hypothesis's own number, and a fifth where kernels are executed without a GPU."""
_NO_INPUT = (ArithmeticError, AssertionError, LookupError, ValueError)
"""What the data of an input raise where no call can be made of it."""


class OutOfTime(BaseException):
    """The CPU seconds are used up. No `Exception`: Hypothesis would take it for a failure, and run the example again."""


class Search:
    """A subject, and what was found in it."""

    def __init__(self, subject: str, seed: int, limit: float, out: Path) -> None:
        # What the oracle refuses is no input of these ways: it is counted and left.
        chosen = load(subject)
        chosen.refuses = False
        self.bench = Bench(chosen, InProcess(chosen, "cpu"))
        self.bench.on_falsified = self._falsified
        self.bench.on_example = self._in_time
        self.seed, self._limit, self._out = seed, limit, out
        self._tested: Property | None = None
        self.found = False

    def _in_time(self) -> None:
        if time.process_time() > self._limit:
            raise OutOfTime

    def _falsified(self, case: Case) -> None:
        if not self.found:
            self.found = True
            self.write("found.json", case.message)

    def write(self, name: str, message: str = "") -> None:
        """Write what was counted so far."""
        counts = self.bench.counts
        discarded = counts.ended_before
        result = {
            "failure": time.process_time(),
            "examples": counts.examples - discarded,
            "discarded": discarded,
            "property_id": self._tested.name if self._tested else "",
            "message": message,
        }
        (self._out / name).write_text(json.dumps(result), encoding="utf-8")

    def begin(self, tested: Property) -> Property:
        self._tested = tested
        return tested


def _property(name: str, body: Callable[..., None], strategies: dict[str, Any] | None = None) -> Property:
    strategies = strategies or {}
    return Property(name, f"{name} agrees with the oracle", "agreement", (), body, strategies, __name__)


def _agrees(target: Target) -> Callable[..., None]:
    def body(trial: Trial, value: Any) -> None:
        try:
            steps = target.steps(value)
        except _NO_INPUT as error:
            trial.bench.counts.outside[f"no input: {type(error).__name__}"] += 1
            return
        if steps:
            trial.agrees(*steps)

    return body


def property_of(target: Target, **strategies: Any) -> Property:
    """That a call is what the oracle expects, of an input `value`."""
    return _property(target.name, _agrees(target), strategies)


def traffic_property() -> Property:
    """That requests say in traffic what they say alone, of a `run`."""

    def body(trial: Trial, run: traffic.Run) -> None:
        message = traffic.differs(run, trial.keep)
        trial.kept_compared(len(run.requests))
        trial.holds(not message, message, place="output")

    return _property("outputs", body)


def by_types(search: Search) -> None:
    """Hypothesis's own loop for each call, with 100 examples of a strategy derived from types, round after round."""
    for number in itertools.count():
        for target in TARGETS:
            tested = search.begin(property_of(target, value=types.strategy_of(target.input)))
            chosen = settings(
                max_examples=LAUNCHES if target.launches else EXAMPLES,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                report_multiple_bugs=False,
            )
            tested.run(search.bench, chosen, search.seed + 1000 * number)


def by_uniform(search: Search) -> None:
    """Uniform random inputs, so many of each call in turn."""
    drawn = random.Random(search.seed)
    for target in itertools.cycle(TARGETS):
        tested = search.begin(property_of(target))
        for _ in range(LAUNCHES if target.launches else EXAMPLES):
            tested.example(search.bench, value=uniform.DRAWN[target.input](drawn))


def by_traffic(search: Search) -> None:
    """Random timed traffic, one run after another."""
    drawn, tested = random.Random(search.seed), search.begin(traffic_property())
    while True:
        tested.example(search.bench, run=traffic.drawn(drawn))


SEARCHES: dict[str, Callable[[Search], None]] = {
    "types": by_types,
    "uniform": by_uniform,
    "traffic": by_traffic,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hunt.ways.search", description=__doc__)
    parser.add_argument("--by", choices=SEARCHES, required=True)
    parser.add_argument("--subject", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--limit", type=float, required=True, help="CPU seconds")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    given = parser.parse_args()
    triton_mode.prepare("cpu")
    search = Search(given.subject, given.seed, given.limit, given.out)
    try:
        SEARCHES[given.by](search)
    except (OutOfTime, Falsified):
        search.write("ended.json")


if __name__ == "__main__":
    main()
