"""A declared defect that no longer fails: a test run and a campaign say the same of it, after as many examples."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import Counts, Status
from statecheck.subject.known import ONE_IN, enough
from statecheck.suite.items import suite_of
from statecheck.suite.summary import DeclaredDefects, examples_wanted, report_of
from subjects import KnownDeviation, Symptom
from tests.helpers.cases import toy
from tests.helpers.modules import module
from tests.helpers.processes import run_pytest

WRONG = Symptom("value", "cdiv", "result")
EITHER, TENSOR = "cdiv/either-sign", "cdiv/tensor"
PORT = """
import sys

import torch

from subjects import KnownDeviation, Subject, Symptom


def cdiv(x, y):
    if isinstance(x, torch.Tensor) and not torch.iinfo(x.dtype).min <= y <= torch.iinfo(x.dtype).max:
        raise ValueError(f"y = {y}, but should be in the range of {x.dtype}")
    return -(-x // y)


SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (KnownDeviation(("cdiv/*",), "https://example.org/2", Symptom("value", "cdiv", "result"), id="gone"),),
)
"""


def _bench(*names: str, one_in: int = ONE_IN) -> ExecutionContext:
    subject = toy(KnownDeviation(names, "bug", WRONG, id="x", one_in=one_in), cdiv=lambda x, y: -(-x // y))
    return ExecutionContext(subject, InProcess(subject, "cpu"))


def _lines(*rows: tuple[str, Status, int, bool], names: tuple[str, ...] = ("cdiv/*",)) -> tuple[bool, str]:
    """The lines of a test run about a defect after tests with these compared examples, in which it showed or not."""
    context, defects, tested = _bench(*names), DeclaredDefects(), load_properties()
    by_id = {property_.id: property_ for property_ in tested.values()}
    for id_, status, compared, showed in rows:
        context.counts = Counts(compared, compared)
        context.known_failures = Counter(context.subject.known_deviations * 3 if showed else ())
        defects.add(report_of(context, by_id[id_], status))
    return defects.is_stale, " ".join(defects.lines())


@pytest.mark.parametrize(
    ("rows", "stale", "message"),
    [
        (
            [("cdiv/either-sign", Status.PASSED, 200, False), (TENSOR, Status.PASSED, 200, False)],
            True,
            (
                "statecheck: UNEXPECTED PASS: known defect x no longer fails: "
                "400 examples of 2 properties did not show it: bug"
            ),
        ),
        (
            [("cdiv/either-sign", Status.PASSED, 200, False), (TENSOR, Status.PASSED, 199, False)],
            False,
            (
                "known defect x not tried enough: 399 examples of 2 properties did not show it, "
                "and 200 of each of its 2 properties would tell whether it is gone"
            ),
        ),
        (
            [("cdiv/either-sign", Status.KNOWN, 3, True), (TENSOR, Status.PASSED, 900, False)],
            False,
            "statecheck: known defect x matched 3 failures of 1 property: bug",
        ),
    ],
    ids=str,
)
def test_a_test_run_calls_a_defect_gone_by_the_rule_of_campaigns(
    rows: list[tuple[str, Status, int, bool]], stale: bool, message: str
) -> None:
    found, line = _lines(*rows)
    assert (found, message in line, bool(line)) == (stale, True, bool(message))


def test_reports_of_defects_travel_between_processes_as_text() -> None:
    context = _bench("cdiv/*")
    (text,) = report_of(context, load_properties()[EITHER], Status.PASSED)
    assert json.loads(text)[1] == "x"


@pytest.mark.parametrize(
    ("names", "one_in", "wanted"),
    [(("cdiv/*",), 20, 200), (("cdiv/*",), 200, 2000), (("divide/*",), 200, 100), (("cdiv/*",), 1, 100)],
)
def test_a_test_run_gives_a_property_the_examples_that_its_defects_need(
    names: tuple[str, ...], one_in: int, wanted: int
) -> None:
    assert examples_wanted(_bench(*names, one_in=one_in), load_properties()[EITHER], 100) == wanted


def test_kernels_that_are_executed_on_a_cpu_get_no_more_examples() -> None:
    launching = next(tested for tested in load_properties().values() if tested.launches)
    assert examples_wanted(_bench(launching.id), launching, 20) == 20 < enough(ONE_IN)


def test_a_test_of_ones_own_suite_compares_as_many_examples_as_its_defects_need(tmp_path: Path) -> None:
    contract = "(Outside('cdiv', 'x is even', lambda call: call.named['x'] % 2 == 0),)"
    source = PORT.replace("import KnownDeviation,", "import Outside, KnownDeviation,")
    with module(tmp_path, "own_port", f"{source}SUBJECT.outside = {contract}\n") as port:
        test = suite_of(port, ("", 1), device="cpu", known=None, require=(), max_examples=None)
        context = test.context  # type: ignore[attr-defined]
        getoption = dict[str, object]().get
        test(EITHER, SimpleNamespace(config=SimpleNamespace(getoption=getoption)))
    assert sum(context.counts.outside.values()) > 0
    assert context.counts.compared >= enough(ONE_IN)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 1, "statecheck: UNEXPECTED PASS: known defect gone no longer fails: "),
        (("-n", "2"), 1, "statecheck: UNEXPECTED PASS: known defect gone no longer fails: "),
        (("--max-examples", "20"), 0, "statecheck: known defect gone not tried enough: "),
        (("-k", "either_sign"), 0, "statecheck: known defect gone not tried enough: "),
    ],
    ids=str,
)
@pytest.mark.slow
def test_a_test_run_fails_where_a_defect_of_several_properties_no_longer_does(
    tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "stale_port.py").write_text(PORT, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables = {"PYTHONPATH": str(tmp_path), "CI": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}
    chosen = ("--device", "cpu", "--subject", "stale_port", "--reports", str(tmp_path / "reports"))
    done = run_pytest(*chosen, *options, "properties/test_types.py", env=inherited | variables)
    assert (done.returncode, message in done.stdout) == (code, True), done.stdout + done.stderr
