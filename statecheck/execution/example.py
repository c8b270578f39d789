"""One example of a property: it runs steps on the subject, compares them with the rules, and states conditions.

A property's body gets an `Example`:

    def body(trial, x, y):
        trial.agrees(call("divide", x=x, y=y))                          # each outcome is what the rules expect
        result = trial.returns(call("cdiv", x=x, y=y))                  # a value for the property's own condition
        trial.holds(result >= x // y, f"cdiv = {result}", "should be rounded up")

An example ends in one of these ways: the body comes to its end and `end` compares what is left; `Falsified`, with the case;
`ExampleEnded`, where the subject declares the defect; `OutsideDomain`, where the subject's contract leaves the input out.
Each end is an event that the `Observer` of the `ExecutionContext` receives.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

from statecheck.case import Case, Failure
from statecheck.case.failure import (
    Difference,
    WrongBytes,
    call_text,
    failure_of,
    fatal_among,
    form_difference,
    outcome_difference,
    outcome_differences,
    parts_compared,
    parts_of,
    raised_instead,
    stated,
    unchecked,
    with_cause,
)
from statecheck.case.timeline import Timeline
from statecheck.case.values import Call, Expected, Outcome, Raised, Refusal, Returned, Step, Value
from statecheck.execution.executors import Executor
from statecheck.execution.run import (
    Run,
    failed_operations,
    is_lacked,
    is_unverified,
    left_out,
    not_offered,
    rules_of,
)
from statecheck.execution.verdict import Counts
from statecheck.kernels.orders import REORDERED
from statecheck.subject import KnownDeviation, Subject
from statecheck.subject.profile import Profile
from statecheck.subject.subject import OF_LIBRARY, SequenceChoices, is_engine
from statecheck.util.text import visible

Examples = tuple[tuple[Step, ...], ...]
_MOST, _LONGEST = 256, 200
"""Examples, and steps of one: what is kept has to stay small, and a longer one would take too long to run again."""


class EarlierExamples:
    """The last examples of a process, in order, and those that it had run when an example failed for the first time."""

    def __init__(self) -> None:
        self._lately: deque[Sequence[Step]] = deque(maxlen=_MOST)
        self._at_failure: Examples | None = None

    def begin(self, steps: Sequence[Step]) -> None:
        """An example begins, whose steps will be in `steps`."""
        if self._lately and len(self._lately[-1]) > _LONGEST:
            self._lately.pop()
        self._lately.append(steps)

    def note_failure(self) -> None:
        """The example in hand fails; others follow it that try to be smaller."""
        if self._at_failure is None:
            self._at_failure = self.lately

    def forget_failure(self) -> None:
        """What failed is dealt with."""
        self._at_failure = None

    @property
    def lately(self) -> Examples:
        """The last examples, the one in hand at the end."""
        return tuple(tuple(one) for one in self._lately if one)

    @property
    def at_failure(self) -> Examples:
        """The last examples up to the first that failed; none where none did."""
        return self._at_failure or ()


ORDER_FREE = "order-free"
"""The kind of the properties about orders of Triton programs."""
REFUSAL = "refusal"
"""The kind of the properties about inputs that no document allows."""
_NO_ORDER = "no launch of several programs, which could run in another order"
_CANNOT_READ = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What Python raises where a result is not what the code that takes it apart was written for."""


class ExampleEnded(Exception):
    """The example has shown what it can, and ends here: its failure is declared, or was met before."""


class OutsideDomain(ExampleEnded):
    """The example came to an input that the subject's contract leaves out, or asked for what the subject does not offer."""


class Falsified(AssertionError):
    """The subject broke a property; `case` is the input that shows it."""

    def __init__(self, case: Case) -> None:
        super().__init__(visible(case.message))
        self.case = case


