"""The examples of one property in the first pass of a campaign, on their own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

from statecheck.campaign.scheduler import FIRST_EXAMPLES, first_compared
from statecheck.case import Case
from statecheck.execution.example import ExecutionContext, Falsified, Observer
from statecheck.execution.property import Property
from statecheck.subject import KnownDeviation, Subject
from tests.helpers.hunts import hunting

KnownDefect = Callable[[Case], KnownDeviation | None]
_MOST_SECONDS = 2.0
"""CPU seconds of the examples of one seed."""


class _Enough(BaseException):
    """The first pass ends here. No `Exception`: it is nothing that the example shows."""


class _FirstPass(Observer):
    """Ends the search when enough is compared, and takes the time of the first failure."""

    def __init__(self, bench: ExecutionContext, enough: int, known_defect: KnownDefect) -> None:
        self._bench, self._enough, self._known_defect = bench, enough, known_defect
        self._began = time.process_time()
        self.is_over = False
        self.failed_after: float | None = None

    @property
    def seconds(self) -> float:
        return time.process_time() - self._began

    def example_begins(self) -> None:
        if self._bench.counts.compared >= self._enough or self.seconds > _MOST_SECONDS:
            self.is_over = True
            raise _Enough

    example_ended = example_begins

    def known_defect(self, subject: Subject, case: Case) -> KnownDeviation | None:  # noqa: ARG002
        return self._known_defect(case)

    def falsified(self, case: Case) -> None:  # noqa: ARG002
        if self.failed_after is None:
            self.failed_after = self.seconds


def first_examples(
    tested: Property, bench: ExecutionContext, seed: int, known_defect: KnownDefect, random: int = 1
) -> tuple[bool, float]:
    """Whether one of so many random examples fails, and their CPU seconds until then."""
    bench.counts.take()
    bench.observer = search = _FirstPass(bench, first_compared(tested, random), known_defect)
    try:
        with suppress(_Enough, Falsified), hunting(shrink=False):
            tested.explore(bench, seed=seed, max_examples=FIRST_EXAMPLES, simplest=False)
    except Exception as error:
        # A state machine that ends between two draws is taken for one that draws something else each time.
        if not search.is_over:
            print(f"{tested.id}: {type(error).__name__}", file=sys.stderr)
    failed_after = search.failed_after
    return failed_after is not None, search.seconds if failed_after is None else failed_after
