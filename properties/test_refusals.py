"""Bad input of every function: a `ValueError` names the argument, and nothing is written."""

from __future__ import annotations

from collections.abc import Sequence

from properties.strategies.refusals import BAD_INPUTS, BadInput, bad_inputs_of_one_example
from statecheck.case.values import Call
from statecheck.execution.example import Example, ExecutionContext
from statecheck.execution.registry import launches, prop

FUNCTIONS = tuple(sorted({bad.call.function for bad in BAD_INPUTS}))


def tried(bad: BadInput, context: ExecutionContext) -> bool:
    """Whether the context's subject can be handed the input. Plain functions refuse numbers and lists alone."""
    subject, function = context.subject, bad.call.function
    plain = not bad.form and not launches(function) and function not in subject.supplied
    return bad.device in (None, context.port.device) and (plain or not subject.supplied)


@prop(
    "refusals/bad-input",
    "refusal",
    *FUNCTIONS,
    any_of=True,
    written=[{"rows": tuple(bad for bad in BAD_INPUTS if bad.call.function == name)} for name in FUNCTIONS],
    rows=bad_inputs_of_one_example(),
)
def test_refusals_bad_input(trial: Example, rows: Sequence[BadInput]) -> None:
    """Bad input is refused by name before anything is written.

    A `ValueError` names the argument, the value and the rule; no memory and no dict has changed.
    """
    offered = trial.offered(*FUNCTIONS)
    refused = [bad for bad in BAD_INPUTS if bad.call.function in offered and tried(bad, trial.context)]
    for bad in rows if refused else ():
        # An input that this subject cannot be given is replaced by another one, if there is one: an example shall compare something.
        refused_input = (
            bad if any(other is bad for other in refused) else refused[BAD_INPUTS.index(bad) % len(refused)]
        )
        *before, last = refused_input.steps
        if any(isinstance(step, Call) for step in before):
            trial.agrees(*before)
            trial.refuses(last)
        else:
            trial.refuses(*refused_input.steps)
