"""Each configuration of a law is a property: with its own id, its own scenarios, and an item of pytest that can be chosen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis.internal.reflection import function_digest

from statecheck.execution.registry import PROPERTIES
from tests.helpers.modules import module
from tests.helpers.processes import run_pytest

SOURCE = """
from hypothesis import strategies as st

from statecheck.case.values import call
from statecheck.execution.laws import Configuration, law

CONFIGURATIONS = (
    Configuration("boxed/small-box", st.integers(0, 3), ("extend", "fork"), "where the box has room for three"),
    Configuration("boxed/large", st.integers(4, 9), (), "where the box has room for nine"),
)


@law("agreement", "cdiv", CONFIGURATIONS, device="cpu", held=True)
def toys_stay_in_the_box(trial, story):
    \"\"\"Toys stay in the box.

    None is lost.
    \"\"\"
    trial.agrees(call("cdiv", x=story, y=2))
"""


def test_each_configuration_is_a_property_with_the_law_and_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statecheck.execution.registry.PROPERTIES", dict(PROPERTIES))
    with module(tmp_path, "boxed", SOURCE) as imported:
        found = vars(__import__(imported))
    small = found["test_toys_stay_in_the_box[small-box]"].property
    large = found["test_toys_stay_in_the_box[large]"].property
    assert small.sentence == "Toys stay in the box, where the box has room for three."
    assert (small.id, small.kind, small.functions, small.device) == (
        "boxed/small-box",
        "agreement",
        ("cdiv",),
        "cpu",
    )
    assert (small.held, large.held) == (("extend", "fork"), ())
    assert [one.strategies["story"] for one in (small, large)] == [
        one.story for one in found["CONFIGURATIONS"]
    ]
    digests = {function_digest(one.test().hypothesis.inner_test) for one in (small, large)}
    assert len(digests) == 2


@pytest.mark.parametrize(("chosen", "count"), [("", 2), ("[large]", 1)])
def test_pytest_collects_each_configuration_and_one_can_be_chosen(
    tmp_path: Path, chosen: str, count: int
) -> None:
    path = tmp_path / "test_boxed.py"
    path.write_text(SOURCE, encoding="utf-8")
    named = f"{path}::test_toys_stay_in_the_box{chosen}" if chosen else str(path)
    done = run_pytest(
        "--collect-only", "-q", f"--rootdir={tmp_path}", "-p", "statecheck.suite.options", named
    )
    collected = re.findall(r"test_boxed\.py::(test_\S+)", done.stdout)
    assert len(collected) == count
    assert "test_toys_stay_in_the_box[large]" in collected
