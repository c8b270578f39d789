"""Whole histories of requests in align mode: three ways of doing the same steps leave the same bytes."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import assume

from properties.strategies.align.batches import (
    PREPROCESS_KERNEL,
    RUN_FUSED_POSTPROCESS_ALIGN,
    RUN_FUSED_PRECOPY,
)
from properties.strategies.align.runner import BUFFERS, CLEANUP, POSTPROCESS_GPU, PREPROCESS, STAGE
from properties.strategies.align.sessions import (
    History,
    HistoryInRows,
    HistoryInSlots,
    HistoryRunner,
    histories,
    look,
)
from properties.strategies.align.setup import CONTEXT
from statecheck.case.values import Let, Value
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

CALLS_BY_ROW = (BUFFERS, PREPROCESS, STAGE, POSTPROCESS_GPU)
CALLS_BY_SLOT = (
    f"{CONTEXT}.create",
    f"{CONTEXT}.initialize_from_forward_context",
    RUN_FUSED_PRECOPY,
    RUN_FUSED_POSTPROCESS_ALIGN,
    PREPROCESS_KERNEL,
    "harness.launch",
)


def by_tables(history: History) -> HistoryRunner:
    return HistoryInRows(history, pointers=False)


def by_lists(history: History) -> HistoryRunner:
    assume(history.setup.layout == "SD")
    return HistoryInRows(history, pointers=True)


EVERY_STEP = (
    Configuration("v1-history/every-step", *CALLS_BY_ROW, history=histories(min_spec=0), runner=by_tables,
        reason="where requests are in rows"),
    Configuration("v2-history/every-step", *CALLS_BY_SLOT, history=histories(min_spec=0), runner=HistoryInSlots,
        reason="where requests are in slots"),
)  # fmt: skip
PROVENANCE = (
    Configuration("v1-history/provenance", *CALLS_BY_ROW, history=histories(), runner=by_tables,
        reason="where they are in rows, with block tables"),
    Configuration("v1-history/pointer-lists", *CALLS_BY_ROW, history=histories(), runner=by_lists,
        reason="where they are in rows, with lists of pointers"),
    Configuration("v2-history/provenance", *CALLS_BY_SLOT, history=histories(), runner=HistoryInSlots,
        reason="where they are in slots"),
)  # fmt: skip


@prop(EVERY_STEP, "byte-exact")
def every_step_is_the_rules(
    trial: Example, history: History, runner: Callable[[History], HistoryRunner]
) -> None:
    """Every call of every step does what the rules say."""
    take_through(trial, runner(history))


@prop(PROVENANCE, "provenance")
def states_are_of_exactly_the_tokens(
    trial: Example, history: History, runner: Callable[[History], HistoryRunner]
) -> None:
    """Requests read and publish the states of exactly their tokens."""
    watch(trial, runner(history))


@prop(
    "history/same-bytes",
    "metamorphic",
    *CALLS_BY_ROW,
    *CALLS_BY_SLOT,
    CLEANUP,
    history=histories(max_requests=2, max_decodes=2),
)
def test_history_same_bytes(trial: Example, history: History) -> None:
    """Rows slots and lists of pointers leave the same bytes.

    The same requests, the same forwards, the same accepted tokens: every runner ends with the same states.
    """
    take_through(trial, HistoryInRows(history, pointers=False))
    in_rows = pools(trial, history)
    take_through(trial, HistoryInSlots(history))
    trial.holds(
        pools(trial, history) == in_rows,
        "requests in slots leave other bytes than requests in rows",
        place="slots",
    )
    if history.setup.layout == "SD":
        take_through(trial, HistoryInRows(history, pointers=True))
        trial.holds(
            pools(trial, history) == in_rows, "lists of pointers leave other bytes than tables", place="lists"
        )


def take_through(trial: Example, runner: HistoryRunner) -> None:
    """Hold every call against the rules."""
    trial.agrees(*runner.begin())
    for number in range(len(runner.history.steps)):
        trial.agrees(*runner.before(number), *runner.after(number))


def watch(trial: Example, runner: HistoryRunner) -> None:
    """Look, without any rule about copies, at what every forward would read and at every block that becomes full."""
    history = runner.history
    trial.returns(*runner.begin())
    for number in range(len(history.steps)):
        left = trial.leaves(*runner.before(number))
        misread = history.misread(number, left, runner.counts(number, left))
        trial.holds(not misread, misread, place="read")
        misstored = history.misstored(number, trial.leaves(*runner.after(number)))
        trial.holds(not misstored, misstored, place="stored")


def pools(trial: Example, history: History) -> dict[str, Value]:
    return trial.leaves(Let("state_idx", {}), look(history))
