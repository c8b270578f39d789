"""docs/architecture.md says which modules a failing example comes through; it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statecheck.execution.example import Bench
from tests.walk import STEPS, ExampleWalk, room_of, walk

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


def test_a_module_counts_once_in_a_step_and_is_returned_to_in_later_ones() -> None:
    steps = {"draw": ["oracle.a", "oracle.b"], "trial": ["oracle.a", "properties.test_a"]}
    assert str(ExampleWalk(steps)).splitlines()[-2:] == [
        "3 modules, 4 stays, 1 returns",
        "2 rooms, 3 stays, 1 returns",
    ]


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("oracle.align.memory", "oracle"),
        ("properties.test_chunks", "test_*"),
        ("subjects.plain", "subjects"),
        ("statecheck.case.values", "statecheck/case"),
    ],
)
def test_a_room_is_a_folder_of_the_harness_or_below_properties(module: str, room: str) -> None:
    assert room_of(module) == room
