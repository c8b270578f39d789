"""Each row of a property's table is a property: with its own id, its own inputs, and an item of pytest that can be chosen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.internal.reflection import function_digest

from statecheck.case.values import call
from statecheck.execution import registry
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import Configuration, load_properties, prop
from tests.helpers.cases import toy
from tests.helpers.modules import module
from tests.helpers.processes import run_pytest


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the properties that a test registers."""
    monkeypatch.setattr(registry, "PROPERTIES", dict(load_properties()))


SOURCE = """
from hypothesis import strategies as st

from statecheck.case.values import call
from statecheck.execution.registry import Configuration, prop

BOXES = (
    Configuration("boxed/small-box", "floor", x=st.integers(0, 3), device="cpu", situations=("a toy", "no toy"),
        reason="where the box has room for three"),
    Configuration("boxed/large", x=st.integers(4, 9), y=2, kind="width"),
)


@prop(BOXES, "agreement", "cdiv", y=1)
def toys_stay_in_the_box(trial, x, y):
    \"\"\"Toys stay in the box.

    None is lost.
    \"\"\"
    trial.agrees(call("cdiv", x=x, y=y))
"""


def test_each_row_is_a_property_with_its_functions_and_its_reason(tmp_path: Path) -> None:
    with module(tmp_path, "boxed", SOURCE) as imported:
        found = vars(__import__(imported))
    small = found["test_toys_stay_in_the_box[boxed/small-box]"].property
    large = found["test_toys_stay_in_the_box[boxed/large]"].property
    assert (small.id, small.kind, small.functions, small.device, small.situations) == (
        "boxed/small-box",
        "agreement",
        ("floor", "cdiv"),
        "cpu",
        ("a toy", "no toy"),
    )
    assert large.kind == "width"
    assert (large.functions, large.device, large.situations) == (("cdiv",), None, ())
    assert small.sentence == "Toys stay in the box, where the box has room for three."
    assert large.sentence == "Toys stay in the box."
    assert {name: list(tested.strategies) for name, tested in (("small", small), ("large", large))} == {
        "small": ["x"],
        "large": ["x"],
    }


def test_the_body_gets_what_the_row_draws_and_what_it_hands_over() -> None:
    @prop((Configuration("toys/floor", x=st.integers(0, 9), divisor=2),), "agreement", "cdiv")
    def toys_round_up(trial: Example, x: int, divisor: int) -> None:
        trial.agrees(call("cdiv", x=x, y=divisor))

    subject = toy(cdiv=lambda x, y: x // y)
    context = ExecutionContext(subject, InProcess(subject, "cpu"))
    with pytest.raises(Falsified) as found:
        registry.PROPERTIES["toys/floor"].explore(context, seed=1, max_examples=50)
    case = found.value.case
    assert case.property_id == "toys/floor"
    assert case.calls == (call("cdiv", x=1, y=2),)


def test_two_rows_of_one_id_are_refused() -> None:
    def toys_turn(trial: Any) -> None:
        """Toys turn."""

    rows = Configuration("toys/turn"), Configuration("toys/turn", reason="to the left")
    with pytest.raises(ValueError, match=r"^id = 'toys/turn', but should not be that of another property"):
        prop(rows, "agreement", "cdiv")(toys_turn)


@pytest.mark.parametrize(("chosen", "count"), [("", 2), ("[boxed/large]", 1)])
def test_pytest_collects_each_row_and_one_can_be_chosen(tmp_path: Path, chosen: str, count: int) -> None:
    path = tmp_path / "test_boxed.py"
    path.write_text(SOURCE, encoding="utf-8")
    named = f"{path}::test_toys_stay_in_the_box{chosen}" if chosen else str(path)
    done = run_pytest(
        "--collect-only", "-q", f"--rootdir={tmp_path}", "-p", "statecheck.suite.options", named
    )
    collected = re.findall(r"test_boxed\.py::(test_\S+)", done.stdout)
    assert len(collected) == count
    assert "test_toys_stay_in_the_box[boxed/large]" in collected


def test_examples_of_rows_are_kept_apart_and_found_again(tmp_path: Path) -> None:
    def digests(name: str) -> list[bytes]:
        with module(tmp_path, name, SOURCE) as imported:
            found = vars(__import__(imported))
            tests = [found[f"test_toys_stay_in_the_box[boxed/{word}]"] for word in ("small-box", "large")]
            return [function_digest(test.hypothesis.inner_test) for test in tests]

    first, two = digests("boxed")
    registry.PROPERTIES.clear()
    assert first != two
    assert digests("boxed") == [first, two]
