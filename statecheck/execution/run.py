"""A run: the one loop that takes a case's steps on a subject, and knows what names and memory hold by then.

Exploring, replaying, confirming, explaining and recording are uses of it. `KnownMemory` is what the rules know in the middle of an example: what
names stand for, and what observed memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from statecheck.case.values import (
    ITEM_SIZES,
    Bounded,
    Call,
    Expected,
    Let,
    Outcome,
    Overwrite,
    Raised,
    Record,
    Refusal,
    Returned,
    Step,
    Tensor,
    Value,
    View,
    as_bytes,
    as_elements,
    described,
    is_closed,
    resolve,
)
from statecheck.execution.executors import Executor
from statecheck.reference import answer
from statecheck.subject import NotVerified, Subject
from statecheck.subject.profile import Profile


@dataclass
class KnownMemory:
    """Follows the steps of an example, as the rules see them.

    A name stands for a value, with the elements that its tensors hold now, or for the call that made or updated it.
    `found` are contents of dotted paths, as far as they are known. `written` are the bytes of pools without elements
    that a view has written, by their places. `bounded` are the names whose memory is known within bounds.
    """

    names: dict[str, Value] = field(default_factory=dict)
    found: dict[str, Value] = field(default_factory=dict)
    written: dict[str, dict[int, int]] = field(default_factory=dict)
    bounded: dict[str, Bounded] = field(default_factory=dict)
    _closed: set[str] = field(default_factory=set)

    def bind(self, name: str, value: Value) -> None:
        """`name` stands for `value` from now on; what was known below the name is forgotten."""
        self.names[name] = value
        # Models are resolved for every call, and are large.
        (self._closed.add if is_closed(value) else self._closed.discard)(name)
        self.written.pop(name, None)
        self.bounded.pop(name, None)
        for path in [path for path in self.found if path.startswith(f"{name}.")]:
            del self.found[path]

    def note(self, step: Let | Overwrite) -> None:
        if isinstance(step, Let):
            self.bind(step.name, step.value)
            return
        target = self.names[step.name]
        self.bounded.pop(target.of if isinstance(target, View) else step.name, None)
        if isinstance(target, View):
            self._write(target, as_bytes(step.elements, target.dtype))
        else:
            self.names[step.name] = replace(target, elements=step.elements)

    def follow(self, step: Call, resolved: Call, expected: Expected) -> None:
        """A call was made: what its names stand for, and what memory holds, from now on."""
        if step.bind:
            self.bind(step.bind, resolved)
        if isinstance(expected, Returned):
            if step.updates:
                self.names[step.updates] = resolved
            self.learn(dict(expected.after))

    def resolved(self, call: Call) -> Call:
        """`call` with what its names, and the paths below them, are known to hold before it."""
        arguments = tuple((name, self._resolved(value)) for name, value in call.arguments)
        keywords = tuple((name, self._resolved(value)) for name, value in call.keywords)
        return replace(call, arguments=arguments, keywords=keywords)

    def _resolved(self, value: Value) -> Value:
        return resolve(value, self.names, self.found, self._closed)

    def known(self, call: Call) -> dict[str, Value]:
        """Contents by name, None where unknown: every tensor, container and path, and whatever `call` observes."""
        plain = (Tensor, dict, list)
        held = [name for name, value in self.names.items() if isinstance(value, plain)]
        held += [
            name
            for name, value in self.names.items()
            if isinstance(value, View) and self.names[value.of].elements is None
        ]
        return {name: self.contents(name) for name in (*held, *self.found, *call.observes)}

    def contents(self, name: str) -> Value | None:
        """The contents of `name`, in the form in which they are observed; None where they are not known."""
        value = self.names.get(name)
        if name in self.bounded:
            return self.bounded[name]
        if isinstance(value, View):
            return self._view(value)
        if isinstance(value, Tensor):
            return value.storage() if value.elements is not None else None
        if isinstance(value, (dict, list, tuple)):
            return self._resolved(value)
        return self.found.get(name)

    def learn(self, after: Mapping[str, Value]) -> None:
        """Make `after`, contents by name, the known ones."""
        for name, value in after.items():
            old = self.names.get(name)
            self.bounded.pop(name, None)
            if isinstance(value, Bounded):
                self.bounded[name] = value
            elif isinstance(old, View):
                self._write(old, as_bytes(value.elements, value.dtype))
            elif isinstance(old, Tensor):
                self.names[name] = replace(old, elements=value.elements)
            elif name in self.names:
                self.names[name] = value
                self._closed.discard(name)
            else:
                self.found[name] = value

    def _view(self, view: View) -> Tensor | None:
        runs = [self._read(view.of, start, end) for start, end in _places(view)]
        if None in runs:
            return None
        return described(view.dtype, view.shape, b"".join(run for run in runs if run is not None))

    def _read(self, pool: str, start: int, end: int) -> bytes | None:
        tensor = self.names[pool]
        if tensor.elements is None:
            known, places = self.written.get(pool, {}), range(start, end)
            return (
                bytes(known[place] for place in places) if all(place in known for place in places) else None
            )
        held = as_bytes(tensor.elements, tensor.dtype)
        return held[start:end] if start >= 0 and end <= len(held) else None

    def _write(self, view: View, raw: bytes) -> None:
        tensor, places = self.names[view.of], _places(view)
        assert len(raw) == sum(end - start for start, end in places), (
            f"{len(raw)} bytes are not those of {view}"
        )
        if tensor.elements is None:
            written = self.written.setdefault(view.of, {})
            for start, piece in _pieces(raw, places):
                written.update(enumerate(piece, start))
            return
        held = bytearray(as_bytes(tensor.elements, tensor.dtype))
        assert all(start >= 0 and end <= len(held) for start, end in places), f"{view} leaves its storage"
        for start, piece in _pieces(raw, places):
            held[start : start + len(piece)] = piece
        self.names[view.of] = replace(tensor, elements=as_elements(bytes(held), tensor.dtype))


def _pieces(raw: bytes, places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """`raw` cut into what belongs at each place, with where that begins."""
    first = 0
    for start, end in places:
        yield start, raw[first : first + end - start]
        first += end - start


@lru_cache(64)
def _places(view: View) -> tuple[tuple[int, int], ...]:
    """Where each run of the view's bytes begins and ends in its storage, in row-major order of the elements."""
    size = ITEM_SIZES[view.dtype]
    starts, length = Tensor(view.dtype, view.shape, None, view.strides, view.offset).runs()
    return tuple((start * size, (start + length) * size) for start in starts)


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

    def resolved_call(self, step: Step) -> ResolvedCall | None:
        """The step with its expected outcome; None where the step is no call."""
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
            asked = self.resolved_call(step)
            yield step, asked
            self.learn(step, asked)


