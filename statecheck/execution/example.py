"""What a property's body holds in its hand: run steps on the subject, compare with the rules, or state a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from statecheck.case import Case
from statecheck.case.compare import Difference, outcome_difference
from statecheck.case.failure import raised_instead, stated
from statecheck.case.form import form_difference
from statecheck.case.values import Outcome, Raised, Refusal, Returned, Step, Value
from statecheck.execution.counts import Counts, parts_of
from statecheck.execution.earlier_examples import EarlierExamples
from statecheck.execution.executors import Executor
from statecheck.execution.running import (
    ORDER_FREE,
    REFUSAL,
    WATCHED,
    Falsified,
    KnownFailure,
    OutsideDomain,
    RunningExample,
    spell,
)
from statecheck.subject import KnownDeviation, Subject

if TYPE_CHECKING:
    from statecheck.execution.registry import Property

_CANNOT_READ = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What Python raises where a result is not what the code that takes it apart was written for."""

__all__ = [
    "ORDER_FREE",
    "REFUSAL",
    "WATCHED",
    "Example",
    "ExecutionContext",
    "Falsified",
    "KnownFailure",
    "OutsideDomain",
    "spell",
]


@dataclass(repr=False)
class ExecutionContext:
    """Where examples run: a subject behind a port, and what is counted on the way.

    A campaign watches through callbacks. `on_example` is called when an example begins. `on_example_end` is called when an example has
    ended without a failure, except for state machines. Both may end the search. `on_falsified` gets every failing example, shrunk or
    not. `on_error` gets every example whose property raised, although
    each outcome is what the rules expect. A failing example that `passes_by` names is known already, and ends as one that passes. `known_by` stands in for what the subject declares.
    """

    subject: Subject
    port: Executor
    seed: int | None = None
    counts: Counts = field(default_factory=Counts)
    known_failures: set[KnownDeviation] = field(default_factory=set)
    on_example: Callable[[], None] = lambda: None
    on_example_end: Callable[[], None] = lambda: None
    on_falsified: Callable[[Case], None] = lambda case: None
    on_error: Callable[[Case, Exception], None] = lambda case, error: None
    passes_by: Callable[[Case], bool] = lambda case: False
    known_by: Callable[[Case], KnownDeviation | None] | None = None
    earlier: EarlierExamples = field(default_factory=EarlierExamples)
    configuration: str = ""
    """The only configuration of the subject that examples are about, such as a model of a library; "": examples choose."""

    @property
    def examples(self) -> int:
        return self.counts.examples

    def __repr__(self) -> str:
        return f"<{self.subject.name} on {self.port.device}>"

    def begin(self, tested: Property) -> Example:
        self.on_example()
        self.counts.examples += 1
        self.port.begin()
        return Example(self, tested)


