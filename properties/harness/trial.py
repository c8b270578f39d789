"""What a property's body holds in its hand: run steps on the subject, compare with the rules, or state a condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from oracle import profile
from properties.harness.answers import answer
from properties.harness.case import Case
from properties.harness.compare import brief, outcome_difference
from properties.harness.memory import Memory
from properties.harness.port import Port, executed
from properties.harness.suspect import Suspect
from properties.harness.timeline import Timeline
from properties.harness.values import (
    Call,
    Expected,
    Outcome,
    Raised,
    Refusal,
    Returned,
    Step,
    Value,
)
from properties.subjects import KnownDeviation, Subject

if TYPE_CHECKING:
    from properties.harness.registry import Property


NOT_OFFERED = "NotOffered"
"""The name of the exception by which an adapter says that a release does not have what an input needs."""


class KnownFailure(Exception):
    """The subject broke a property as it declares; the example has shown what it can and ends here."""


class OutsideDomain(KnownFailure):
    """The example came to an input that the subject's contract leaves out, or asked for what the subject does not offer."""


class Falsified(AssertionError):
    """The subject broke a property; `case` is the input that shows it, `origin` what a machine can make it smaller by."""

    def __init__(self, case: Case, origin: object = None) -> None:
        super().__init__(case.message)
        self.case = case
        self.origin = origin


@dataclass
class Tally:
    """Counts of what state machines went through: lives, steps, and in how many lives each moment came up."""

    lives: int = 0
    steps: int = 0
    marks: Counter[str] = field(default_factory=Counter)

    def note(self, steps: int, marks: Iterable[str]) -> None:
        self.lives += 1
        self.steps += steps
        self.marks.update(marks)


@dataclass(repr=False)
class Bench:
    """Where examples run: a subject behind a port, and what is counted on the way.

    `on_example` and `on_falsified` let a campaign watch: the latter sees every failing example, shrunk or not. One that
    `passes_by` names is known already, and ends as one that passes. `outside` counts examples that said nothing, by the reason.
    """

    subject: Subject
    port: Port
    seed: int | None = None
    examples: int = 0
    known_failures: set[KnownDeviation] = field(default_factory=set)
    outside: Counter[str] = field(default_factory=Counter)
    on_example: Callable[[], None] = lambda: None
    on_falsified: Callable[[Case], None] = lambda case: None
    passes_by: Callable[[Case], bool] = lambda case: False
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.follow_rules()

    def follow_rules(self) -> None:
        """Let the rules, and the strategies that ask for them, be those of the subject."""
        profile.use(self.subject.profile)

    def __repr__(self) -> str:
        return f"<{self.subject.name} on {self.port.device}>"

    def begin(self, tested: Property) -> Trial:
        self.examples += 1
        self.follow_rules()
        self.on_example()
        self.port.begin()
        return Trial(self, tested)