def recorded(expected: Iterable[Expected]) -> Expectation:
    """Expectations that a case has, one for each of its calls in turn."""
    following = iter(expected)
    return lambda call, known: next(following)


def executed(port: Executor, steps: Sequence[Step]) -> list[Outcome | None]:
    """The outcome of each of the steps, None of those that are no calls.

    Round trips to a port in another process are expensive, so that it takes several steps at once: it has `execute_all`.
    """
    # By its name: to ask for the type of a protocol takes as long as some steps.
    execute_all: Callable[[Sequence[Step]], list[Outcome | None]] | None = getattr(port, "execute_all", None)
    return [port.execute(step) for step in steps] if execute_all is None else execute_all(steps)


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
        self._unsettled: list[tuple[Step, Outcome | None]] = []

    @property
    def memory(self) -> KnownMemory:
        return self._rules.memory

    def resolved_call(self, step: Step) -> ResolvedCall | None:
        """The outcome that the rules expect of the next step."""
        self.settle()
        return self._rules.resolved_call(step)

    def take(self, step: Step, asked: ResolvedCall | None = None) -> ExecutedCall | None:
        """Execute a step; None where it is no call.

        Args:
            asked: what `resolved_call` has answered for it, to ask once only.
        """
        if asked is None:
            asked = self.resolved_call(step)
        self.steps.append(step)
        return self._noted(step, asked, self.port.execute(step))

    def execute_together(self, steps: Sequence[Step]) -> list[Outcome | None]:
        """Execute steps in one round trip, and ask the rules only on demand, see `settle`."""
        self.steps.extend(steps)
        outcomes = executed(self.port, steps)
        self._unsettled.extend(zip(steps, outcomes, strict=True))
        return outcomes

    def settle(self) -> list[ExecutedCall]:
        """Ask the rules about all steps that were executed without."""
        waiting, self._unsettled = self._unsettled, []
        noted = [self._noted(step, self._rules.resolved_call(step), outcome) for step, outcome in waiting]
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
    return next((entry.reason for entry in subject.outside if entry.holds(call)), None)


def is_lacked(subject: Subject, call: Call) -> bool:
    """Whether a call that is left out is about something that the subject does not have."""
    return any(entry.lacked and entry.holds(call) for entry in subject.outside)


def not_offered(outcome: Outcome | None) -> str | None:
    """Why a call was not tried: the subject does not offer it, or its launch cannot be executed; or None."""
    if isinstance(outcome, Raised) and outcome.not_offered:
        return outcome.message
    return None


def is_unverified(outcome: Outcome | None) -> bool:
    """Whether a call was not tried because the model that it asks for cannot be verified."""
    return isinstance(outcome, Raised) and outcome.not_offered and outcome.exception == NotVerified.__name__


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