class Example(RunningExample):
    """One example of one property."""

    def agrees(self, *steps: Step) -> Outcome:
        """Execute `steps` and hold the outcome of each call against the rules; the outcome of the last call among them."""
        before = len(self._run.actual)
        last = self.run(*steps)
        for number in range(before, len(self._run.actual)):
            self._compare(number)
        return last

    def refuses(self, *steps: Step) -> None:
        """As `agrees`, for calls that the rules refuse, every one of them."""
        before = len(self._run.expected)
        self.agrees(*steps)
        legal = [one for one in self._run.expected[before:] if not isinstance(one, Refusal)]
        assert not legal, f"the rules accept {self._run.steps}, but the property is about refused input"

    def agrees_without_waiting(self, *steps: Step) -> None:
        """As `agrees`, and then once more while waiting for the device is an error.

        The first time loads kernels, which may wait once in a process; it is every other time that counts.
        """
        self.agrees(*steps)
        with self.context.port.waiting_refused():
            self.agrees(*steps)

    def _has_evidence_so_far(self) -> bool:
        """Whether a function of the subject has returned something that a condition can be about."""
        actual, expected = self._run.actual, self._run.expected
        while not self._has_evidence and self._looked_at < len(actual):
            number, self._looked_at = self._looked_at, self._looked_at + 1
            evident = self._is_evidence(expected[number], actual[number])
            self._has_evidence = evident and parts_of(actual[number]) > 0
        return self._has_evidence

    def returns(self, *steps: Step) -> Value:
        """Execute `steps`; the value that the last call returned. A call must not raise.

        Outcomes are held against the rules when the example ends, so that a condition on them speaks first.
        """
        return self._returned(*steps).value

    def leaves(self, *steps: Step) -> dict[str, Value]:
        """Execute `steps`; what the last call, which must not raise, leaves in all that it observes. As `returns`, it is compared at the end."""
        return dict(self._returned(*steps).after)

    def _returned(self, *steps: Step) -> Returned:
        outcome = self.run(*steps)
        if isinstance(outcome, Raised):
            self.compared(int(outcome.by_subject))
            last = len(self._run.calls) - 1
            call = self._run.calls[last]
            self._fails(raised_instead(outcome, function=call.function, call=last, shown=self._shown(call)))
        self._require_form(outcome)
        self._read.append(len(self._run.actual) - 1)
        return outcome

    def _require_form(self, outcome: Returned) -> None:
        """The result of the last call can be taken apart as the rules' own."""
        expected = self._run.expected[-1]
        if isinstance(expected, Refusal):
            return
        known = dict(expected.after)
        pairs = [("result", expected.value, outcome.value)]
        pairs += [(name, known[name], found) for name, found in outcome.after if name in known]
        for place, wanted, found in pairs:
            difference = form_difference(wanted, found, place)
            if difference is not None:
                self.compared(int(outcome.by_subject))
                self._differs(len(self._run.actual) - 1, difference)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While the property's own code takes results apart. Where it cannot, the first wrong outcome is the failure.

        Raises:
            Falsified: the code raised, and an outcome is not what the rules expect.
            KnownFailure: the subject declares that.
            Exception: what the code raised, where each outcome is as expected: the property is wrong, or the harness.
        """
        try:
            yield
        except _CANNOT_READ as raised:
            if isinstance(raised, Falsified):
                raise
            error: Exception = raised
        else:
            return
        self._cannot_read(error)
        raise error

    def _cannot_read(self, error: Exception) -> None:
        self._run.settle()
        self.compare_rest()
        if self._run.actual:
            self.context.on_error(self._case(None), error)

    def holds(self, condition: bool, observed: str, expected: str = "", *, place: str = "") -> None:
        """State a condition about the outcomes so far.

        Args:
            observed: what was seen, used where the condition is false, such as "cu[0] = 1".
            expected: what should be, such as "should be 0".
            place: what of the outcomes it is about, in words that hold for every input.

        Raises:
            Falsified: the condition is false and the subject does not declare that it may be.
            KnownFailure: it does declare it.
        """
        if self._has_evidence_so_far():
            self.compared(1)
        if not condition:
            self._run.settle()
            number, wrong = self._wrong_call()
            about = () if wrong is not None else tuple(self._read) or (number,)
            call = self._run.calls[number]
            failure = stated(
                observed,
                expected,
                place=place,
                function=call.function,
                call=number,
                shown="; ".join(self._shown(self._run.calls[one]) for one in about or (number,)),
                about=about,
            )
            # One defect makes this condition false for some inputs, and for others its result alone is wrong: it is one bucket.
            self._fails(
                failure if wrong is None else replace(failure, rule=self._failure(number, wrong).rule)
            )

    def _wrong_call(self) -> tuple[int, Difference | None]:
        """The last call with a wrong outcome, and what differs; the last call and None where each outcome alone is right."""
        run, last = self._run, len(self._run.calls) - 1
        places = self.context.port.device != "cpu"
        for number in range(last, -1, -1):
            wrong = outcome_difference(run.expected[number], run.actual[number], places=places)
            if wrong is not None:
                return number, wrong
        return last, None
