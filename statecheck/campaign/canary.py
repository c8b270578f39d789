"""A property that must fail: if a campaign does not find, shrink, report and replay it, what it passes means nothing."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st

from statecheck.case import Case
from statecheck.case.values import Device, call
from statecheck.diagnose.replay import replay
from statecheck.execution.example import Example, ExecutionContext, Falsified, Observer
from statecheck.execution.executors import Executor
from statecheck.execution.plain import LARGEST_RIGHT_NUMBER
from statecheck.execution.registry import Property
from statecheck.report.render import write_report

NAME = "harness/canary"
_EXAMPLES = 200
# Not test_repro.py: a case that is no straight-line code on the subject has none.
_FILES = ("case.json", "repro.py", "report.md", "report.html")


class CanaryNotFound(Exception):
    """The canary was not found, shrunk, reported and replayed."""


def _body(trial: Example, number: int) -> None:
    trial.agrees(call("harness.canary_identity", number=number, device=Device()))


CANARY = Property(
    NAME,
    "Every number is returned as it is. (It is not: this property has to fail, or no other property can be trusted.)",
    "agreement",
    ("harness.canary_identity",),
    _body,
    {"number": st.integers(0, 10**6)},
    __name__,
)


def run_canary(context: ExecutionContext, folder: Path, port: Executor | None = None) -> str:
    """Find, shrink, report in `folder` and replay the canary; a summary in a few words.

    Args:
        port: to replay it on; the context's own without one.

    Raises:
        CanaryNotFound: names what did not happen.
    """
    started, before = time.monotonic(), context.examples
    case = _failing_case(context)
    smallest = case.calls[-1].named["number"]
    if smallest != LARGEST_RIGHT_NUMBER + 1:
        raise CanaryNotFound(f"it was shrunk to {smallest}, but should be to {LARGEST_RIGHT_NUMBER + 1}")
    directory = write_report(case, folder, context.subject)
    missing = [name for name in _FILES if not (directory / name).is_file()]
    if missing:
        raise CanaryNotFound(f"its report lacks {', '.join(missing)}")
    if replay(Case.load(directory / "case.json"), port or context.port) is None:
        raise CanaryNotFound("its case did not fail when it was replayed")
    seconds = time.monotonic() - started
    return f"found and shrunk to {smallest} in {context.examples - before} examples, reported and replayed, {seconds:.1f} s"


def _failing_case(context: ExecutionContext) -> Case:
    """The case of the canary, which is no finding of the campaign."""
    observer, context.observer = context.observer, Observer()
    # It has to be found, not remembered.
    chosen = settings(max_examples=_EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    try:
        chosen(seed(0)(CANARY.test()))(context)
    except Falsified as error:
        return error.case
    finally:
        context.observer = observer
    raise CanaryNotFound(f"{_EXAMPLES} examples of it passed")
