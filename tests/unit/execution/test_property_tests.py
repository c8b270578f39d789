"""pytest gives properties the verdicts that every other command gives, and loses no input that failed."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.failure import unchecked
from statecheck.case.values import Let, Raised, Refusal, Returned, call, int32, record
from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.suite.summary import RESULT
from statecheck.suite.verdicts import PropertyTests
from statecheck.util.files import write_text, write_whole
from tests.helpers.cases import a_case, a_property, toy
from tests.helpers.processes import run_pytest

TYPES = "properties/test_types.py"
CEILING = (TYPES, "-k", "cdiv/either-sign")


@dataclass(frozen=True)
class Session:
    folder: Path
    code: int
    output: str
    errors: str

    @property
    def summary(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("statecheck: ")][1:]

    @property
    def pending(self) -> list[Path]:
        return sorted((self.folder / "reports" / "pending").glob("*"))


def session(folder: Path, subject: str, *options: str, source: str = "", **variables: str) -> Session:
    """A pytest session of its own, on a subject that `source` may be the text of."""
    if source:
        (folder / f"{subject}.py").write_text(source, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # CI=1, so that the failures are the same ones each time.
    variables = {
        "PYTHONPATH": str(folder),
        "CI": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder),
    } | variables
    chosen = ["--device", "cpu", "--subject", subject, "--reports", str(folder / "reports"), *options]
    chosen += [] if "--max-examples" in options else ["--max-examples", "25"]
    done = run_pytest("-rA", *chosen, env=inherited | variables)
    return Session(folder, done.returncode, done.stdout, done.stderr)


PROCESSES = ["0", pytest.param("1", marks=pytest.mark.slow)]


# Verdicts


def test_a_session_in_which_nothing_was_compared_fails(tmp_path: Path) -> None:
    found = session(tmp_path, "json", TYPES, "-n", "0")
    assert "passed" not in found.output.splitlines()[-1]
    assert found.code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert found.summary == [
        "statecheck: json: 0 of 0 applicable properties selected; 0 of 0 examples compared",
        "statecheck: 6 not applicable",
        "statecheck: nothing was compared, so nothing is known about this subject",
    ]


def test_the_examples_of_a_test_are_counted_once(tmp_path: Path) -> None:
    found = session(tmp_path, "impl", TYPES, "-k", "divide", "--max-examples", "20", "-n", "0")
    assert " of 20 examples compared" in found.summary[0]


def test_a_session_without_properties_is_as_it_was(tmp_path: Path) -> None:
    found = session(tmp_path, "json", "tests/oracle/test_draft_trees.py")
    assert (found.code, found.summary) == (0, [])


VERDICTS = """
import sys

from subjects import KnownDeviation, NotOffered, Outside, Subject, Symptom


def divide(x, y):
    return 0


def cdiv(x, y):
    raise NotOffered("no ceilings")


class MambaSpec:
    def __init__(self, **fields):
        vars(self).update(fields)

    @property
    def page_size_bytes(self):
        return -1


SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (
        KnownDeviation(
            "divide/exact",
            "https://example.org/1",
            (Symptom("value", "divide", "result"), Symptom("refusal", "divide", "result")),
            id="rounds",
        ),
    ),
)
"""


@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.slow
def test_every_property_counts_in_one_place(tmp_path: Path, processes: str) -> None:
    found = session(tmp_path, "toy_verdicts", TYPES, "-n", processes, source=VERDICTS)
    assert found.code == 1
    evidence, verdicts, matched = found.summary
    assert evidence.startswith("statecheck: toy_verdicts: 5 of 6 applicable properties selected; ")
    assert verdicts == "statecheck: 2 FALSIFIED, 1 known, 3 not applicable"
    assert matched.startswith("statecheck: known defect rounds matched ")
    assert matched.endswith(" failures of 1 property: https://example.org/1")
    assert "not applicable: no ceilings" in found.output
    assert "known: rounds" in found.output
    assert "not applicable: toy_verdicts has no MambaSpec.max_memory_usage_bytes" in found.output


REPAIRED = """
import sys

