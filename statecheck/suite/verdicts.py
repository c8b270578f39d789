"""What pytest says of properties: a verdict for each, what no rule knows, and where an input that failed is kept."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis.errors import Flaky

from statecheck.campaign.stale import enough
from statecheck.case import Case
from statecheck.case.places import Places, print_case
from statecheck.diagnose.diagnosis import Scene, diagnose, explain
from statecheck.execution.counts import Counts
from statecheck.execution.example import Bench, Falsified
from statecheck.execution.machines import MachineProperty
from statecheck.execution.registry import Property, property_of
from statecheck.execution.unread import kept_unread
from statecheck.execution.verdict import TELLING, Status, Verdict, verdict_of
from statecheck.kernels import coverage
from statecheck.kernels.coverage import How
from statecheck.report.markdown import write_report
from statecheck.suite import declared
from statecheck.suite.declared import DeclaredDefects, examples_wanted, run_missing
from statecheck.suite.short import in_short
from statecheck.workers.port import InWorker

_COMPARED = (Status.FALSIFIED, Status.UNEXPECTED_PASS, Status.KNOWN, Status.PASSED)
_WORST_FIRST = (
    Status.FALSIFIED,
    Status.UNEXPECTED_PASS,
    Status.ERROR,
    Status.KNOWN,
    Status.PASSED,
    Status.NOT_TESTED,
    Status.NOT_APPLICABLE,
)
_SHOWN = (
    Status.PASSED,
    Status.FALSIFIED,
    Status.UNEXPECTED_PASS,
    Status.ERROR,
    Status.KNOWN,
    Status.NOT_APPLICABLE,
    Status.NOT_TESTED,
)
_PROPERTY, _VERDICT, _UNCHECKED = "statecheck property", "statecheck verdict", "statecheck unchecked"
_LAUNCHED, _TRIED = "statecheck launches", "statecheck tried"
FAIL_ON_UNTESTED = "--fail-on-untested"
_DID_NOT_REPEAT = "This failure **did not repeat** when the same input was run again."
_NAMES = 8
_judged = pytest.StashKey[Verdict]()


def tested_by(item: pytest.Item) -> Property | None:
    """The property that a test is about, if it is one."""
    test, called = getattr(item, "function", None), getattr(item, "callspec", None)
    takes = hasattr(test, "written") or hasattr(test, "properties")
    return property_of(test, **(called.params if called is not None and takes else {}))


class PropertyTests:
    """A pytest plugin. Verdicts travel with the reports of tests, from the processes of xdist too.

    Args:
        reports: the folder for reports of falsified properties.
        bench: where the examples run of tests that have no `bench` of their own.
    """

    def __init__(self, reports: Path, bench: Bench | None = None) -> None:
        self._bench = bench
        self._kept = _LastFailure(reports)
        self._summary = _Summary()

    def bench_of(self, item: pytest.Item) -> Bench:
        """Where the examples of a property's test run."""
        bench = getattr(item.function, "bench", self._bench)  # type: ignore[attr-defined]
        assert bench is not None, f"{item.nodeid} is run where nobody has named a subject"
        return cast(Bench, bench)

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
            bench = self.bench_of(item)
            reason = tested.not_applicable(bench)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))
            elif _is_collected(item) and not isinstance(tested, MachineProperty):
                examples = tested.examples(bench)
                if _follows_declarations(item):
                    examples = examples_wanted(bench, tested, examples)
                settings(max_examples=examples)(item.function)  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        tested = tested_by(pyfuncitem)
        if tested is None:
            return (yield)
        bench = self.bench_of(pyfuncitem)
        bench.counts.take()
        bench.known_failures.clear()
        # What other tests have launched is none of this one's.
        coverage.take()
        self._kept.begin(tested, bench)
        result = yield
        if _is_collected(pyfuncitem) and _follows_declarations(pyfuncitem):
            run_missing(bench, tested)
        verdict = pyfuncitem.stash[_judged] = _verdict(tested, bench, own=_is_own(pyfuncitem))
        if verdict.status in (Status.NOT_TESTED, Status.NOT_APPLICABLE):
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
            bench = self.bench_of(item)
            _tell(item, tested, status, bench.counts if call.when == "call" else Counts())
            if _is_own(item):
                item.user_properties += [
                    (declared.KEY, text) for text in declared.report_of(bench, tested, status)
                ]
        if tested is not None and call.when == "call":
            item.user_properties += [(_LAUNCHED, text) for text in _spelled(coverage.take().launches)]
        report = yield
        if call.when == "call" and (isinstance(error, Falsified) or tested is not None):
            report.sections += [("statecheck", line) for line in self._kept.end(error)]
            case = self._kept.reported or (error.case if isinstance(error, Falsified) else latest)
            if status is Status.FALSIFIED and case is not None and _is_brief(item.config):
                report.longrepr = in_short(case, *item.location[:2])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._summary.add(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # In a suite of somebody's own, other tests may be all that was asked for.
        void = self._summary.is_void and (self._bench is not None or not self._summary.others)
        if exitstatus != pytest.ExitCode.OK or _is_part(session.config):
            return
        untested = self._summary.untested
        is_failure = untested and session.config.getoption(FAIL_ON_UNTESTED, False)
        if self._summary.defects.is_stale or is_failure:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif void or any(untested.values()):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self._summary.lines():
            terminalreporter.write_line(line)


def _verdict(tested: Property, bench: Bench, *, own: bool) -> Verdict:
    """The verdict on a test that has raised nothing.

    Args:
        own: all examples of the property were the test's, so that a declared deviation had to show among them.
    """
    shown = bench.known_failures
    verdict = verdict_of(bench.counts, known=bool(shown))
    alone = (one for one in bench.subject.known_deviations if one.alone in (tested.name, tested.id))
    missing = next((one for one in alone if one not in shown), None)
    if own and missing is not None and bench.counts.compared >= enough(missing.one_in):
        # The declaration is out of date.
        reason = f"{tested.name} passed, but should fail as declared: {missing.link}"
        return Verdict(Status.UNEXPECTED_PASS, reason)
    if verdict.status is Status.KNOWN:
        return replace(verdict, reason=", ".join(sorted({one.id or one.link for one in shown})))
    return verdict


def _is_own(item: pytest.Item) -> bool:
    """Whether a test is the property's own, and no written example of it."""
    return _is_collected(item) or hasattr(item.function, "properties")  # type: ignore[attr-defined]


def _is_collected(item: pytest.Item) -> bool:
    """Whether a test is what `prop` has made of a property."""
    return hasattr(item.function, "property")  # type: ignore[attr-defined]


def _follows_declarations(item: pytest.Item) -> bool:
    """Whether the declared defects decide how many examples it has: nobody else does, and they are no scenarios."""
    given = item.config.getoption("--max-examples", None) is not None
    return not given and not isinstance(tested_by(item), MachineProperty)


def _is_brief(config: pytest.Config) -> bool:
    """Whether nobody has asked for the frames of Python's traceback."""
    return not config.option.fulltrace and config.option.tbstyle == "auto"


def _is_part(config: pytest.Config) -> bool:
    """Whether this is a process of xdist, whose exit code nobody asks for."""
    return hasattr(config, "workerinput")


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


def _tell(item: pytest.Item, tested: Property, status: Status, counts: Counts) -> None:
    """Write the verdict on a test where its report takes it along."""
    # Several tests may be about one property, which then counts once; subjects of a suite count apart.
    name = item.nodeid if hasattr(item.function, "properties") else tested.name  # type: ignore[attr-defined]
    item.user_properties += [(_PROPERTY, name), (_VERDICT, status.value)]
    item.user_properties += [(_UNCHECKED, place) for place in sorted(counts.unchecked)]
    if status is Status.NOT_TESTED:
        item.user_properties += [(_TRIED, str(counts.examples >= TELLING))]


def _spelled(launches: Mapping[How, int]) -> Iterator[str]:
    """Launches as texts, which go from one process to another."""
    return (json.dumps([*astuple(one), times]) for one, times in launches.items())


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f", and {len(names) - _NAMES} more" if len(names) > _NAMES else "")


