"""From the case that was found to what is known of it, once: minimised, confirmed, attributed and explained.

The case is on disk before any of this begins. A subject may remember what it was asked before: in a cache whose key is too short, for one. Then
the failing example alone shows nothing in another process. The examples that ran before it do, and most of them can be left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import chain

from statecheck.case import Case
from statecheck.case.bucket import first_wrong_call, wrong_calls
from statecheck.case.case import CHANCE, EARLIER_CALLS
from statecheck.case.values import Call, Step
from statecheck.diagnose.replay import NotTried, Rerun, replay
from statecheck.execution.example import EarlierExamples, Examples
from statecheck.execution.executors import Executor
from statecheck.execution.run import Expectation, rules_of
from statecheck.subject import Subject
from statecheck.subject.known import KnownDefectMatcher

PortFactory = Callable[[], AbstractContextManager[Executor]]


@dataclass(frozen=True)
class Confirmation:
    """How often a counterexample repeated; `messages` has what was seen in each run, "" where all was right."""

    repeated: int
    times: int
    messages: tuple[str, ...]

    @property
    def note(self) -> str:
        """The sentence for the report, "" where it was not run."""
        if self.repeated == self.times:
            return f"Repeated in {self.repeated} of {self.times} fresh workers." if self.times else ""
        return (
            f"This failure **did not repeat in {self.times - self.repeated} of {self.times}** fresh workers."
        )


def confirm(
    case: Case,
    port_factory: PortFactory,
    times: int = 3,
    seconds: float = float("inf"),
) -> Confirmation:
    """Run the case's steps up to `times` times, each on a port of its own; once at least, and no further one after `seconds`."""
    messages: list[str] = []
    until = time.monotonic() + seconds
    while len(messages) < times and (not messages or time.monotonic() < until):
        with port_factory() as port:
            try:
                found = replay(case, port)
            except NotTried:
                found = None
            failure = found.failure if found is not None else None
            messages.append(failure.sentence if failure is not None else "")
    return Confirmation(sum(map(bool, messages)), len(messages), tuple(messages))


SECONDS, _SEARCH_SECONDS = 30.0, 3.0
"""For a diagnosis, and of it at least for the search of earlier calls: without them, a failure that depends on them cannot be shown."""
_TIMES = 3
_NOT_RUN = Confirmation(0, 0, ())
_DID_NOT_REPEAT = "**This failure did not repeat when the same input was run again.**"
_NOT_AT_ONCE = "In the process that found it, the same input did not fail when it was run again."


@dataclass(frozen=True)
class Diagnosis:
    """The results of everything after the first failure.

    Args:
        case: the smallest one, behind the earlier calls that it takes, if there are any.
        alone: how often the case repeated in a fresh process, without earlier calls.
        confirmation: how often the case repeated as it is.
    """

    case: Case
    alone: Confirmation
    confirmation: Confirmation

    @property
    def depends_on(self) -> str:
        """The circumstances that the failure needs beside its own calls, see `Case.depends_on`."""
        return self.case.depends_on

    @property
    def note(self) -> str:
        """How far the failure can be relied on, for the report and the terminal."""
        if not self.depends_on:
            return self.confirmation.note
        alone = f"it repeated in {self.alone.repeated} of {self.alone.times} fresh workers"
        if self.depends_on == CHANCE:
            return f"{self.alone.note} It depends on chance: a replay without it does not say that the defect is gone."
        many = self.case.history
        if not many:
            return (
                f"Depends on earlier calls: {alone}, and in the worker that found it every time. Which calls it takes was not "
                "found: a replay without the failure does not say that the defect is gone."
            )
        return (
            f"Depends on {many} earlier {'call' if many == 1 else 'calls'}, with which the case begins: "
            f"behind {'it' if many == 1 else 'them'} it repeated in {self.confirmation.repeated} of {self.confirmation.times} fresh workers, "
            f"alone in {self.alone.repeated} of {self.alone.times}."
        )


def note_of(diagnosis: Diagnosis, *, flaky: bool) -> str:
    """How far a failure can be relied on, for the report and the terminal; one statement about whether it repeats.

    Args:
        flaky: the input did not fail when Hypothesis ran it again in the process that found it.
    """
    if not flaky or diagnosis.depends_on:
        # The failure did not repeat because of the circumstances that it depends on.
        return diagnosis.note
    return f"{diagnosis.note} {_NOT_AT_ONCE}" if diagnosis.confirmation.repeated else _DID_NOT_REPEAT


@dataclass(frozen=True)
class Scene:
    """Where a failure was found.

    Args:
        port: the executor on which the case failed.
        fresh: makes executors whose subject runs in a new process; None where no other process can import the subject.
        earlier: the examples that ran in the same process.
        seconds: how long the diagnosis may take; each run is made once at least.
    """

    subject: Subject
    port: Executor
    fresh: PortFactory | None
    earlier: EarlierExamples
    seconds: float = SECONDS


