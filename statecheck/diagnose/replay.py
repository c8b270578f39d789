"""A case's steps once more, as they stand in it: neither its property nor a strategy needs to exist any more.

All that looks at a case again takes its steps with a `Rerun`. `replay_file` says what came of a saved case; in a worker where the case could end
this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from statecheck.case import Case
from statecheck.case.bucket import first_wrong_call
from statecheck.case.failure import call_text, failure_of, outcome_difference
from statecheck.case.values import Raised, Record, Returned, Step
from statecheck.execution.executors import Executor, choose_device, ordinary_port
from statecheck.execution.run import (
    ExecutedCall,
    Expectation,
    Run,
    failed_operations,
    left_out,
    not_offered,
    recorded,
    rules_of,
)
from statecheck.execution.selection import NEED_CUDA, missing_functions, require_declared_properties
from statecheck.kernels import triton_mode
from statecheck.subject import Subject, load
from statecheck.subject.loading import SOURCE, source_of, system_named, system_of
from statecheck.util import limits
from statecheck.workers.forking import start_server
from statecheck.workers.forkserver import kernels_of
from statecheck.workers.port import InWorker


class NotTried(Exception):
    """The case comes to something that is not tried on the subject."""


class Rerun:
    """Takes the steps of a case once more; iterating yields each call that was taken.

    Args:
        subject: whose contract may leave out what the case does. Without one, everything is tried.
        expect: the rules to ask; without them, what the case expects.

    Raises:
        NotTried: while it is iterated: the subject's contract leaves a call out, or the subject does not offer it.
    """

    def __init__(
        self, case: Case, port: Executor, subject: Subject | None = None, expect: Expectation | None = None
    ) -> None:
        self.case = case
        self.run = Run(port, expect or recorded(case.expected))
        self._subject = subject
        self.compared = 0
        """Outcomes of the subject's own functions that were held against what was expected."""
        port.begin()

    def __iter__(self) -> Iterator[ExecutedCall]:
        for step in self.case.steps:
            taken = self._take(step)
            if taken is not None:
                yield taken

    def _take(self, step: Step) -> ExecutedCall | None:
        run, subject = self.run, self._subject
        asked = run.resolved_call(step)
        if subject is not None and asked is not None:
            reason = left_out(subject, asked.call, asked.expected)
            if reason is not None:
                raise NotTried(reason)
        taken = run.take(step, asked)
        reason = not_offered(taken.outcome) if taken is not None else None
        if reason is not None:
            raise NotTried(reason)
        self.compared += taken is not None and taken.outcome.by_subject
        return taken

    def first_failure(self) -> Case | None:
        """Take all steps; the case as it fails first, None where it does not."""
        for _ in self:
            found = self.failed()
            if found is not None:
                return found
        if self._subject is not None:
            self.require_operations()
        return self.still_stated()

    def failed(self) -> Case | None:
        """The case as it fails at the call that was taken last, None where that came out as expected."""
        run = self.run
        expected, actual, call = run.expected[-1], run.actual[-1], run.calls[-1]
        number = len(run.actual) - 1
        part = self.case.failing_part(number)
        found = outcome_difference(expected, actual, places=run.port.device != "cpu", part=part)
        if found is None:
            return None
        shown = call_text(call, self._subject.own_name(call.function) if self._subject is not None else "")
        failure = failure_of(found, expected, actual, function=call.function, call=number, shown=shown)
        return replace(self.as_run(), failure=failure)

    def require_operations(self) -> None:
        """Refuse a run in which an operation of a library of sequences failed that had happened when the case was found.

        Raises:
            NotTried: there is such an operation: the case does not come to what it is about.
        """
        now = failed_operations(self.run.actual, self.run.calls)
        before = failed_operations(self.case.actual, self.case.calls)
        for number, name in now.items():
            if number not in before:
                message = f"{name} reported that it failed, which it had not when the case was found"
                raise NotTried(": ".join(filter(None, (self.case.model, message))))

    def still_stated(self) -> Case | None:
        """Where a condition on several calls was broken, it is as long as these outcomes are the same, but for fields that an adapter reports since."""
        case = self.case
        if (
            case.failure is None
            or first_wrong_call(case) is not None
            or not _is_recorded(tuple(self.run.actual), case.actual)
        ):
            return None
        return self.as_run()

    def as_run(self) -> Case:
        """The case as far as it was run, with what came of it."""
        run = self.run
        return replace(
            self.case,
            steps=tuple(run.steps),
            expected=tuple(run.expected),
            actual=tuple(run.actual),
            device=run.port.device,
        )


