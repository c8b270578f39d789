"""The examples of one property in the first pass of a campaign, on their own."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from statecheck.campaign.schedule.passes import FIRST_EXAMPLES, first_compared
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.property import Property
from tests.helpers.hunts import hunting

_MOST_SECONDS = 2.0
"""CPU seconds of the examples of one seed."""


class _Enough(BaseException):
    """The first pass ends here. No `Exception`: it is nothing that the example shows."""


def first_examples(
    tested: Property, bench: ExecutionContext, seed: int, random: int = 1
) -> tuple[bool, float]:
    """Whether one of so many random examples fails, and their CPU seconds until then."""
    enough = first_compared(tested, random)
    began, failed, over = time.process_time(), list[float](), list[bool]()
    bench.counts.take()

    def end_if_enough() -> None:
        if bench.counts.compared >= enough or time.process_time() - began > _MOST_SECONDS:
            over.append(True)
            raise _Enough

    bench.on_example = bench.on_example_end = end_if_enough
    bench.on_falsified = lambda case: failed.append(time.process_time() - began)
    try:
        with suppress(_Enough, Falsified), hunting(shrink=False):
            tested.explore(bench, seed=seed, max_examples=FIRST_EXAMPLES, simplest=False)
    except Exception as error:
        # A state machine that ends between two draws is taken for one that draws something else each time.
        if not over:
            print(f"{tested.id}: {type(error).__name__}", file=sys.stderr)
    return bool(failed), failed[0] if failed else time.process_time() - began