def as_found(case: Case) -> Diagnosis:
    """The diagnosis of a case that is not run again."""
    return Diagnosis(case, _NOT_RUN, _NOT_RUN)


def diagnose(case: Case, scene: Scene) -> Diagnosis:
    """Run the case again in fresh processes, and find out what it depends on: Hypothesis has made it small."""
    until = time.monotonic() + scene.seconds
    fresh = scene.fresh
    alone = _NOT_RUN
    if fresh is not None:
        # A subject that a new process cannot import says nothing of the failure.
        with suppress(Exception):
            alone = confirm(case, fresh, _TIMES, until - time.monotonic())
    try:
        if fresh is None or alone.repeated == alone.times:
            return Diagnosis(case, alone, alone)
        if alone.repeated:
            return Diagnosis(replace(case, depends_on=CHANCE), alone, alone)
        seconds = max(_SEARCH_SECONDS, until - time.monotonic())
        return _with_dependency(case, alone, replace(scene, seconds=seconds), fresh)
    finally:
        scene.earlier.forget_failure()


def _with_dependency(case: Case, alone: Confirmation, scene: Scene, fresh: PortFactory) -> Diagnosis:
    rules = rules_of(scene.subject.profile)
    known = scene.subject.known_defects
    found = with_earlier_calls(case, scene.earlier, fresh, rules, scene.seconds, known)
    if found is not None:
        confirmation = confirm(found, fresh, _TIMES)
        if confirmation.repeated == confirmation.times:
            return Diagnosis(found, alone, confirmation)
    depends_on = EARLIER_CALLS if _repeats(case, scene.port) else CHANCE
    return Diagnosis(replace(case, depends_on=depends_on), alone, alone)


def _repeats(case: Case, port: Executor) -> bool:
    """Whether the case fails every time in the process that found it."""
    try:
        return all(replay(case, port) is not None for _ in range(_TIMES))
    except Exception:
        return False


def with_functions_called(case: Case, subject: Subject) -> Case:
    """The case with what a port's own functions were called with; see `own_calls`."""
    if subject.sequences is not None:
        return case
    from statecheck.diagnose.attribution import with_own_calls, with_own_calls_apart

    return with_own_calls_apart(case, subject) if case.fault else with_own_calls(case, subject)


def explain(diagnosis: Diagnosis, subject: Subject) -> Diagnosis:
    """With the calls of a port's own functions, who wrote what is wrong, and what the sanitizer says of it.

    A library of sequences has no such functions, launches nothing, and needs neither torch nor Triton: there it is the first
    state that differs from a fresh run's.
    """
    case = with_functions_called(diagnosis.case, subject)
    try:
        return replace(diagnosis, case=_explained(case, subject))
    except Exception as error:
        # What is known without it is worth a report.
        finding = f"It could not be explained: {type(error).__name__}: {error}"
        return replace(diagnosis, case=replace(case, finding=finding))


def _explained(case: Case, subject: Subject) -> Case:
    if subject.sequences is not None:
        return replace(case, finding=subject.sequences.explain(case))
    from statecheck.diagnose.attribution import explained

    return explained(case, subject)


# Which earlier calls a failure depends on: the shortest sequence found that shows it in a fresh process.


def with_earlier_calls(
    case: Case,
    earlier: EarlierExamples,
    fresh: PortFactory,
    rules: Expectation,
    seconds: float,
    known: KnownDefectMatcher,
) -> Case | None:
    """The case behind the fewest earlier calls with which it fails in a fresh process; None where none are found in time.

    Args:
        fresh: a port whose subject runs in a new process.
        rules: what to expect of the earlier calls.
        known: the subject's declared defects, which an earlier example of another property may show.
    """
    search = _SequenceSearch(case, fresh, rules, time.monotonic() + seconds, known)
    before = tuple(example for example in earlier.lately if example != case.steps)
    at_failure = earlier.at_failure
    for examples, failing in (
        # Small ones first: of all that show it, the shortest sequence of small calls is read most easily.
        (_by_size(before), case.steps),
        (before, case.steps),
        (at_failure[:-1], at_failure[-1] if at_failure else ()),
    ):
        found = search.shortest((*examples, failing)) if examples else None
        if found is not None:
            return found
    return None


def _by_size(examples: Iterable[Sequence[Step]]) -> Examples:
    """The examples without repetitions, the smallest first."""
    # By their text: an argument may be a list, which has no hash.
    texts = {repr(example): tuple(example) for example in examples}
    return tuple(texts[text] for text in sorted(texts, key=len))


