"""What a property's body holds in its hand: run steps on the subject, compare with the rules, or state a condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from oracle.profile import Profile
from statecheck.case import Case, Failure
from statecheck.case.compare import Difference, brief, outcome_difference, parts_compared, parts_of
from statecheck.case.failure import (
    WrongBytes,
    exception_of,
    failure_of,
    fatal_among,
    kind_of_exception,
    place_of_fatal,
    raised_instead,
    rule_of_fatal,
    stated,
)
from statecheck.case.form import form_difference
from statecheck.case.timeline import Timeline
from statecheck.case.unchecked import unchecked
from statecheck.case.values import Call, Expected, Outcome, Raised, Refusal, Returned, Step, Value
from statecheck.execution.counts import Counts
from statecheck.execution.domain import is_lacked, left_out, not_offered
from statecheck.execution.earlier_examples import EarlierExamples
from statecheck.execution.port import Port
from statecheck.execution.run import Run, rules_of
from statecheck.expectations.symbols import require_rule
from statecheck.kernels import coverage
from statecheck.kernels.orders.schedule import REORDERED
from statecheck.subject import KnownDeviation, Subject
from statecheck.text import visible

if TYPE_CHECKING:
    from statecheck.execution.registry import Property

REFUSAL = "refusal"
"""The kind of the properties about inputs that no document allows."""
ORDER_FREE = "order-free"
"""The kind of the properties about orders of Triton programs."""
_CANNOT_READ = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What Python raises where a result is not what the code that takes it apart was written for."""
WATCHED = frozenset({ORDER_FREE, "red zone"})
"""Kinds of properties that have to watch single accesses of launches, or to choose their order."""
_NO_ORDER = "no launch of several programs, which could run in another order"

__all__ = ["Bench", "Falsified", "KnownFailure", "OutsideDomain", "Tally", "Trial", "spell"]


class KnownFailure(Exception):
    """The subject broke a property as it declares; the example has shown what it can and ends here."""


class OutsideDomain(KnownFailure):
    """The example came to an input that the subject's contract leaves out, or asked for what the subject does not offer."""


class Falsified(AssertionError):
    """The subject broke a property; `case` is the input that shows it, `origin` what a machine can make it smaller by."""

    def __init__(self, case: Case, origin: object = None) -> None:
        super().__init__(visible(case.message))
        self.case = case
        self.origin = origin


@dataclass
class Tally:
    """Counts of what state machines went through: scenarios, steps, and in how many scenarios each moment came up."""

    scenarios: int = 0
    steps: int = 0
    marks: Counter[str] = field(default_factory=Counter)

    def note(self, steps: int, marks: Iterable[str]) -> None:
        self.scenarios += 1
        self.steps += steps
        self.marks.update(marks)

    def add(self, other: Tally) -> None:
        self.scenarios += other.scenarios
        self.steps += other.steps
        self.marks.update(other.marks)


@dataclass(repr=False)
class Bench:
    """Where examples run: a subject behind a port, and what is counted on the way.

    `on_example`, `on_falsified` and `on_error` let a campaign watch: the first is called when an example begins, and may end
    the search; the second sees every failing example, shrunk or not, and the third every example whose property raised, although
    each outcome is what the rules expect. A failing example that `passes_by` names is known already, and ends as one that passes. `known_by` stands in for what the subject declares.
    """

    subject: Subject
    port: Port
    seed: int | None = None
    counts: Counts = field(default_factory=Counts)
    known_failures: set[KnownDeviation] = field(default_factory=set)
    on_example: Callable[[], None] = lambda: None
    on_falsified: Callable[[Case], None] = lambda case: None
    on_error: Callable[[Case, Exception], None] = lambda case, error: None
    passes_by: Callable[[Case], bool] = lambda case: False
    known_by: Callable[[Case], KnownDeviation | None] | None = None
    tally: Tally = field(default_factory=Tally)
    earlier: EarlierExamples = field(default_factory=EarlierExamples)

    @property
    def examples(self) -> int:
        return self.counts.examples

    def __repr__(self) -> str:
        return f"<{self.subject.name} on {self.port.device}>"

    def begin(self, tested: Property) -> Trial:
        self.on_example()
        self.counts.examples += 1
        self.port.begin()
        return Trial(self, tested)