class _LastFailure:
    """The last input that failed in a test: on disk from that moment on, until its report is complete."""

    def __init__(self, reports: Path) -> None:
        self.latest: Case | None = None
        self.reported: Case | None = None
        """As its report has it, with the calls of a port's own functions."""
        self._bench: Bench | None = None
        self._places = Places(reports, prefix="statecheck-reports-")
        self._name = ""
        self._pending: set[Path] = set()

    def begin(self, tested: Property, bench: Bench) -> None:
        self.latest, self.reported, self._name = None, None, f"{tested.name}.{os.getpid()}.json"
        self._pending.clear()
        self._bench = bench
        bench.on_falsified = self._keep
        bench.on_error = partial(self._keep_unread, tested)

    def _keep(self, case: Case) -> None:
        self.latest = case
        path = self._places.put(lambda folder: case.save(folder / "pending" / self._name, durable=False))
        if path is not None:
            self._pending.add(path)

    def _keep_unread(self, tested: Property, case: Case, error: Exception) -> None:
        told = self._places.put(lambda folder: kept_unread(case, folder, tested))
        if told is not None:
            error.add_note(told)

    def end(self, error: BaseException | None) -> list[str]:
        """Report what a test that ended with `error` has found; lines for its reader."""
        bench, self._bench = self._bench, None
        if bench is None:
            return []
        bench.on_falsified = lambda case: None
        bench.on_error = lambda case, error: None
        latest, self.latest = self.latest, None
        if isinstance(error, Falsified):
            return self._reported(bench, error.case, "")
        if isinstance(error, Flaky) and latest is not None:
            return [
                latest.message,
                _DID_NOT_REPEAT.replace("*", ""),
                *self._reported(bench, latest, _DID_NOT_REPEAT),
            ]
        return [f"an input that failed is in {path}" for path in sorted(self._pending)]

    def _reported(self, bench: Bench, case: Case, note: str) -> list[str]:
        module = bench.subject.module
        fresh = partial(InWorker, bench.subject.name, bench.port.device, spare=False)
        diagnosis = diagnose(case, Scene(bench.subject, bench.port, fresh, bench.earlier))
        note = " ".join(filter(None, (note, diagnosis.note)))
        self.reported = case = explain(diagnosis, bench.subject).case
        told = [
            *bench.subject.defect_index.errors.values(),
            *([diagnosis.note] if diagnosis.depends_on else []),
        ]
        directory = self._places.put(lambda folder: write_report(case, folder, module, note=note))
        if directory is None:
            print_case(case)
            return [
                *told,
                "no folder took the report: the case is on the standard error",
                *self._places.troubles,
            ]
        for path in self._pending:
            path.unlink(missing_ok=True)
        return [*told, f"report: {directory}/report.md", *self._places.troubles]


