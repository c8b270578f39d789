"""One example while it runs: its steps are executed on the subject, what was compared is counted, and it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from oracle.profile import Profile
from statecheck.case import Case, Failure
from statecheck.case.compare import Difference, brief, outcome_difference
from statecheck.case.failure import WrongBytes, failure_of, fatal_among, with_cause
from statecheck.case.timeline import Timeline
from statecheck.case.unchecked import unchecked
from statecheck.case.values import Call, Expected, Outcome, Raised, Refusal, Step
from statecheck.execution.counts import parts_compared
from statecheck.execution.run import (
    Run,
    failed_operations,
    is_lacked,
    is_unverified,
    left_out,
    not_offered,
    operations_held,
    rules_of,
)
from statecheck.kernels import launch_counts
from statecheck.kernels.orders.schedule import REORDERED
from statecheck.subject.sequence_choices import SequenceChoices
from statecheck.util.text import visible

if TYPE_CHECKING:
    from statecheck.execution.example import ExecutionContext
    from statecheck.execution.registry import Property

ORDER_FREE = "order-free"
"""The kind of the properties about orders of Triton programs."""
REFUSAL = "refusal"
"""The kind of the properties about inputs that no document allows."""
WATCHED = frozenset({ORDER_FREE, "red zone"})
"""Kinds of properties that have to watch single accesses of launches, or to choose their order."""
_NO_ORDER = "no launch of several programs, which could run in another order"


class KnownFailure(Exception):
    """The subject broke a property as it declares; the example has shown what it can and ends here."""


class OutsideDomain(KnownFailure):
    """The example came to an input that the subject's contract leaves out, or asked for what the subject does not offer."""


class Falsified(AssertionError):
    """The subject broke a property; `case` is the input that shows it."""

    def __init__(self, case: Case) -> None:
        super().__init__(visible(case.message))
        self.case = case


