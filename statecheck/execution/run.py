"""A run: the one loop that takes a case's steps on a subject, and knows what names and memory hold by then.

Exploring, replaying, confirming, explaining and recording are uses of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from oracle.profile import Profile
from statecheck.case.values import Call, Expected, Outcome, Raised, Record, Refusal, Returned, Step, Value
from statecheck.execution.executors import Executor, executed
from statecheck.execution.objects.memory import KnownMemory
from statecheck.reference import answer
from statecheck.subject import NotVerified, Subject

Expectation = Callable[[Call, Mapping[str, Value]], Expected]
"""What to expect of a call, all of whose names are resolved, by what is known before it."""


def rules_of(profile: Profile) -> Expectation:
    """The rules of a release."""
    return partial(answer, profile=profile)


@dataclass(frozen=True)
class ResolvedCall:
    """A call with its names resolved, and what is expected of it."""

    call: Call
    expected: Expected


@dataclass(frozen=True)
class ExecutedCall:
    """A call that was executed: its number among the calls, from 0, how it stands in the case, and what came of it."""

    number: int
    step: Call
    call: Call
    expected: Expected
    outcome: Outcome


class Follower:
    """Follows steps as the rules see them: asks what is expected of a call, and learns what is known after it.

    Args:
        expect: the rules, see `rules_of`; or what was recorded, see `recorded`.
    """

    def __init__(self, expect: Expectation) -> None:
        self.memory = KnownMemory()
        self._expect = expect

    def asked(self, step: Step) -> ResolvedCall | None:
        """What is expected of the step; None where it is no call."""
        if not isinstance(step, Call):
            return None
        resolved = self.memory.resolved(step)
        return ResolvedCall(resolved, self._expect(resolved, self.memory.known(step)))

    def learn(self, step: Step, asked: ResolvedCall | None) -> None:
        """The step was executed."""
        if not isinstance(step, Call):
            self.memory.note(step)
            return
        assert asked is not None
        self.memory.follow(step, asked.call, asked.expected)

    def follow(self, steps: Iterable[Step]) -> Iterator[tuple[Step, ResolvedCall | None]]:
        """Each step with what is expected of it; executes nothing."""
        for step in steps:
            asked = self.asked(step)
            yield step, asked
            self.learn(step, asked)


def recorded(expected: Iterable[Expected]) -> Expectation:
    """Expectations that a case has, one for each of its calls in turn."""
    following = iter(expected)
    return lambda call, known: next(following)


class Run:
    """Takes steps on a port, one after the other, and keeps what came of them.

    `steps` are those that were executed, `calls` the calls among them with all names resolved; `expected` and `actual` hold an
    entry for each of these.
    """

    def __init__(self, port: Executor, expect: Expectation) -> None:
        self.port = port
        self.steps: list[Step] = []
        self.calls: list[Call] = []
        self.expected: list[Expected] = []
        self.actual: list[Outcome] = []
        self._rules = Follower(expect)
        self._unasked: list[tuple[Step, Outcome | None]] = []

    @property
    def memory(self) -> KnownMemory:
        return self._rules.memory

    def asked(self, step: Step) -> ResolvedCall | None:
        """What the rules expect of a step that comes next."""
        self.settle()
        return self._rules.asked(step)

    def take(self, step: Step, asked: ResolvedCall | None = None) -> ExecutedCall | None:
        """Execute a step; None where it is no call.

        Args:
            asked: what `asked` has answered for it, to ask once only.
        """
        if asked is None:
            asked = self.asked(step)
        self.steps.append(step)
        return self._noted(step, asked, self.port.execute(step))

    def take_unasked(self, steps: Sequence[Step]) -> list[Outcome | None]:
        """Execute steps in one round trip, and ask the rules only on demand, see `settle`."""
        self.steps.extend(steps)
        outcomes = executed(self.port, steps)
        self._unasked.extend(zip(steps, outcomes, strict=True))
        return outcomes

    def settle(self) -> list[ExecutedCall]:
        """Ask the rules about all steps that were executed without."""
        waiting, self._unasked = self._unasked, []
        noted = [self._noted(step, self._rules.asked(step), outcome) for step, outcome in waiting]
        return [taken for taken in noted if taken is not None]

    def _noted(self, step: Step, asked: ResolvedCall | None, outcome: Outcome | None) -> ExecutedCall | None:
        self._rules.learn(step, asked)
        if asked is None:
            return None
        assert isinstance(step, Call)
        assert outcome is not None
        self.calls.append(asked.call)
        self.expected.append(asked.expected)
        self.actual.append(outcome)
        return ExecutedCall(len(self.actual) - 1, step, asked.call, asked.expected, outcome)


def left_out(subject: Subject, call: Call, expected: Expected) -> str | None:
    """Why this call, all of whose names are resolved, is not made; None where it is inside of the contract."""
    if isinstance(expected, Refusal) and not subject.refuses:
        return f"the rules refuse {expected.argument or call.function}"
    return next((one.reason for one in subject.outside if one.holds(call)), None)


def is_lacked(subject: Subject, call: Call) -> bool:
    """Whether a call that is left out is about something that the subject does not have."""
    return any(one.lacked and one.holds(call) for one in subject.outside)


def not_offered(outcome: Outcome | None) -> str | None:
    """Why a call was not tried: the subject does not offer it, or its launch cannot be executed; or None."""
    if isinstance(outcome, Raised) and outcome.not_offered:
        return outcome.message
    return None


def is_unverified(outcome: Outcome | None) -> bool:
    """Whether a call was not tried because the model that it asks for cannot be verified."""
    return isinstance(outcome, Raised) and outcome.not_offered and outcome.exception == NotVerified.__name__


def operations_held(outcome: Outcome) -> frozenset[str]:
    """The operations of a library of sequences that a step has held against a fresh run; none of another outcome."""
    step = _sequence_step(outcome)
    held: Any = step["held"] if step is not None else ()
    return frozenset(held)


def failed_operations(outcomes: Sequence[Outcome], calls: Sequence[Call]) -> dict[int, str]:
    """The operations that a library of sequences reports as failed, by the numbers of their calls."""
    steps = enumerate(zip(calls, map(_sequence_step, outcomes), strict=False))
    return {
        number: call.function.rpartition(".")[2]
        for number, (call, step) in steps
        if step is not None and not step["happened"]
    }


def _sequence_step(outcome: Outcome) -> Record | None:
    value = outcome.value if isinstance(outcome, Returned) else None
    return value if isinstance(value, Record) and value.type == "SequenceStep" else None