class _Summary:
    """The verdicts of a test run, of every process of it."""

    def __init__(self) -> None:
        self._verdicts: dict[str, tuple[str, Status]] = {}
        self._unchecked: set[str] = set()
        self._launches: Counter[How] = Counter()
        self.defects = DeclaredDefects()
        self._tried: set[str] = set()
        self.others = 0
        """Tests that were run and are about no property."""

    def add(self, report: pytest.TestReport) -> None:
        told = [(str(name), str(value)) for name, value in report.user_properties]
        of = dict(told)
        if _VERDICT in of:
            self._verdicts[report.nodeid] = of[_PROPERTY], Status(of[_VERDICT])
            if of.get(_TRIED) == str(True):
                self._tried.add(of[_PROPERTY])
        elif report.when == "call" and report.nodeid not in self._verdicts:
            self.others += 1
        self._unchecked.update(value for name, value in told if name == _UNCHECKED)
        if of.get(_VERDICT) and report.when != "teardown":
            self.defects.add(value for name, value in told if name == declared.KEY)
        if report.when == "call":
            # What comes after it has it too.
            for *how, times in (json.loads(value) for name, value in told if name == _LAUNCHED):
                self._launches[How(*how)] += times

    @property
    def is_void(self) -> bool:
        """Whether there were properties to test, and not one of them was."""
        found = [status for _, status in self._verdicts.values()]
        return bool(found) and not any(status in _COMPARED for status in found)

    @property
    def untested(self) -> dict[str, bool]:
        """Applicable properties that were not tested, and whether there were enough examples to say that it was no chance."""
        found = (name for name, status in self._by_property().items() if status is Status.NOT_TESTED)
        return {name: name in self._tried for name in sorted(found)}

    def lines(self) -> Iterable[str]:
        if not self._verdicts:
            return
        counted = Counter(self._by_property().values())
        told = ", ".join(f"{counted[status]} {status.value}" for status in _SHOWN if counted[status])
        yield f"statecheck: {told}"
        if self.is_void:
            yield "statecheck: nothing was compared, so nothing is known about this subject"
        if self.untested:
            yield f"statecheck: not tested: {_named(list(self.untested))}"
        if self._unchecked:
            names = sorted(self._unchecked)
            yield f"statecheck: seen but not compared, since no rule knows it: {_named(names)}"
        if self._launches:
            yield f"statecheck: kernels: {coverage.summary(self._launches)}"
        yield from self.defects.lines()

    def _by_property(self) -> dict[str, Status]:
        """The worst of each property's tests."""
        found: dict[str, Status] = {}
        for name, status in self._verdicts.values():
            found[name] = min(status, found.get(name, status), key=_WORST_FIRST.index)
        return found
