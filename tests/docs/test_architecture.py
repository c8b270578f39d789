"""docs/architecture.md says which modules a failing example comes through; it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statecheck.execution.example import Bench
from tests.walk import STEPS, ExampleWalk, walk

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
_STEP = re.compile(r"^### (\d+)\. (.+?)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"\]\(\.\./([\w/]+)\.py\)")
ELSEWHERE = {
    "statecheck.workers.port",
    "statecheck.diagnose.attribution",
    "statecheck.diagnose.earlier_calls",
    "statecheck.diagnose.own_calls",
    "statecheck.report.repro.runtime.process",
}
"""Named beside what the walk comes through."""


@pytest.fixture(scope="module")
def walked(trial: Bench) -> ExampleWalk:
    if trial.port.device != "cpu":
        pytest.skip("the page tells of an example on a CPU")
    return walk()


def named() -> dict[int, list[str]]:
    """The modules that the page links in each step."""
    found = {}
    for number, _, text in _STEP.findall(PAGE.read_text(encoding="utf-8")):
        modules = (path.replace("/", ".").removesuffix(".__init__") for path in _MODULE.findall(text))
        found[int(number)] = [module for module in modules if module not in ELSEWHERE]
    return found


def test_the_page_has_every_step() -> None:
    assert list(named()) == list(range(1, len(STEPS) + 1))


@pytest.mark.parametrize("number", range(1, len(STEPS) + 1), ids=STEPS)
def test_an_example_comes_through_the_modules_that_the_page_names(walked: ExampleWalk, number: int) -> None:
    modules = walked.steps[list(STEPS)[number - 1]]
    assert set(named()[number]) - set(modules) == set()
    assert modules