def _is_recorded(now: object, before: object) -> bool:
    """Whether an outcome, or a part of it, is the recorded one. Records may have fields more: a law of engines is a field of each step."""
    if isinstance(now, Record) and isinstance(before, Record):
        fields, kept = dict(now.fields), dict(before.fields)
        same = all(name in fields and _is_recorded(fields[name], kept[name]) for name in kept)
        return now.type == before.type and same
    if isinstance(now, Returned) and isinstance(before, Returned):
        parts = ((now.value, before.value), (now.changed, before.changed), (now.after, before.after))
        return all(_is_recorded(*part) for part in parts)
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(_is_recorded, now, before))
    return now == before


def replay(
    case: Case, port: Executor, subject: Subject | None = None, expect: Expectation | None = None
) -> Case | None:
    """The case as it fails first on `port`, None where it does not; arguments and errors as of `Rerun`."""
    return Rerun(case, port, subject, expect).first_failure()


def ends_earlier(case: Case, port: Executor) -> Case | None:
    """The case as the sanitizer's finding would have had it, None where it finds nothing in the steps."""
    rerun = Rerun(case, port)
    for taken in rerun:
        if isinstance(taken.outcome, Raised) and taken.outcome.is_finding:
            return rerun.failed()
    return None


# Verdicts on saved cases.


FIXED, FAILED, KNOWN, NOT_APPLICABLE = "FIXED", "FAILED", "KNOWN", "NOT APPLICABLE"
LEFT_OUT, NOT_REPRODUCED = "LEFT OUT", "NOT REPRODUCED"


@dataclass(frozen=True)
class ReplayVerdict:
    """What came of a case, a line that explains it, and the case as it is now.

    `verdict` is "FIXED", "FAILED", "KNOWN", "NOT APPLICABLE"; "NOT REPRODUCED" where nothing failed, but the failure takes more than
    the case has, or the case has none. `declared` is the id and the link of a known defect, `notes` what else is to be said of a failure,
    and `subject` and `release` name what failed, which may be another subject than the case's.
    """

    verdict: str
    message: str
    case: Case
    declared: str = ""
    notes: str = ""
    subject: str = ""
    release: str = ""


def replay_file(
    path: Path,
    subject: str,
    device: str,
    *,
    as_new: bool = False,
    alone: bool = False,
    time_limit: float = limits.CALL,
) -> ReplayVerdict:
    """Replay the case in a file, in a process of its own: one that it ends, or keeps, shows the failure.

    Args:
        as_new: what the subject declares as known is taken for new.
        alone: the case has what is expected of each call, and nothing else is asked: neither the rules nor what is declared.
        time_limit: seconds for each call.

    Raises:
        ValueError: no readable case at `path`, an unknown subject or device, an import that ends the process, or declared defects that
            match most of what can fail.
    """
    case = Case.named(path, "replay")
    device = choose_device(device, subject, case.property_id)
    start_server(kernels := kernels_of(subject, device))
    if kernels:
        triton_mode.prepare(device)
    with InWorker(subject, device, time_limit=time_limit, spare=False) as port:
        port.require_import()
        chosen = load(subject)
        if not (as_new or alone):
            require_declared_properties(chosen)
        return replay_case(case, chosen, device, port, as_new=as_new, alone=alone)


