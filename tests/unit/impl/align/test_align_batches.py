"""Batches of align mode that a few random examples seldom have: dozens of requests that move, and every flaw at each place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import pytest

from properties.strategies.align.batches import OUT, BatchLayout
from properties.strategies.align.batches_after_forward import BatchAfterForward
from properties.strategies.align.batches_before_forward import BatchBeforeForward
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.requests import FLAWS, RequestAfterStep, RequestBeforeStep
from properties.strategies.align.setup import Setup
from properties.strategies.refusals import CHANNELS_FIRST, SETUP
from statecheck.case.compare import outcome_difference
from statecheck.case.values import Attribute, Call, Name, Step
from statecheck.execution.executors.in_process import InProcess
from statecheck.execution.executors.rules import RulesExecutor
from subjects import load


def by_channel(shape: tuple[int, int], dtype: str) -> Setup:
    conv = Kept("conv", shape, dtype)
    return replace(CHANNELS_FIRST, groups=(Group((conv, Kept("temporal", (2, 2)))),))


AFTER = (
    RequestAfterStep(3, 3, 2, 3),
    RequestAfterStep(10, 1),
    RequestAfterStep(6, 3, 2, 2),
    RequestAfterStep(0, 4),
    RequestAfterStep(2, 3, 2, 3),
    RequestAfterStep(5, 3, 2, 3),
    RequestAfterStep(1, 3, 2, 2),
)
BEFORE = (
    RequestBeforeStep(3, 4, 2),
    RequestBeforeStep(10, 1),
    RequestBeforeStep(3, 12, 2),
    RequestBeforeStep(4, 4),
    RequestBeforeStep(0, 5),
    RequestBeforeStep(7, 2, 3),
)
WIDE = replace(SETUP, groups=(Group((Kept("conv", (5, 40)), Kept("temporal", (6, 50)))),))
ALONE = replace(SETUP, groups=(Group((Kept("temporal", (4, 2)),)),), kinds=("temporal",))
PAIR = replace(SETUP, groups=(*SETUP.groups, replace(SETUP.groups[0], padding=7)))
OTHERS = {
    "channels of two bytes": by_channel((40, 5), "bfloat16"),
    "channels of four bytes": by_channel((20, 5), "float32"),
    "channels of eight bytes": by_channel((20, 5), "float64"),
    "many rows": replace(SETUP, groups=(Group((Kept("conv", (17, 40)), Kept("temporal", (2, 2)))),)),
    "two distances between blocks": PAIR,
}
NO_DRAFTS = {
    "a row": replace(SETUP, groups=(Group((Kept("conv", (1, 6)), Kept("temporal", (2, 2)))),), num_spec=0),
    "channels of one element": replace(by_channel((6, 1), "uint8"), num_spec=0),
}
SETUPS = {"rows first": SETUP, "channels first": CHANNELS_FIRST, "several tiles": WIDE}
ROWS = (32, 33, 64, 65, 97)


def batches() -> Iterator[tuple[str, BatchAfterForward | BatchBeforeForward]]:
    for name, setup in SETUPS.items():
        for rows in ROWS if setup is SETUP else (33, 65):
            yield f"{rows} rows, {name}", BatchAfterForward(setup, tuple(islice(cycle(AFTER), rows)))
            yield f"{rows} rows, {name}", BatchBeforeForward(setup, tuple(islice(cycle(BEFORE), rows)))
        yield f"behind idle rows, {name}", BatchAfterForward(setup, (RequestAfterStep(1, 1),) * 32 + AFTER)
        yield f"behind idle rows, {name}", BatchBeforeForward(setup, (RequestBeforeStep(1, 1),) * 32 + BEFORE)
        for flaw in FLAWS[1:]:
            for place in range(len(AFTER)):
                flawed = [replace(one, flaw=flaw if at == place else "") for at, one in enumerate(AFTER)]
                yield f"{flaw} of request {place}, {name}", BatchAfterForward(setup, tuple(flawed))
                starting = [replace(one, flaw=flaw if at == place else "") for at, one in enumerate(BEFORE)]
                yield f"{flaw} of request {place}, {name}", BatchBeforeForward(setup, tuple(starting))

    late = replace(AFTER[-1], flaw="no source column")
    yield (
        "no source column behind idle rows",
        BatchAfterForward(SETUP, (RequestAfterStep(1, 1),) * 32 + (late,)),
    )
    for name, setup in OTHERS.items():
        yield f"some rows, {name}", BatchAfterForward(setup, AFTER)
        yield f"some rows, {name}", BatchBeforeForward(setup, BEFORE)
    for layout in (BatchLayout(order=1, slots=2, spare=2), BatchLayout(ahead=2, slots=3, skipped=(1,))):
        yield str(layout), BatchAfterForward(PAIR, AFTER, layout)
        yield str(layout), BatchBeforeForward(PAIR, BEFORE, layout)
    for name, setup in NO_DRAFTS.items():
        yield (
            f"some rows, {name}",
            BatchAfterForward(
                setup,
                (
                    RequestAfterStep(10, 1),
                    RequestAfterStep(0, 4),
                    RequestAfterStep(3, 1),
                    RequestAfterStep(2, 7),
                ),
            ),
        )
        yield (
            f"some rows, {name}",
            BatchBeforeForward(
                setup,
                (
                    RequestBeforeStep(10, 1),
                    RequestBeforeStep(4, 4),
                    RequestBeforeStep(0, 5),
                    RequestBeforeStep(8, 1),
                ),
            ),
        )
    for one in AFTER:
        yield f"{one} alone", BatchAfterForward(ALONE, (one,))
    for many in BEFORE:
        yield f"{many} alone", BatchBeforeForward(ALONE, (many,))
    for tile in (1, 4, 8):
        yield f"programs of {tile} rows", BatchBeforeForward(SETUP, BEFORE * 3, tile=tile)


def calls(batch: BatchAfterForward | BatchBeforeForward) -> Iterator[tuple[str, Sequence[Step]]]:
    """Each way to ask for the copies of a batch: by row, by slot, and as the kernels are documented."""
    if isinstance(batch, BatchAfterForward):
        yield "by row", batch.rowwise()
        # In releases the kernel only stores counts that change, into a copy of all; that of `impl` stores each.
        launched = batch.launched()
        seen = (*launched.observes, "counts", OUT)
        yield "kernel", [*batch.rowwise()[:-1], replace(launched, observes=seen)]
    else:
        yield "decided", [*batch.advance(), batch.precopy()]
        yield "kernel", [*batch.slotwise()[:-1], batch.launched()]
    yield "by slot", batch.slotwise()


CASES: dict[str, tuple[BatchAfterForward | BatchBeforeForward, Callable[[], Sequence[Step]]]] = {}
for NAME, BATCH in batches():
    for HOW, STEPS in calls(BATCH):
        # As documented, a launch does not say how wide the table is.
        if HOW == "kernel" and "short row" in NAME:
            continue
        CASES[f"{type(BATCH).__name__}, {NAME}, {HOW}"] = BATCH, lambda steps=STEPS: steps  # type: ignore[misc]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_copied_by_the_rules_and_leaves_no_ticket(name: str) -> None:
    batch, steps = CASES[name]
    port, rules = InProcess(load("impl"), "cpu"), RulesExecutor()
    port.begin()
    rules.begin()
    actual: list[Any] = []
    for step in [*batch.prepared(), *steps()]:
        outcome = port.execute(step)
        rules.execute(step)
        actual += [outcome] if isinstance(step, Call) else []
    for expected, found in zip(rules.expected, actual, strict=True):
        assert outcome_difference(expected, found, places=False) is None, name
    counters = port.materialise(Attribute(Name("ctx"), "counters"))
    assert not counters.any()