class Tested(Protocol):
    """What an example needs of its property."""

    @property
    def id(self) -> str: ...

    @property
    def sentence(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def functions(self) -> tuple[str, ...]: ...

    @property
    def situations(self) -> tuple[str, ...]: ...


class Observer:
    """Follows the examples of an execution context. This one does nothing; a campaign, a test session and a hunt have their own.

    `example_begins` and `example_ended` may raise to end the search.
    """

    def example_begins(self) -> None:
        """An example begins."""

    def example_ended(self) -> None:
        """An example has ended without a failure; not called for state machines."""

    def known_defect(self, subject: Subject, case: Case) -> KnownDeviation | None:
        """The declared defect that a failing case shows: then the example ends as a known failure."""
        return subject.known(case)

    def was_met_before(self, case: Case) -> bool:  # noqa: ARG002
        """Whether a failing example ends as one that passes, since its failure was met before."""
        return False

    def falsified(self, case: Case) -> None:
        """An example fails, before `Falsified` is raised: the first one, and each smaller one that is tried."""

    def property_raised(self, case: Case, error: Exception) -> None:
        """A property's own code raised, although each outcome is what the rules expect."""


@dataclass(repr=False)
class ExecutionContext:
    """Where examples run: a subject behind a port, who observes them, and what is counted."""

    subject: Subject
    port: Executor
    observer: Observer = field(default_factory=Observer)
    seed: int | None = None
    counts: Counts = field(default_factory=Counts)
    known_failures: Counter[KnownDeviation] = field(default_factory=Counter)
    earlier: EarlierExamples = field(default_factory=EarlierExamples)
    configuration: str = ""
    """The only configuration of the subject that examples are about, such as a model of a library; "": examples choose."""
    written: Counter[str] = field(default_factory=Counter)
    """How many of the written examples of each property have run here."""

    @property
    def examples(self) -> int:
        return self.counts.examples

    def __repr__(self) -> str:
        return f"<{self.subject.name} on {self.port.device}>"

    def begin(self, tested: Tested) -> Example:
        self.observer.example_begins()
        self.counts.examples += 1
        self.port.begin()
        return Example(self, tested)


@dataclass
class Example:
    """One example of one property."""

    context: ExecutionContext
    tested: Tested

    def __post_init__(self) -> None:
        self._run = Run(self.context.port, rules_of(self.profile))
        self.context.earlier.begin(self._run.steps)
        self.is_compared = False
        self.situations: set[str] = set()
        """Those that the example has reached."""
        self._has_parts = False
        self.context.counts.situations.update(dict.fromkeys(self.tested.situations, 0))
        self.configuration = self.context.configuration
        self._read: list[int] = []
        """Numbers of the calls whose results were handed to the property."""
        self._has_failed = False
        self._compared_calls: set[int] = set()
        """Numbers of the calls whose outcomes were held against the rules."""
        self._looked_at = 0
        self._has_evidence = False
        self._reordered_before = REORDERED.launches

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

    @property
    def begun(self) -> tuple[Step, ...]:
        """The steps that were executed or are being executed."""
        return tuple(self._run.steps)

    def offered(self, *functions: str) -> tuple[str, ...]:
        """Those of the functions that the subject has; all of them where the rules are recorded without a subject."""
        return tuple(function for function in functions if self.context.subject.has(function)) or functions

    # Steps.

    def run(self, *steps: Step) -> Outcome:
        """Execute `steps` on the subject; the outcome of the last call among them."""
        subject = self.context.subject
        if subject.refuses and not subject.outside:
            self._run.execute_together(steps)
            for taken in self._run.settle():
                self._require_offered(taken.outcome)
            return self._run.actual[-1]
        for step in steps:
            asked = self._run.resolved_call(step)
            # A step outside of the contract is not executed: the subject may do anything there.
            reason = None if asked is None else left_out(subject, asked.call, asked.expected)
            if asked is not None and reason is not None:
                counts = self.context.counts
                self._leave(counts.not_offered if is_lacked(subject, asked.call) else counts.outside, reason)
            executed = self._run.take(step, asked)
            self._require_offered(executed.outcome if executed is not None else None)
        return self._run.actual[-1]

    @property
    def executes_kernels(self) -> bool:
        """Whether kernels are executed from their IR; elsewhere they are compiled, for strides and addresses by their divisors."""
        return self.context.port.device == "cpu"

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
        legal = [outcome for outcome in self._run.expected[before:] if not isinstance(outcome, Refusal)]
        assert not legal, f"the rules accept {self._run.steps}, but the property is about refused input"

    def agrees_without_waiting(self, *steps: Step) -> None:
        """As `agrees`, and then once more while waiting for the device is an error.

        The first time loads kernels, which may wait once in a process; it is every other time that counts.
        """
        self.agrees(*steps)
        with self.context.port.waiting_refused():
            self.agrees(*steps)

    def returns(self, *steps: Step) -> Value:
        """Execute `steps`; the value that the last call returned. A call must not raise.

        Outcomes are held against the rules when the example ends, so that a condition on them speaks first.
        """
        return self.returned(*steps).value

    def leaves(self, *steps: Step) -> dict[str, Value]:
        """Execute `steps`; what the last call, which must not raise, leaves in all that it observes. As `returns`, it is compared at the end."""
        return dict(self.returned(*steps).after)

    def returned(self, *steps: Step) -> Returned:
        """Execute `steps`; the outcome of the last call, which must not raise. As `returns`, it is compared at the end."""
        outcome = self.run(*steps)
        last = len(self._run.calls) - 1
        if isinstance(outcome, Raised):
            self.compared(int(outcome.by_subject))
            call = self._run.calls[last]
            self.finds(raised_instead(outcome, function=call.function, call=last, shown=self._shown(call)))
        # The property takes the result apart as it would take apart the rules' own.
        expected = self._run.expected[-1]
        if not isinstance(expected, Refusal):
            known = dict(expected.after)
            pairs = [("result", expected.value, outcome.value)]
            pairs += [(name, known[name], value) for name, value in outcome.after if name in known]
            for place, expected_value, value in pairs:
                difference = form_difference(expected_value, value, place)
                if difference is not None:
                    self.compared(int(outcome.by_subject))
                    self.finds(self._failure(last, difference))
        self._read.append(last)
        return outcome

    def keep(self, step: Step) -> Outcome | None:
        """Execute a step, and ask the rules what they expect of it only if the example turns out to be a case.

        For long examples that state conditions of their own, see `finds`.
        """
        (outcome,) = self._run.execute_together((step,))
        self._require_offered(outcome)
        self._has_evidence = self._has_evidence or (outcome is not None and outcome.by_subject)
        return outcome

    def kept_compared(self, rows: int) -> None:
        """As `compared`, of so many rows of a step of a long example that was executed by `keep`, if the subject took part."""
        self.compared(rows if self._has_evidence else 0)
        self._has_evidence = False

    def _require_offered(self, outcome: Outcome | None) -> None:
        reason = not_offered(outcome)
        if reason is not None:
            if is_unverified(outcome):
                self.context.counts.unverified[self.configuration] = reason
            # A device without room says nothing about what the subject offers.
            has_no_room = isinstance(outcome, Raised) and outcome.kind == "fault"
            counts = self.context.counts
            self._leave(counts.outside if has_no_room else counts.not_offered, reason)

    def lacks(self, reason: str) -> NoReturn:
        """End the example: the subject does not offer what it is about, for this reason."""
        self._leave(self.context.counts.not_offered, reason)

    def _leave(self, counted: Counter[str], reason: str) -> NoReturn:
        self.compare_rest()
        if not self.is_compared:
            counted[reason] += 1
        raise OutsideDomain(reason)

    # Comparing.

    def compared(self, parts: int) -> None:
        """The property compared so many rows, fields or bytes of what functions of the subject returned."""
        self.context.counts.parts += parts
        self._has_parts = self._has_parts or parts > 0
        if not self.tested.situations or not self.situations.isdisjoint(self.tested.situations):
            self._count_compared()

    def reached(self, *situations: str) -> None:
        """The example has come to these situations, by their names; it is compared where its property is for one of them."""
        new = {*situations} - self.situations
        if new:
            # A script that replays a case carries this module, and runs where there is no Hypothesis.
            from hypothesis import currently_in_test_context, event

            for name in new if currently_in_test_context() else ():
                event(name)
        self.situations |= new
        self.context.counts.situations.update(new)
        self.compared(0)

    def _count_compared(self) -> None:
        if self._has_parts and not self.is_compared and self._has_its_subject_matter():
            self.is_compared = True
            self.context.counts.compared += 1
            if self.configuration:
                self.context.counts.configurations[self.configuration] += 1

    def _has_its_subject_matter(self) -> bool:
        """Nothing is said about orders where programs did not run in another one."""
        return self.tested.kind != ORDER_FREE or REORDERED.launches > self._reordered_before

    def _compare(self, number: int, *, counts: bool = True) -> None:
        self._compared_calls.add(number)
        expected, actual = self._run.expected[number], self._run.actual[number]
        if counts and self._is_evidence(expected, actual):
            self.compared(parts_compared(expected, actual))
        places = self.context.port.device != "cpu"
        failures = [
            self._failure(number, difference)
            for difference in outcome_differences(expected, actual, places=places)
        ]
        if failures:
            # A declared defect of the result hides no other one in what the call leaves.
            find = self.context.subject.known_defects.find
            self.finds(
                next((failure for failure in failures if find(self._case(failure)) is None), failures[0])
            )
        function = self._run.calls[number].function
        if not is_engine(function):
            self.context.counts.unchecked.update(
                f"{function}: {place}" for place in unchecked(expected, actual)
            )

    def _is_evidence(self, expected: Expected | None, actual: Outcome) -> bool:
        """Whether the outcome is the subject's own, and of a kind that the property is about."""
        refused = isinstance(expected, Refusal) and isinstance(actual, Raised)
        return actual.by_subject and (not refused or self.tested.kind == REFUSAL)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While the property's own code takes results apart. Where it cannot, the first wrong outcome is the failure.

        Raises:
            Falsified: the code raised, and an outcome is not what the rules expect.
            ExampleEnded: the subject declares that.
            Exception: what the code raised, where each outcome is as expected: the property is wrong, or the harness.
        """
        try:
            yield
        except Falsified:
            raise
        except _CANNOT_READ as error:
            raised: Exception = error
        else:
            return
        # Outside of the handler: what is raised here is no consequence of the error for a reader of the traceback.
        self._run.settle()
        self.compare_rest()
        if self._run.actual:
            self.context.observer.property_raised(self._case(None), raised)
        raise raised

    def equals(self, place: str, observed: object, expected: object) -> None:
        """State that `observed`, which is the outcomes' `place`, is `expected`; raises as `holds`."""
        self.holds(observed == expected, f"{place} = {observed}", f"should be {expected}", place=place)

    def holds(self, condition: bool, observed: str, expected: str = "", *, place: str = "") -> None:
        """State a condition about the outcomes so far.

        Args:
            observed: what was seen, used where the condition is false, such as "cu[0] = 1".
            expected: what should be, such as "should be 0".
            place: what of the outcomes it is about, in words that hold for every input, and for no other condition of the property.

        Raises:
            Falsified: the condition is false and the subject does not declare that it may be.
            ExampleEnded: it does declare it.
        """
        # A condition counts where a function of the subject has returned something that it can be about.
        run = self._run
        while not self._has_evidence and self._looked_at < len(run.actual):
            number, self._looked_at = self._looked_at, self._looked_at + 1
            evident = self._is_evidence(run.expected[number], run.actual[number])
            self._has_evidence = evident and parts_of(run.actual[number]) > 0
        if self._has_evidence:
            self.compared(1)
        if condition:
            return
        run.settle()
        number, wrong = self._last_wrong_call()
        about = () if wrong is not None else tuple(self._read) or (number,)
        failure = stated(
            observed,
            expected,
            place=place,
            function=run.calls[number].function,
            call=number,
            shown="; ".join(self._shown(run.calls[one]) for one in about or (number,)),
            about=about,
        )
        # One defect makes this condition false for some inputs, and for others its result alone is wrong: it is one bucket.
        self.finds(failure if wrong is None else replace(failure, rule=self._failure(number, wrong).rule))

    def _last_wrong_call(self) -> tuple[int, Difference | None]:
        """The last call with a wrong outcome, and what differs; the last call and None where each outcome alone is right."""
        run, last = self._run, len(self._run.calls) - 1
        places = self.context.port.device != "cpu"
        for number in range(last, -1, -1):
            wrong = outcome_difference(run.expected[number], run.actual[number], places=places)
            if wrong is not None:
                return number, wrong
        return last, None

    # The end.

    def end(self) -> None:
        """The property's body has come to its end, and its own conditions hold: compare what is left.

        Raises:
            Falsified, ExampleEnded: as `compare_rest`.
        """
        self.compare_rest()
        if self.is_compared:
            return
        no_evidence = self.context.counts.no_evidence
        failed = failed_operations(self._run.actual, self._run.calls).values()
        if not self._has_its_subject_matter():
            no_evidence[_NO_ORDER] += 1
        elif operation := next((name for name in failed if OF_LIBRARY + name in self.tested.functions), ""):
            no_evidence[f"{self.configuration}: {operation} reported that it failed"] += 1
        elif self._run.actual and not any(outcome.by_subject for outcome in self._run.actual):
            no_evidence[f"no function of {self.context.subject.name} was called"] += 1

    def compare_rest(self, *, counts: bool = False) -> None:
        """Hold against the rules each outcome that was not yet, but for what the subject does not offer: a property's own condition may be blind to a wrong one.

        Of steps that were kept, see `keep`, the rules were not asked, and are not here.

        Args:
            counts: whether the comparisons are evidence for the property. It cannot ask its own condition where kernels are compiled
                differently; what is left of its sentence is that each result is within the bound.

        Raises:
            Falsified: an outcome is not what the rules expect, and the subject does not declare it.
            ExampleEnded: it does declare it.
        """
        # Behind a failure, other outcomes are mostly its consequences.
        for number in range(0 if self._has_failed else len(self._run.actual)):
            if number not in self._compared_calls and not_offered(self._run.actual[number]) is None:
                self._compare(number, counts=counts)

    def finds(
        self,
        failure: Failure,
        timeline: Timeline | None = None,
        wrong_bytes: WrongBytes | None = None,
    ) -> NoReturn:
        """End the example with what is wrong; after steps that were kept, with a picture of them and the wrong bytes.

        Raises:
            Falsified: always, but
            ExampleEnded: the subject declares it.
        """
        # What fails has compared something, wherever it fails.
        self._count_compared()
        self._run.settle()
        # Where an earlier call ended in a fault, or in a finding of the sanitizer, that is what the failure is about.
        number = fatal_among(self._run.actual)
        if number is not None:
            raised = self._run.actual[number]
            assert isinstance(raised, Raised)
            failure = with_cause(failure, raised, function=self._run.calls[number].function, call=number)
        case = replace(self._case(failure), timeline=timeline, wrong_bytes=wrong_bytes)
        self._has_failed = True
        observer = self.context.observer
        known = observer.known_defect(self.context.subject, case)
        if known is not None:
            self.context.known_failures[known] += 1
            raise ExampleEnded
        if observer.was_met_before(case):
            raise ExampleEnded
        self.context.earlier.note_failure()
        observer.falsified(case)
        raise Falsified(case)

    def _failure(self, number: int, difference: Difference) -> Failure:
        expected, actual, call = self._run.expected[number], self._run.actual[number], self._run.calls[number]
        return failure_of(
            difference, expected, actual, function=call.function, call=number, shown=self._shown(call)
        )

    def _shown(self, call: Call) -> str:
        """The call as one would write it down, by the name that the subject's author knows."""
        return call_text(call, self.context.subject.own_name(call.function))

    def _case(self, failure: Failure | None) -> Case:
        return Case(
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