class _SequenceSearch:
    """Delta debugging over examples, then over their steps; what fails comes last."""

    def __init__(
        self, case: Case, fresh: PortFactory, rules: Expectation, until: float, known: KnownDefectMatcher
    ) -> None:
        self._case, self._fresh, self._rules, self._until = case, fresh, rules, until
        self._known = known
        self._functions = _suspected(case)

    def shortest(self, examples: Examples) -> Case | None:
        found = self._fails(examples)
        if found is None:
            return None
        best, kept = self._reduced(*found)
        steps = tuple((step,) for step in chain(*kept[:-1]))
        best, kept = self._reduced(best, (*steps, kept[-1]))
        calls = sum(isinstance(step, Call) for step in chain(*kept[:-1]))
        # Of the examples that failed, one may need no other.
        return replace(best, history=calls, depends_on=EARLIER_CALLS if calls else "")

    def _reduced(self, best: Case, kept: Examples) -> tuple[Case, Examples]:
        """The same without what it does not take."""
        size = max(1, len(kept) // 2)
        while True:
            at, before = 0, len(kept)
            while at < len(kept) - 1:
                found = self._fails((*kept[:at], *kept[min(at + size, len(kept) - 1) :]))
                if found is None:
                    at += size
                else:
                    best, kept = found
            if size == 1 and len(kept) == before:
                return best, kept
            size = max(1, size // 2)

    def _fails(self, examples: Examples) -> tuple[Case, Examples] | None:
        """The case as it fails in a new process behind these examples, and those of them that were run until then."""
        while time.monotonic() < self._until:
            unfit = None
            try:
                with self._fresh() as port:
                    run = _SequenceRun(self._case, examples, port, self._rules, self._until, self._known)
                    found = run.failed(self._functions)
                    if found is not None:
                        return found
                    unfit = run.unfit
            except Exception:
                # Steps without others that they need are no sequence.
                return None
            if unfit is None:
                return None
            # It fails in its own way, known or not, and would hide what is looked for.
            examples = (*examples[:unfit], *examples[unfit + 1 :])
        return None


class _SequenceRun:
    """Examples one behind the other; `unfit` is the number of one that cannot be among them."""

    def __init__(
        self,
        case: Case,
        examples: Examples,
        port: Executor,
        rules: Expectation,
        until: float,
        known: KnownDefectMatcher,
    ) -> None:
        self._case, self._examples, self._until, self._known = case, examples, until, known
        together = replace(case, steps=tuple(chain(*examples)), expected=(), actual=())
        self._rerun = Rerun(together, port, expect=rules)
        self.unfit: int | None = None

    def failed(self, functions: frozenset[str]) -> tuple[Case, Examples] | None:
        try:
            for _ in self._rerun:
                found = self._rerun.failed()
                if found is not None and found.failure is not None:
                    return self._accepted(found, functions)
                if time.monotonic() > self._until:
                    return None
        except NotTried:
            self._leave_out(len(self._rerun.run.steps))
            return None
        return self._stated()

    def _accepted(self, found: Case, functions: frozenset[str]) -> tuple[Case, Examples] | None:
        failure, own = found.failure, self._case.failure
        assert failure is not None
        kept = self._until_step(len(found.steps))
        # The property that drew an earlier example is not known.
        is_earlier = len(kept) < len(self._examples)
        if failure.function not in functions or (is_earlier and self._known.find_of_any_property(found)):
            self._leave_out(len(found.steps))
            return None
        # The same bucket as before: it is the same finding.
        rule = own.rule if own is not None else failure.rule
        return replace(found, failure=replace(failure, rule=rule)), kept

    def _leave_out(self, steps: int) -> None:
        number = len(self._until_step(steps)) - 1
        self.unfit = number if number < len(self._examples) - 1 else None

    def _until_step(self, steps: int) -> Examples:
        """The examples up to that step."""
        kept: list[tuple[Step, ...]] = []
        for example in self._examples:
            if steps <= 0:
                break
            kept.append(example[:steps])
            steps -= len(example)
        return tuple(kept)

    def _stated(self) -> tuple[Case, Examples] | None:
        """A condition on several calls is broken by the outcomes that broke it before."""
        case, run = self._case, self._rerun.run
        before = len(run.actual) - len(case.actual)
        if (
            case.failure is None
            or first_wrong_call(case) is not None
            or tuple(run.actual[before:]) != case.actual
        ):
            return None
        call = case.failure.call + before if case.failure.call is not None else None
        about = tuple(number + before for number in case.failure.about)
        failure = replace(case.failure, call=call, about=about)
        return replace(self._rerun.as_run(), failure=failure), self._examples


def _suspected(case: Case) -> frozenset[str]:
    """The functions whose outcomes are wrong in the case."""
    wrong = {case.calls[number].function for number in wrong_calls(case)}
    return frozenset(wrong | ({case.failure.function} if case.failure is not None else set()))
