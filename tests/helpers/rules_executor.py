"""A port on which the rules answer in a subject's place: what they expect is what comes out, as far as they say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from statecheck.case.values import Call, Expected, Outcome, Raised, Refusal, Step, Tensor
from statecheck.execution.run import Follower, rules_of
from statecheck.subject.profile import DOCUMENTS

NOTHING = Tensor("int32", (0,), ())
"""What is described of observed contents that the rules do not know."""
Around = Callable[[], AbstractContextManager[None]]


class RulesExecutor:
    """Executes nothing. `expected` are the answers in the example in hand.

    Args:
        around: is entered while the rules are asked.
    """

    device = "cpu"

    def __init__(self, around: Around = nullcontext) -> None:
        self._around = around
        self.begin()

    def begin(self) -> None:
        self.expected: list[Expected] = []
        self._rules = Follower(rules_of(DOCUMENTS))

    def execute(self, step: Step) -> Outcome | None:
        with self._around():
            asked = self._rules.resolved_call(step)
        self._rules.learn(step, asked)
        if asked is None:
            return None
        assert isinstance(step, Call)
        self.expected.append(asked.expected)
        return _outcome(asked.expected, step)

    def waiting_refused(self) -> AbstractContextManager[None]:
        return nullcontext()


def _outcome(expected: Expected, step: Call) -> Outcome:
    """The outcome of a subject that follows the rules."""
    known = dict(expected.after)
    after = tuple((name, known.get(name, NOTHING)) for name in step.observes)
    if isinstance(expected, Refusal):
        return Raised(expected.exception, f"{expected.argument} = ?, but should be another", after=after)
    return replace(expected, after=after)