@dataclass
class Trial:
    """One example of one property."""

    bench: Bench
    tested: Property
    _steps: list[Step] = field(default_factory=list)
    _actual: list[Outcome] = field(default_factory=list)
    _memory: Memory = field(default_factory=Memory)
    _expected: list[Expected] = field(default_factory=list)
    _calls: list[Call] = field(default_factory=list)
    _unasked: list[tuple[Step, Outcome | None]] = field(default_factory=list)

    def keep(self, step: Step) -> Outcome | None:
        """Execute a step, and ask the rules what they expect of it only if the example turns out to be a case.

        For long examples that state conditions of their own, see `finds`.
        """
        self._steps.append(step)
        outcome = self.bench.port.execute(step)
        self._require_offered(outcome)
        self._unasked.append((step, outcome))
        return outcome

    def finds(
        self,
        message: str,
        timeline: Timeline | None = None,
        origin: object = None,
        suspect: Suspect | None = None,
    ) -> NoReturn:
        """End the example with what is wrong after the steps that were kept, a picture of them, and the wrong bytes.

        Raises:
            Falsified: always, but
            KnownFailure: the subject declares it.
        """
        self._ask()
        self._ends(replace(self._case(message), timeline=timeline, suspect=suspect), origin)

    def _ask(self) -> None:
        """Hear what the rules expect of the steps that were kept."""
        for step, outcome in self._unasked:
            self._note(step, outcome)
        self._unasked.clear()

    def run(self, *steps: Step) -> Outcome:
        """Execute `steps` on the subject; the outcome of the last call among them."""
        if self.bench.subject.refuses and not self.bench.subject.outside:
            self._steps.extend(steps)
            for step, outcome in zip(steps, executed(self.bench.port, steps), strict=True):
                self._note(step, outcome)
        else:
            for step in steps:
                self._run_inside(step)
        return self._actual[-1]

    def _run_inside(self, step: Step) -> None:
        """Execute a step unless it is outside, which nobody must try: it may do anything."""
        self._steps.append(step)
        asked = self._asked(step)
        if asked is not None:
            self._require_inside(*asked)
        outcome = self.bench.port.execute(step)
        self._require_offered(outcome)
        self._learn(step, asked, outcome)

    def _require_inside(self, call: Call, expected: Expected) -> None:
        subject = self.bench.subject
        if isinstance(expected, Refusal) and not subject.refuses:
            self._leave(f"the rules refuse {expected.argument or call.function}")
        found = next((one for one in subject.outside if one.holds(call)), None)
        if found is not None:
            self._leave(found.reason)

    def _require_offered(self, outcome: Outcome | None) -> None:
        if isinstance(outcome, Raised) and outcome.exception == NOT_OFFERED:
            self._leave(outcome.message)

    def _leave(self, reason: str) -> NoReturn:
        self.bench.outside[reason] += 1
        raise OutsideDomain(reason)

    def _note(self, step: Step, outcome: Outcome | None) -> None:
        self._learn(step, self._asked(step), outcome)

    def _asked(self, step: Step) -> tuple[Call, Expected] | None:
        """A call with its names resolved, and what the rules expect of it."""
        if not isinstance(step, Call):
            return None
        resolved = self._memory.resolved(step)
        return resolved, answer(resolved, self._memory.known(step))

    def _learn(self, step: Step, asked: tuple[Call, Expected] | None, outcome: Outcome | None) -> None:
        if not isinstance(step, Call):
            self._memory.note(step)
            return
        assert asked is not None
        assert outcome is not None
        resolved, expected = asked
        self._calls.append(resolved)
        self._actual.append(outcome)
        self._expected.append(expected)
        if step.bind:
            self._memory.bind(step.bind, resolved)
        if isinstance(expected, Returned):
            if step.updates:
                self._memory.names[step.updates] = resolved
            self._memory.learn(dict(expected.after))

    def agrees(self, *steps: Step) -> None:
        """Execute `steps` and hold the outcome of each call against the rules."""
        before = len(self._actual)
        self.run(*steps)
        for number in range(before, len(self._actual)):
            self._compare(number)

    def refuses(self, *steps: Step) -> None:
        """As `agrees`, for calls that the rules refuse, every one of them."""
        before = len(self._expected)
        self.agrees(*steps)
        legal = [one for one in self._expected[before:] if not isinstance(one, Refusal)]
        assert not legal, f"the rules accept {self._steps}, but the property is about refused input"

    def agrees_without_waiting(self, *steps: Step) -> None:
        """As `agrees`, and then once more while waiting for the device is an error.

        The first time loads kernels, which may wait once in a process; it is every other time that counts.
        """
        self.agrees(*steps)
        with self.bench.port.waiting_refused():
            self.agrees(*steps)

    def _compare(self, number: int) -> None:
        places = self.bench.port.device != "cpu"
        found = outcome_difference(self._expected[number], self._actual[number], places=places)
        if found is not None:
            self._fails(str(found), number)

    def returns(self, *steps: Step) -> Value:
        """Execute `steps`; the value that the last call returned, without comparing it. A call must not raise."""
        outcome = self.run(*steps)
        if isinstance(outcome, Raised):
            self._fails(f"the call = {outcome.exception}: {outcome.message}, but should return a result")
        return outcome.value

    def holds(self, condition: bool, message: str) -> None:
        """State a condition about the outcomes so far.

        Args:
            message: what was observed and what should be, used where the condition is false.

        Raises:
            Falsified: the condition is false and the subject does not declare that it may be.
            KnownFailure: it does declare it.
        """
        if not condition:
            self._fails(message)

    def _fails(self, message: str, number: int = -1) -> NoReturn:
        """End the example; `number` is the call that shows it."""
        self._ask()
        self._ends(self._case(f"{message} [{spell(self._calls[number])}]"))

    def _ends(self, case: Case, origin: object = None) -> NoReturn:
        known = self._known(case)
        if known is not None:
            self.bench.known_failures.add(known)
            raise KnownFailure
        if self.bench.passes_by(case):
            raise KnownFailure
        self.bench.on_falsified(case)
        raise Falsified(case, origin)

    def _known(self, case: Case) -> KnownDeviation | None:
        declared = self.bench.subject.known_deviations
        return next((one for one in declared if one.shows_in(case)), None)

    def _case(self, message: str) -> Case:
        return Case(
            property_name=self.tested.name,
            sentence=self.tested.sentence,
            subject=self.bench.subject.name,
            steps=tuple(self._steps),
            expected=tuple(self._expected),
            actual=tuple(self._actual),
            message=message,
            device=self.bench.port.device,
            seed=self.bench.seed,
        )


def spell(call: Call) -> str:
    """The call as one would write it down."""
    arguments = ", ".join(f"{name}={brief(value)}" for name, value in call.named.items())
    return f"{call.function}({arguments})"