@dataclass
class Trial:
    """One example of one property."""

    bench: Bench
    tested: Property

    def __post_init__(self) -> None:
        self._run = Run(self.bench.port, rules_of(self.profile))
        self.bench.earlier.begin(self._run.steps)
        self.is_compared = False
        self._read: list[int] = []
        """Numbers of the calls whose results were handed to the property."""
        self._looked_at = 0
        self._has_evidence = False
        self._reordered_before = REORDERED.launches
        self._interpreted_before = coverage.interpreted()

    @property
    def profile(self) -> Profile:
        """Of the subject's release: its rules, where they are not those of the documents."""
        return self.bench.subject.profile

    @property
    def inside(self) -> str:
        """The module whose functions stand in the subject's engine, "" for none."""
        return self.bench.subject.inside

    def compared(self, parts: int) -> None:
        """The property compared so many rows, fields or bytes of what functions of the subject returned."""
        self.bench.counts.parts += parts
        if parts and not self.is_compared and self._has_its_subject_matter():
            self.is_compared = True
            self.bench.counts.compared += 1

    def _has_its_subject_matter(self) -> bool:
        """Nothing is said about orders where programs did not run in another one."""
        return self.tested.kind != ORDER_FREE or REORDERED.launches > self._reordered_before

    def end(self) -> None:
        """The property's body has come to its end, with nothing wrong."""
        if self.is_compared:
            return
        if not self._has_its_subject_matter():
            self.bench.counts.no_evidence[_NO_ORDER] += 1
        elif self._run.actual and not any(one.by_subject for one in self._run.actual):
            self.bench.counts.no_evidence[f"no function of {self.bench.subject.name} was called"] += 1

    def offered(self, *functions: str) -> tuple[str, ...]:
        """Those of the functions that the subject has; all of them where the rules are recorded without a subject."""
        return tuple(one for one in functions if self.bench.subject.has(one)) or functions

    def keep(self, step: Step) -> Outcome | None:
        """Execute a step, and ask the rules what they expect of it only if the example turns out to be a case.

        For long examples that state conditions of their own, see `finds`.
        """
        outcome = self._run.take_unasked(step)
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
        origin: object = None,
        wrong_bytes: WrongBytes | None = None,
    ) -> NoReturn:
        """End the example with what is wrong after the steps that were kept, a picture of them, and the wrong bytes.

        Raises:
            Falsified: always, but
            KnownFailure: the subject declares it.
        """
        self._run.settle()
        self._ends(
            replace(self._case(self._by_cause(failure)), timeline=timeline, wrong_bytes=wrong_bytes), origin
        )

    def run(self, *steps: Step) -> Outcome:
        """Execute `steps` on the subject; the outcome of the last call among them."""
        if self.bench.subject.refuses and not self.bench.subject.outside:
            for taken in self._run.take_together(steps):
                self._require_offered(taken.outcome)
        else:
            for step in steps:
                self._run_inside(step)
        return self._run.actual[-1]

    def _run_inside(self, step: Step) -> None:
        """Execute a step, unless it is outside of the contract: the subject may do anything there."""
        asked = self._run.asked(step)
        if asked is not None:
            reason = left_out(self.bench.subject, asked.call, asked.expected)
            if reason is not None:
                counts = self.bench.counts
                lacked = is_lacked(self.bench.subject, asked.call)
                self._leave(counts.not_offered if lacked else counts.outside, reason)
        taken = self._run.take(step, asked)
        self._require_offered(taken.outcome if taken is not None else None)

    def _require_offered(self, outcome: Outcome | None) -> None:
        reason = not_offered(outcome) or self._unwatched()
        if reason is not None:
            self._leave(self.bench.counts.not_offered, reason)

    def _unwatched(self) -> str | None:
        """Why a property that is about single accesses says nothing about the launches of this example; None if it does."""
        if self.tested.kind not in WATCHED:
            return None
        return coverage.unwatched(coverage.interpreted() - self._interpreted_before) or None

    def _leave(self, counted: Counter[str], reason: str) -> NoReturn:
        if not self.is_compared:
            counted[reason] += 1
        raise OutsideDomain(reason)

    def agrees(self, *steps: Step, rule: Callable[..., object] | None = None) -> Outcome:
        """Execute `steps` and hold the outcome of each call against the rules; the outcome of the last call among them.

        Args:
            rule: the oracle's function that is asked about the last call.

        Raises:
            ValueError: another rule is asked.
        """
        before = len(self._run.actual)
        last = self.run(*steps)
        if rule is not None:
            require_rule(self._run.calls[-1], rule)
        for number in range(before, len(self._run.actual)):
            self._compare(number)
        return last

    def refuses(self, *steps: Step) -> None:
        """As `agrees`, for calls that the rules refuse, every one of them."""
        before = len(self._run.expected)
        self.agrees(*steps)
        legal = [one for one in self._run.expected[before:] if not isinstance(one, Refusal)]
        assert not legal, f"the rules accept {self._run.steps}, but the property is about refused input"

    def agrees_without_waiting(self, *steps: Step, rule: Callable[..., object] | None = None) -> None:
        """As `agrees`, and then once more while waiting for the device is an error.

        The first time loads kernels, which may wait once in a process; it is every other time that counts.
        """
        self.agrees(*steps, rule=rule)
        with self.bench.port.waiting_refused():
            self.agrees(*steps, rule=rule)

    def _compare(self, number: int) -> None:
        expected, actual = self._run.expected[number], self._run.actual[number]
        if self._is_evidence(expected, actual):
            self.compared(parts_compared(expected, actual))
        found = outcome_difference(expected, actual, places=self.bench.port.device != "cpu")
        if found is not None:
            self._differs(number, found)
        function = self._run.calls[number].function
        self.bench.counts.unchecked.update(f"{function}: {place}" for place in unchecked(expected, actual))

    def _differs(self, number: int, found: Difference) -> NoReturn:
        expected, actual, call = self._run.expected[number], self._run.actual[number], self._run.calls[number]
        self._fails(
            failure_of(found, expected, actual, function=call.function, call=number, shown=self._shown(call))
        )

    def _is_evidence(self, expected: Expected | None, actual: Outcome) -> bool:
        """Whether the outcome is the subject's own, and of a kind that the property is about."""
        refused = isinstance(expected, Refusal) and isinstance(actual, Raised)
        return actual.by_subject and (not refused or self.tested.kind == REFUSAL)

    def _has_evidence_so_far(self) -> bool:
        """Whether a function of the subject has returned something that a condition can be about."""
        actual, expected = self._run.actual, self._run.expected
        while not self._has_evidence and self._looked_at < len(actual):
            number, self._looked_at = self._looked_at, self._looked_at + 1
            evident = self._is_evidence(expected[number], actual[number])
            self._has_evidence = evident and parts_of(actual[number]) > 0
        return self._has_evidence

    def returns(self, *steps: Step) -> Value:
        """Execute `steps`; the value that the last call returned, without comparing it. A call must not raise."""
        return self._returned(*steps).value

    def leaves(self, *steps: Step) -> dict[str, Value]:
        """Execute `steps`; what the last call, which must not raise, leaves in all that it observes, without comparing it."""
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
        for number in range(len(self._run.actual)):
            self._compare(number)
        if self._run.actual:
            self.bench.on_error(self._case(None), error)

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
            number, about = self._behind_condition()
            call = self._run.calls[number]
            shown = "; ".join(self._shown(self._run.calls[one]) for one in about or (number,))
            self._fails(
                stated(
                    observed,
                    expected,
                    place=place,
                    function=call.function,
                    call=number,
                    shown=shown,
                    about=about,
                )
            )

    def _behind_condition(self) -> tuple[int, tuple[int, ...]]:
        """The last call with a wrong outcome; where each alone is right, the last call, and all whose results were read."""
        run, last = self._run, len(self._run.calls) - 1
        places = self.bench.port.device != "cpu"
        for number in range(last, -1, -1):
            if outcome_difference(run.expected[number], run.actual[number], places=places) is not None:
                return number, ()
        return last, tuple(self._read) or (last,)

    def _shown(self, call: Call) -> str:
        """The call as one would write it down, by the name that the subject's author knows."""
        return spell(call, self.bench.subject.own_name(call.function))

    def _fails(self, failure: Failure) -> NoReturn:
        """End the example with a failure."""
        self._run.settle()
        self._ends(self._case(self._by_cause(failure)))

    def _by_cause(self, failure: Failure) -> Failure:
        """Where an earlier call ended in a fault, or in a finding of the sanitizer, that is what the failure is about."""
        number = fatal_among(self._run.actual)
        if number is None:
            return failure
        raised, function = self._run.actual[number], self._run.calls[number].function
        assert isinstance(raised, Raised)
        kind = kind_of_exception(raised)
        if failure.call == number and failure.kind == kind:
            return failure
        return replace(
            failure,
            kind=kind,
            exception=exception_of(raised),
            function=function,
            call=number,
            place=place_of_fatal(raised),
            rule=rule_of_fatal(function, raised),
        )

    def _ends(self, case: Case, origin: object = None) -> NoReturn:
        known = (self.bench.known_by or self.bench.subject.known)(case)
        if known is not None:
            self.bench.known_failures.add(known)
            raise KnownFailure
        if self.bench.passes_by(case):
            raise KnownFailure
        self.bench.earlier.note_failure()
        self.bench.on_falsified(case)
        raise Falsified(case, origin)

    @property
    def begun(self) -> tuple[Step, ...]:
        """The steps that were executed or are being executed."""
        return tuple(self._run.steps)

    def _case(self, failure: Failure | None) -> Case:
        return Case(
            property_name=self.tested.name,
            sentence=self.tested.sentence,
            subject=self.bench.subject.name,
            steps=tuple(self._run.steps),
            expected=tuple(self._run.expected),
            actual=tuple(self._run.actual),
            failure=failure,
            device=self.bench.port.device,
            seed=self.bench.seed,
            property_id=self.tested.id,
        )


def spell(call: Call, name: str = "") -> str:
    """The call as one would write it down; `name`: of the function, where it is not the documents'."""
    arguments = ", ".join(f"{name}={brief(value)}" for name, value in call.named.items())
    return f"{name or call.function}({arguments})"