@dataclass
class RunningExample:
    """An example of one property; `Example` is what the property's body holds of it."""

    context: ExecutionContext
    tested: Property

    def __post_init__(self) -> None:
        self._run = Run(self.context.port, rules_of(self.profile))
        self.context.earlier.begin(self._run.steps)
        self.is_compared = False
        self.configuration = self.context.configuration
        self._read: list[int] = []
        """Numbers of the calls whose results were handed to the property."""
        self._has_failed = False
        self._compared_calls: set[int] = set()
        """Numbers of the calls whose outcomes were held against the rules."""
        self._looked_at = 0
        self._has_evidence = False
        self._reordered_before = REORDERED.launches
        self._interpreted_before = launch_counts.interpreted()

    @property
    def profile(self) -> Profile:
        """Of the subject's release: its rules, where they are not those of the documents."""
        return self.context.subject.profile

    def model(self, number: int) -> str:
        """The model of a library of sequences that the example is about: the context's, or the one that a drawn number stands for."""
        self.configuration = self.context.configuration or self.sequences.model(number)
        return self.configuration

    @property
    def sequences(self) -> SequenceChoices:
        """What the library of sequences lets a scenario choose."""
        choices = self.context.subject.sequences
        assert choices is not None, "the property applies to libraries of sequences"
        return choices

    @property
    def inside(self) -> str:
        """The module whose functions stand in the subject's engine, "" for none."""
        return self.context.subject.inside

    def compared(self, parts: int) -> None:
        """The property compared so many rows, fields or bytes of what functions of the subject returned."""
        self.context.counts.parts += parts
        if parts and not self.is_compared and self._has_its_subject_matter():
            self.is_compared = True
            self.context.counts.compared += 1
            if self.configuration:
                self.context.counts.configurations[self.configuration] += 1

    def _has_its_subject_matter(self) -> bool:
        """Nothing is said about orders where programs did not run in another one."""
        return self.tested.kind != ORDER_FREE or REORDERED.launches > self._reordered_before

    def end(self) -> None:
        """The property's body has come to its end, and its own conditions hold: compare what is left.

        Raises:
            Falsified, KnownFailure: as `compare_rest`.
        """
        self.compare_rest()
        if self.is_compared:
            return
        if not self._has_its_subject_matter():
            self.context.counts.no_evidence[_NO_ORDER] += 1
        elif failed := self._failed_operation():
            self.context.counts.no_evidence[f"{self.configuration}: {failed} reported that it failed"] += 1
        elif self._run.actual and not any(one.by_subject for one in self._run.actual):
            self.context.counts.no_evidence[f"no function of {self.context.subject.name} was called"] += 1

    def compare_rest(self) -> None:
        """Hold against the rules each outcome that was not yet, but for what the subject does not offer: a property's own condition may be blind to a wrong one.

        Of steps that were kept, see `keep`, the rules were not asked, and are not here.

        Raises:
            Falsified: an outcome is not what the rules expect, and the subject does not declare it.
            KnownFailure: it does declare it.
        """
        # Behind a failure, other outcomes are mostly its consequences.
        for number in range(0 if self._has_failed else len(self._run.actual)):
            if number not in self._compared_calls and not_offered(self._run.actual[number]) is None:
                # No evidence for the property's sentence, which is about something else: its own conditions count.
                self._compare(number, counts=False)

    def _compare(self, number: int, *, counts: bool = True) -> None:
        self._compared_calls.add(number)
        expected, actual = self._run.expected[number], self._run.actual[number]
        if counts and self._is_evidence(expected, actual):
            self.compared(parts_compared(expected, actual))
        found = outcome_difference(expected, actual, places=self.context.port.device != "cpu")
        if found is not None:
            self._differs(number, found)
        function = self._run.calls[number].function
        self.context.counts.unchecked.update(f"{function}: {place}" for place in unchecked(expected, actual))

    def _differs(self, number: int, found: Difference) -> NoReturn:
        self._fails(self._failure(number, found))

    def _failure(self, number: int, found: Difference) -> Failure:
        expected, actual, call = self._run.expected[number], self._run.actual[number], self._run.calls[number]
        return failure_of(
            found, expected, actual, function=call.function, call=number, shown=self._shown(call)
        )

    def _failed_operation(self) -> str:
        """The first of the operations that the property is about that the library reports as failed; "" without any."""
        failed = failed_operations(self._run.actual, self._run.calls).values()
        return next((name for name in failed if name in self.tested.held), "")

    def offered(self, *functions: str) -> tuple[str, ...]:
        """Those of the functions that the subject has; all of them where the rules are recorded without a subject."""
        return tuple(one for one in functions if self.context.subject.has(one)) or functions

    def keep(self, step: Step) -> Outcome | None:
        """Execute a step, and ask the rules what they expect of it only if the example turns out to be a case.

        For long examples that state conditions of their own, see `finds`.
        """
        (outcome,) = self._run.take_unasked((step,))
        self._require_offered(outcome)
        self._has_evidence = self._has_evidence or (outcome is not None and outcome.by_subject)
        return outcome

    def kept_compared(self, rows: int) -> None:
        """As `compared`, of so many rows of a step of a long example that was executed by `keep`, if the subject took part."""
        self.compared(rows if self._has_evidence else 0)
        self._has_evidence = False

    def finds(
        self,
        failure: Failure,
        timeline: Timeline | None = None,
        wrong_bytes: WrongBytes | None = None,
    ) -> NoReturn:
        """End the example with what is wrong after the steps that were kept, a picture of them, and the wrong bytes.

        Raises:
            Falsified: always, but
            KnownFailure: the subject declares it.
        """
        self._run.settle()
        case = self._case(self._by_cause(failure))
        self._ends(replace(case, timeline=timeline, wrong_bytes=wrong_bytes))

    def run(self, *steps: Step) -> Outcome:
        """Execute `steps` on the subject; the outcome of the last call among them."""
        if self.context.subject.refuses and not self.context.subject.outside:
            self._run.take_unasked(steps)
            for taken in self._run.settle():
                self._require_offered(taken.outcome)
        else:
            for step in steps:
                self._run_inside(step)
        return self._run.actual[-1]

    def _run_inside(self, step: Step) -> None:
        """Execute a step, unless it is outside of the contract: the subject may do anything there."""
        asked = self._run.asked(step)
        if asked is not None:
            reason = left_out(self.context.subject, asked.call, asked.expected)
            if reason is not None:
                counts = self.context.counts
                lacked = is_lacked(self.context.subject, asked.call)
                self._leave(counts.not_offered if lacked else counts.outside, reason)
        taken = self._run.take(step, asked)
        self._require_offered(taken.outcome if taken is not None else None)

    def _require_offered(self, outcome: Outcome | None) -> None:
        reason = not_offered(outcome) or self._unwatched()
        if reason is not None:
            if is_unverified(outcome):
                self.context.counts.unverified[self.configuration] = reason
            self._leave(self.context.counts.not_offered, reason)

    def _unwatched(self) -> str | None:
        """Why a property that is about single accesses says nothing about the launches of this example; None if it does."""
        if self.tested.kind not in WATCHED:
            return None
        return launch_counts.unwatched(launch_counts.interpreted() - self._interpreted_before) or None

    def _leave(self, counted: Counter[str], reason: str) -> NoReturn:
        self.compare_rest()
        if not self.is_compared:
            counted[reason] += 1
        raise OutsideDomain(reason)

    def _is_evidence(self, expected: Expected | None, actual: Outcome) -> bool:
        """Whether the outcome is the subject's own, and of a kind that the property is about."""
        if not set(self.tested.held) <= operations_held(actual):
            return False
        refused = isinstance(expected, Refusal) and isinstance(actual, Raised)
        return actual.by_subject and (not refused or self.tested.kind == REFUSAL)

    def _shown(self, call: Call) -> str:
        """The call as one would write it down, by the name that the subject's author knows."""
        return spell(call, self.context.subject.own_name(call.function))

    def _fails(self, failure: Failure) -> NoReturn:
        """End the example with a failure."""
        self._run.settle()
        self._ends(self._case(self._by_cause(failure)))

    def _by_cause(self, failure: Failure) -> Failure:
        """Where an earlier call ended in a fault, or in a finding of the sanitizer, that is what the failure is about."""
        number = fatal_among(self._run.actual)
        if number is None:
            return failure
        raised = self._run.actual[number]
        assert isinstance(raised, Raised)
        return with_cause(failure, raised, function=self._run.calls[number].function, call=number)

    def _ends(self, case: Case) -> NoReturn:
        self._has_failed = True
        known = (self.context.known_by or self.context.subject.known)(case)
        if known is not None:
            self.context.known_failures.add(known)
            raise KnownFailure
        if self.context.passes_by(case):
            raise KnownFailure
        self.context.earlier.note_failure()
        self.context.on_falsified(case)
        raise Falsified(case)

    @property
    def begun(self) -> tuple[Step, ...]:
        """The steps that were executed or are being executed."""
        return tuple(self._run.steps)

    def _case(self, failure: Failure | None) -> Case:
        return Case(
            property_name=self.tested.name,
            sentence=self.tested.sentence,
            subject=self.context.subject.name,
            steps=tuple(self._run.steps),
            expected=tuple(self._run.expected),
            actual=tuple(self._run.actual),
            failure=failure,
            device=self.context.port.device,
            seed=self.context.seed,
            property_id=self.tested.id,
        )


def spell(call: Call, name: str = "") -> str:
    """The call as one would write it down; `name`: of the function, where it is not the documents'."""
    arguments = ", ".join(f"{name}={brief(value)}" for name, value in call.named.items())
    return f"{name or call.function}({arguments})"
