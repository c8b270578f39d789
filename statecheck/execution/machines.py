"""Properties of sequences: Hypothesis state machines whose every step is held against the rules."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

from statecheck.case.values import Step
from statecheck.execution.example import Example, ExecutionContext, KnownFailure
from statecheck.execution.private.hypothesis import run_machine, states_kept_once
from statecheck.execution.property import Property, discards_counted, put_at


class ExampleMachine(RuleBasedStateMachine):
    """A state machine whose scenario is one example of one property: its rules hold steps against the rules on `trial`.

    After a failure that the subject declares, the rest of the scenario says nothing any more.
    """

    steps: ClassVar[int] = 10
    """Rules in a scenario, at most."""

    def __init__(self, trial: Example) -> None:
        super().__init__()
        self.trial = trial
        self.known_failure = False

    def follow(self, **given: Any) -> None:
        """Let a scenario of these arguments happen, in place of a drawn one; its machine has them if there are enumerations of it."""
        raise NotImplementedError

    def teardown(self) -> None:
        """The scenario is over. Hypothesis has the machine in cycles of its own, and what these keep waits to be collected."""
        del self.trial

    def agrees(self, *steps: Step) -> None:
        if self.known_failure:
            return
        try:
            self.trial.agrees(*steps)
        except KnownFailure:
            self.known_failure = True


def no_body() -> None:
    """A machine has rules in place of a body."""


@dataclass(frozen=True)
class MachineProperty(Property):
    """A property that is checked after every step of a state machine's scenario."""

    machine: type[ExampleMachine] = ExampleMachine

    def example(self, context: ExecutionContext, **drawn: Any) -> None:
        """Run the scenario of these arguments; a failure that the subject declares is none."""
        with contextlib.suppress(KnownFailure), discards_counted(context):
            machine = self.machine(context.begin(self))
            try:
                machine.follow(**drawn)
            finally:
                machine.teardown()

    def examples(self, context: ExecutionContext, most: int | None = None) -> int:
        """Half as many as of other properties, since a scenario takes as long as many examples."""
        return max(1, super().examples(context, most) // 2)

    def test(self) -> Callable[..., None]:
        def test(trial: ExecutionContext) -> None:
            self.run(trial, settings(max_examples=self.examples(trial), **self.own_settings))

        put_at(test, *self.place)
        # pytest looks for names that begin with test_, as the name of a class does not.
        test.__name__ = f"test_{re.sub(r'[/-]', '_', self.id)}"
        test.__doc__, test.__module__ = self.sentence, self.module
        return test

    @property
    def place(self) -> tuple[str, int]:
        return inspect.getsourcefile(self.machine) or "", inspect.getsourcelines(self.machine)[1]

    @property
    def own_settings(self) -> dict[str, Any]:
        return {"stateful_step_count": self.machine.steps}

    def run(self, context: ExecutionContext, chosen: settings, seed: int | None = None) -> None:
        with nullcontext() if seed is None else states_kept_once():
            run_machine(lambda: self.machine(context.begin(self)), chosen, seed)