from subjects import KnownDeviation, Subject, Symptom


def cdiv(x, y):
    return -(-x // y)


ROUNDS_DOWN = Symptom("value", "cdiv", "result")
KNOWN = KnownDeviation("cdiv/either-sign", "https://example.org/2", ROUNDS_DOWN)
SUBJECT = Subject(__name__, sys.modules[__name__], (KNOWN,))
"""


@pytest.mark.slow
def test_a_declared_deviation_that_does_not_show_fails(tmp_path: Path) -> None:
    found = session(tmp_path, "toy_repaired", *CEILING, "--max-examples", "300", source=REPAIRED)
    assert found.code == 1
    assert "passed, but should fail as declared: https://example.org/2" in found.output


def test_refusals_and_orders_skip_a_subject_without_refusals_and_launches(tmp_path: Path) -> None:
    files = ("properties/test_refusals.py", "properties/test_align_copies.py")
    chosen = ("-k", "refusals/bad-input or copy-meta/program-order")
    found = session(tmp_path, "examples.numpy_port", *files, *chosen)
    assert found.code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert found.summary[1] == "statecheck: 2 not applicable"
    assert "examples.numpy_port does not promise to refuse what is undocumented" in found.output
    assert "no launch of several programs, which could run in another order" in found.output
    assert " passed" not in found.output.splitlines()[-1]


def test_fields_that_the_rules_do_not_know_are_counted_when_they_are_seen() -> None:
    rules = Returned(record("R", size=1, rows=(record("Row", at=0),)), after=(("x", 1),))
    seen = Returned(
        record("R", size=1, extra=2, rows=(record("Row", at=0, to=1),)), after=(("x", 1), ("y", 2))
    )
    assert unchecked(rules, seen) == ["y", "result.extra", "result.rows.to"]
    assert unchecked(seen, seen) == []
    assert unchecked(Refusal("x"), Raised("ValueError", "x", after=(("pool0", 1),))) == ["pool"]


def test_fields_compared_without_a_rule_are_in_the_counts_of_the_context() -> None:
    subject = toy(cdiv=lambda x, y: -(-x // y))
    context = ExecutionContext(subject, InProcess(subject, "cpu"))
    context.begin(a_property()).agrees(Let("a", int32([1])), call("cdiv", x=5, y=2, observes=["a"]))
    known = dict(context.counts.unchecked)
    context.begin(a_property()).agrees(call("cdiv", x=5, y=2, observes=["b"]))
    assert (known, context.counts.unchecked) == ({}, {"cdiv: b": 1})


NOT_EXECUTED = "1 not executed: move_kernel (tt.new), 2 launches"


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        ({"unchecked": ["f: x"]}, "seen but not compared, since no rule knows it: f: x"),
        (
            {
                "launches": [
                    ["copy_kernel", "executed", "", "copy.py:1", 5],
                    ["move_kernel", "not executed", "tt.new", "copy.py:9", 1],
                ]
            },
            f"kernels: 1 executed from their IR (10 launches); {NOT_EXECUTED}",
        ),
    ],
    ids=["what no rule knows", "launches"],
)
def test_reports_of_tests_stand_once_at_the_end_of_a_session(seen: dict[str, list[Any]], line: str) -> None:
    plugin = PropertyTests(Path(), bench_of_nothing())
    for name in ("test_one", "test_two"):
        for phase in ("setup", "call", "teardown"):
            plugin.pytest_runtest_logreport(reported(name, RESULT_OF_A_TEST | seen, phase))
    lines: list[str] = []
    plugin.pytest_terminal_summary(SimpleNamespace(write_line=lines.append))
    assert lines[-1] == f"statecheck: {line}"


RESULT_OF_A_TEST = {
    "phase": "call",
    "name": "p",
    "status": "passed",
    "subject": "toy",
    "applicable": 1,
    "property": "p",
    "applies": True,
    "examples": 1,
    "compared": 1,
    "models": 0,
    "compared_models": [],
    "unverified": {},
    "unchecked": [],
    "declared": [],
    "launches": [],
}


def reported(name: str, result: dict[str, Any] | None, phase: Any = "call") -> pytest.TestReport:
    """The report of pytest for a phase of a test with this result, or without any."""
    carried = [(RESULT, json.dumps(result))] if result is not None else []
    return pytest.TestReport(name, (name, 1, name), {}, "passed", None, phase, user_properties=carried)


def test_a_session_says_how_the_subject_s_kernels_were_run(tmp_path: Path) -> None:
    where = ("properties/test_align_copies.py", "-k", "v1-postprocess/kernel-launch", "-n", "0")
    found = session(tmp_path, "impl", *where)
    launched = [line for line in found.summary if "kernels" in line]
    assert len(launched) == 1, found.output
    assert re.fullmatch(r"statecheck: kernels: \d executed from their IR \([\d,]+ launch(es)?\)", launched[0])


def bench_of_nothing() -> ExecutionContext:
    return ExecutionContext(toy(), InProcess(toy(), "cpu"))


# Inputs that failed

FLAKY = """
calls = 0


def cdiv(x, y):
    global calls
    calls += 1
    {at_last}
    return 7 * (calls == 3) - (-x // y)
"""


@pytest.mark.slow
def test_an_input_that_failed_once_and_never_again_is_reported_with_a_note(tmp_path: Path) -> None:
    found = session(tmp_path, "toy_flaky", *CEILING, source=FLAKY.format(at_last=""))
    assert found.code == 1
    assert found.summary[1:] == ["statecheck: 1 FALSIFIED"]
    (report,) = (found.folder / "reports").glob("*cdiv-either-sign*/report.md")
    assert f"report: {report}" in found.output
    assert "run it again: " in found.output
    assert "Depends on 2 earlier calls" in report.read_text(encoding="utf-8")
    assert found.pending == []


def test_an_input_that_failed_is_on_disk_before_anything_else_happens(tmp_path: Path) -> None:
    ends = "import os; calls == 5 and os._exit(9)"
    found = session(tmp_path, "toy_ends", *CEILING, source=FLAKY.format(at_last=ends))
    assert found.code == 9
    (kept,) = found.pending
    assert Case.load(kept).calls[0].function == "cdiv"


WRONG = """
def cdiv(x, y):
    raise TypeError("half a pair: \\ud800")
"""


@pytest.mark.slow
def test_where_reports_cannot_be_written_the_case_is_on_the_standard_error(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("no folder")
    found = session(tmp_path, "toy_wrong", *CEILING, source=WRONG)
    assert "reports took no report (Not a directory): the case is on the standard error" in found.output
    start = found.errors.index("{\n")
    case = Case.from_data(json.JSONDecoder().raw_decode(found.errors[start:])[0])
    assert case.calls[0].function == "cdiv"


def test_text_with_half_a_surrogate_pair_is_written_and_json_means_the_same(tmp_path: Path) -> None:
    write_text(tmp_path / "report.md", "half \ud800")
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == "half \\ud800"
    write_whole(tmp_path / "report.json", '"half \ud800"')
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == "half \ud800"
    case = a_case(sentence="half \ud800")
    assert Case.load(case.save(tmp_path / "case.json")) == case


@pytest.mark.parametrize(("own", "code"), [(True, 5), (False, 0)])
def test_other_tests_of_a_users_own_suite_count_where_nothing_was_compared(own: bool, code: int) -> None:
    plugin = PropertyTests(Path(), bench_of_nothing() if own else None)
    plugin.pytest_runtest_logreport(reported("test_p", RESULT_OF_A_TEST | {"status": "not applicable"}))
    plugin.pytest_runtest_logreport(reported("test_other", None))
    session: Any = SimpleNamespace(exitstatus=0, config=SimpleNamespace())
    plugin.pytest_sessionfinish(session, 0)
    assert session.exitstatus == code