def replay_case(
    case: Case,
    subject: Subject,
    device: str,
    port: Executor | None = None,
    *,
    as_new: bool = False,
    alone: bool = False,
) -> ReplayVerdict:
    """As `replay_file`; `port` may lend one that is open already, for cases that can do it no harm.

    Raises:
        ValueError: the case calls nothing, or what no document has.
    """
    if not case.calls:
        raise ValueError("calls = none, but should be one at least, or there is nothing to compare [replay]")
    reason = _not_applicable(case, subject, device)
    if reason is not None:
        return ReplayVerdict(NOT_APPLICABLE, reason, case)
    try:
        with _port_for(case, subject, device, port) as used:
            rules = None if alone else rules_of(subject.profile)
            rerun = Rerun(case, used, subject, rules)
            found = rerun.first_failure()
    except NotTried as left:
        return ReplayVerdict(NOT_APPLICABLE, str(left), case)
    if found is None:
        return _not_failed(case, subject, compared=rerun.compared, watched=_watches(port, device))
    as_new = as_new or alone
    known = None if as_new else subject.known_defects.find(found)
    if known is not None:
        declared = ", ".join(filter(None, (known.id, known.link)))
        message = f"{known.name}: {_sentence(found)}"
        return ReplayVerdict(KNOWN, message, found, declared, subject=subject.name, release=subject.release)
    defects = subject.known_defects
    notes = "; ".join(filter(None, () if as_new else (*defects.errors, defects.nearest(found))))
    message = "; ".join(filter(None, (_sentence(found), notes)))
    return ReplayVerdict(FAILED, message, found, notes=notes, subject=subject.name, release=subject.release)


def _not_failed(case: Case, subject: Subject, *, compared: int, watched: bool) -> ReplayVerdict:
    """The verdict on a case of which no call failed: it is fixed only if something was compared that had failed."""
    if not compared:
        message = f"nothing was compared: the case runs no function of {subject.name}"
        return ReplayVerdict(NOT_APPLICABLE, message, case)
    if case.sanitized and not watched:
        return ReplayVerdict(NOT_APPLICABLE, "the sanitizer found it, and watches no kernels here", case)
    if not case.is_decisive:
        message = f"nothing failed, but the failure depends on {case.depends_on}, so that it may be there all the same"
        return ReplayVerdict(NOT_REPRODUCED, message, case)
    if case.subject == subject.name and case.first_seen.get(SOURCE) == source_of(subject) != "":
        message = f"nothing failed, but the source of {subject.name} is the one in which the case was found"
        return ReplayVerdict(NOT_REPRODUCED, message, case)
    if case.failure is None:
        return ReplayVerdict(NOT_REPRODUCED, "nothing failed, and the case has no failure to reproduce", case)
    now = "now " if case.subject == subject.name else ""
    if first_wrong_call(case) is None:
        message = f"{subject.name} {now}gives other outcomes than those that broke {case.property_id}, each by the rules"
        return ReplayVerdict(FIXED, message, case)
    return ReplayVerdict(FIXED, f"{subject.name} {now}answers {case.property_id} by the rules", case)


def _sentence(case: Case) -> str:
    return case.failure.sentence if case.failure is not None else case.message


def _not_applicable(case: Case, subject: Subject, device: str) -> str | None:
    system = system_of(case)
    if system and system != system_named(subject.name):
        return f"the case is of {system}, and what it does there says nothing of {subject.name}"
    missing = missing_functions(case, subject)
    if missing:
        return f"{subject.name} has no {', '.join(missing)}"
    if device == "cpu" and any(call.function in NEED_CUDA for call in case.calls):
        return "there are no graphs without CUDA"
    if device != "cpu" and any(call.schedule for call in case.calls):
        return f"where kernels are compiled, on {device}, programs run in an order of the device's own"
    return None


def _watches(port: Executor | None, device: str) -> bool:
    """Whether the sanitizer sees what launches do, as it did where it found the case."""
    # Of ports, `InProcess` alone may be without it.
    return device == "cpu" and getattr(port, "watched", True) is not None


@contextmanager
def _port_for(case: Case, subject: Subject, device: str, port: Executor | None) -> Iterator[Executor]:
    """Where the case's fault, or any on a GPU, would end this process, or where its past counts, another one runs it."""
    apart = case.fault is not None or bool(case.depends_on)
    if isinstance(port, InWorker) or (port is not None and not apart):
        yield port
    elif device == "cpu" and not apart:
        yield ordinary_port(subject, device)
    else:
        with InWorker(subject.name, device, spare=False) as own:
            yield own
