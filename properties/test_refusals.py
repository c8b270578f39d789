"""Bad input of every function: a `ValueError` names the argument, and nothing is written."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from properties.strategies.refusals import BAD_INPUTS, BadInput
from statecheck.case.values import Call
from statecheck.execution.example import Example, ExecutionContext
from statecheck.execution.registry import PROPERTIES, launches, prop, written_examples

FUNCTIONS = tuple(sorted({bad.call.function for bad in BAD_INPUTS}))


def tried(bad: BadInput, context: ExecutionContext) -> bool:
    """Whether the context's subject can be handed the input. Plain functions refuse numbers and lists alone."""
    subject, function = context.subject, bad.call.function
    plain = not bad.form and not launches(function) and function not in subject.supplied
    return bad.device in (None, context.port.device) and (plain or not subject.supplied)


@prop("refusals/bad-input", "refusal", *FUNCTIONS, any_of=True, bad=st.sampled_from(BAD_INPUTS))
def test_bad_input_is_refused_by_name_before_anything_is_written(trial: Example, bad: BadInput) -> None:
    """A `ValueError` names the argument, the value and the rule; no memory and no dict has changed."""
    offered = trial.offered(*FUNCTIONS)
    rows = [row for row in BAD_INPUTS if row.call.function in offered and tried(row, trial.context)]
    if not any(row is bad for row in rows):
        bad = rows[BAD_INPUTS.index(bad) % len(rows)]
    *before, last = bad.steps
    if any(isinstance(step, Call) for step in before):
        trial.agrees(*before)
        trial.refuses(last)
    else:
        trial.refuses(*bad.steps)


@dataclass(frozen=True)
class BadInputs:
    """All rows of the table with one function."""

    rows: tuple[BadInput, ...]

    @property
    def call(self) -> Call:
        return self.rows[0].call


BY_FUNCTION = tuple(
    BadInputs(tuple(bad for bad in BAD_INPUTS if bad.call.function == function)) for function in FUNCTIONS
)


@written_examples("refusals/bad-input", "inputs", BY_FUNCTION, lambda inputs: str(inputs.call.function))
def test_each_bad_input_is_refused(trial: ExecutionContext, inputs: BadInputs) -> None:
    refusal = PROPERTIES["bad_input_is_refused_by_name_before_anything_is_written"]
    for bad in inputs.rows:
        if tried(bad, trial):
            refusal.example(trial, bad=bad)
