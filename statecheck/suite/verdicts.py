"""The verdict of each property as pytest shows it."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis.errors import Flaky

from statecheck.case import Case
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.private.pytest import (
    ReprEntryNative,
    ReprExceptionInfo,
    ReprFileLocation,
    ReprTraceback,
)
from statecheck.execution.property import MachineProperty
from statecheck.execution.registry import Property, load_properties
from statecheck.execution.selection import applicable
from statecheck.execution.verdict import Counts, Status, Verdict, verdict_of
from statecheck.kernels import launch_counts
from statecheck.report.failure import failure_entry
from statecheck.report.render import entry_lines, github_annotations
from statecheck.subject.known import enough
from statecheck.suite.last_failure import LastFailure
from statecheck.suite.summary import (
    ANNOTATION,
    RESULT,
    Summary,
    examples_wanted,
    report_of,
    run_each_configuration,
    run_missing,
)

FAIL_ON_UNTESTED = "--fail-on-untested"
_WIDTH = 110
_judged = pytest.StashKey[Verdict]()


def tested_by(item: pytest.Item) -> Property | None:
    """The property that a test is about, if it is one."""
    test = getattr(item, "function", None)
    properties: dict[str, Property] | None = getattr(test, "properties", None)
    if properties is not None:
        return properties[item.callspec.params["property_id"]]  # type: ignore[attr-defined]
    return getattr(test, "property", None)


class PropertyTests:
    """A pytest plugin. Verdicts travel with the reports of tests, from the processes of xdist too.

    Args:
        reports: the folder for reports of falsified properties.
        context: where the examples run of tests that have no `context` of their own.
    """

    def __init__(self, reports: Path, context: ExecutionContext | None = None) -> None:
        self._context = context
        self._kept = LastFailure(reports)
        self._summary = Summary()

    def context_of(self, item: pytest.Item) -> ExecutionContext:
        """Where the examples of a property's test run."""
        context = getattr(item.function, "context", self._context)  # type: ignore[attr-defined]
        assert context is not None, f"{item.nodeid} has no subject to run on"
        return cast(ExecutionContext, context)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        # What -k looks at; it has been asked by the time that items are modified.
        tested = tested_by(item)
        if tested is not None:
            item.extra_keyword_matches.add(tested.id)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            tested = tested_by(item)
            if tested is None:
                continue
            context = self.context_of(item)
            reason = tested.not_applicable(context)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))
            elif _is_collected(item) and not isinstance(tested, MachineProperty):
                examples = tested.examples(context)
                if _follows_declarations(item):
                    examples = examples_wanted(context, tested, examples)
                settings(max_examples=examples)(item.function)  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        tested = tested_by(pyfuncitem)
        if tested is None:
            return (yield)
        context = self.context_of(pyfuncitem)
        context.counts.take()
        context.known_failures.clear()
        # What other tests have launched is none of this one's.
        launch_counts.take()
        self._kept.begin(tested, context)
        result = yield
        if _is_collected(pyfuncitem):
            # After drawn examples, which are shrunk.
            tested.run_written(context)
        if _is_collected(pyfuncitem) and _follows_declarations(pyfuncitem):
            run_missing(context, tested)
        run_each_configuration(context, tested)
        verdict = pyfuncitem.stash[_judged] = _verdict(tested, context)
        if verdict.status in (Status.NOT_TESTED, Status.NOT_APPLICABLE, Status.NOT_VERIFIED):
            pytest.skip(f"{verdict.status.value}: {verdict.reason}")
        if verdict.status is Status.KNOWN:
            pytest.xfail(f"known: {verdict.reason}")
        if verdict.status is Status.UNEXPECTED_PASS:
            pytest.fail(verdict.reason)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        tested, error = tested_by(item), call.excinfo.value if call.excinfo is not None else None
        latest = self._kept.latest
        status = _status(item, call.when, error, latest)
        if tested is not None and status is not None:
            result = self._result(item, tested, status, call.when)
            item.user_properties.append((RESULT, json.dumps(result)))
        report = yield
        if call.when == "call" and (isinstance(error, Falsified) or tested is not None):
            report.sections += [("statecheck", line) for line in self._kept.end(error)]
            case = self._kept.reported or (error.case if isinstance(error, Falsified) else latest)
            # Unless an option asks for the frames of Python's traceback, which are all the harness's own.
            is_brief = not item.config.option.fulltrace and item.config.option.tbstyle == "auto"
            if status is Status.FALSIFIED and case is not None and is_brief:
                entry = failure_entry(case, self.context_of(item).subject.release).brief
                report.user_properties += [(ANNOTATION, command) for command in github_annotations([entry])]
                lines = ReprEntryNative([f"{line}\n" for line in entry_lines(entry, _WIDTH)])
                # What pytest prints once more in its list of failures.
                file, line, _ = item.location
                where = ReprFileLocation(file, (line or 0) + 1, entry.headline)
                report.longrepr = ReprExceptionInfo(ReprTraceback([lines], None, "native"), where)
        return report

    def _result(self, item: pytest.Item, tested: Property, status: Status, when: str) -> dict[str, Any]:
        """What a phase of a test comes to, and what that rests on."""
        context = self.context_of(item)
        counts = context.counts if when == "call" else Counts()
        choices = context.subject.sequences if tested.is_of_library else None
        launches = launch_counts.take() if when == "call" else {}
        return {
            "phase": when,
            # Several tests may be about one property, which then counts once; subjects of a suite count apart.
            "name": item.nodeid if hasattr(item.function, "properties") else tested.id,  # type: ignore[attr-defined]
            "status": status.value,
            "subject": context.subject.name,
            "applicable": _applicable(context),
            "property": tested.id,
            "applies": status is not Status.NOT_APPLICABLE or counts.examples > 0,
            "examples": counts.examples,
            "tried": counts.examples >= counts.telling,
            "compared": counts.compared,
            "models": len(choices.all_models) if choices is not None else 0,
            "compared_models": sorted(counts.configurations),
            "unverified": counts.unverified,
            "unchecked": sorted(counts.unchecked),
            "declared": [*report_of(context, tested, status)],
            "launches": [[*astuple(how), times] for how, times in launches.items()],
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._summary.add(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # In a user's own suite, other tests may be all that was asked for.
        void = self._summary.is_void and (self._context is not None or not self._summary.others)
        # The exit code of a process of xdist does not matter.
        if exitstatus != pytest.ExitCode.OK or hasattr(session.config, "workerinput"):
            return
        untested = self._summary.untested
        is_failure = untested and session.config.getoption(FAIL_ON_UNTESTED, False)
        if self._summary.defects.is_stale or is_failure:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif void or any(untested.values()) or self._summary.unverified:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in (*self._summary.lines(), *self._summary.annotations):
            terminalreporter.write_line(line)


def _verdict(tested: Property, context: ExecutionContext) -> Verdict:
    """The verdict on a test that has raised nothing."""
    shown = context.known_failures
    verdict = verdict_of(context.counts, known=bool(shown))
    alone = (defect for defect in context.subject.known_deviations if defect.alone == tested.id)
    missing = next((defect for defect in alone if defect not in shown), None)
    if missing is not None and context.counts.compared >= enough(missing.one_in):
        # The declaration is out of date.
        reason = f"{tested.id} passed, but should fail as declared: {missing.link}"
        return Verdict(Status.UNEXPECTED_PASS, reason)
    if verdict.status is Status.KNOWN:
        return replace(verdict, reason=", ".join(sorted({one.id or one.link for one in shown})))
    return verdict


def _is_collected(item: pytest.Item) -> bool:
    """Whether a test is what `prop` has made of a property."""
    return hasattr(item.function, "property")  # type: ignore[attr-defined]


def _follows_declarations(item: pytest.Item) -> bool:
    """Whether the declared defects decide how many examples it has: no option does, and its examples are no scenarios."""
    given = item.config.getoption("--max-examples", None) is not None
    return not given and not isinstance(tested_by(item), MachineProperty)


def _status(item: pytest.Item, when: str, error: BaseException | None, latest: Case | None) -> Status | None:
    """The verdict as a phase of a test has it; None where that phase says nothing."""
    judged = item.stash.get(_judged, None) if when == "call" else None
    if judged is not None:
        return judged.status
    if isinstance(error, pytest.skip.Exception):
        return Status.NOT_APPLICABLE
    if isinstance(error, Falsified) or (isinstance(error, Flaky) and latest is not None):
        return Status.FALSIFIED
    return Status.ERROR if error is not None else None


_counted: dict[tuple[str, str], int] = {}


def _applicable(context: ExecutionContext) -> int:
    """How many properties apply to the subject."""
    key = context.subject.name, context.port.device
    if key not in _counted:
        tested = load_properties()
        _counted[key] = len(applicable(sorted(tested), tested, context.subject, context.port.device)[0])
    return _counted[key]
