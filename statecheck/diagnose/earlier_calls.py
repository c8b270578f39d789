"""Which earlier calls a failure depends on: the shortest sequence found that shows it in a fresh process.

A subject may remember what it was asked before: in a cache whose key is too short, for one. Then the failing example alone shows
nothing in another process. The examples that ran before it do, and most of them can be left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain

from statecheck.case import Case
from statecheck.case.bucket import first_wrong_call, wrong_calls
from statecheck.case.case import EARLIER_CALLS
from statecheck.case.values import Call, Step
from statecheck.diagnose.rerun import NotTried, Rerun
from statecheck.execution.example import EarlierExamples, Examples
from statecheck.execution.executors import Executor
from statecheck.execution.run import Expectation

PortFactory = Callable[[], AbstractContextManager[Executor]]


def with_earlier_calls(
    case: Case, earlier: EarlierExamples, fresh: PortFactory, rules: Expectation, seconds: float
) -> Case | None:
    """The case behind the fewest earlier calls with which it fails in a fresh process; None where none are found in time.

    Args:
        fresh: a port whose subject runs in a new process.
        rules: what to expect of the earlier calls.
    """
    search = _SequenceSearch(case, fresh, rules, time.monotonic() + seconds)
    before = tuple(one for one in earlier.lately if one != case.steps)
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
    """Each of the examples once, the smallest first."""
    # By their text: an argument may be a list, which has no hash.
    texts = {repr(one): tuple(one) for one in examples}
    return tuple(texts[text] for text in sorted(texts, key=len))


class _SequenceSearch:
    """Delta debugging over examples, then over their steps; what fails comes last."""

    def __init__(self, case: Case, fresh: PortFactory, rules: Expectation, until: float) -> None:
        self._case, self._fresh, self._rules, self._until = case, fresh, rules, until
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
                    run = _SequenceRun(self._case, examples, port, self._rules, self._until)
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
        self, case: Case, examples: Examples, port: Executor, rules: Expectation, until: float
    ) -> None:
        self._case, self._examples, self._until = case, examples, until
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
        if failure.function not in functions:
            self._leave_out(len(found.steps))
            return None
        # The same bucket as before: it is the same finding.
        rule = own.rule if own is not None else failure.rule
        return replace(found, failure=replace(failure, rule=rule)), self._until_step(len(found.steps))

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
