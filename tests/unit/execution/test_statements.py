"""Properties that are rows of a table are properties like any other: by name, by place, and in what is remembered of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.internal.reflection import function_digest

from statecheck.case.values import call
from statecheck.execution import registry
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.execution.statements import statement, statements
from tests.helpers.cases import toy
from tests.helpers.modules import module
from tests.helpers.processes import run_pytest


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "PROPERTIES", dict(load_properties()))


def steps_of(function: str) -> Any:
    return lambda x: [call(function, x=x, y=2)]


def rows() -> tuple[Any, ...]:
    return (
        statement("toys/floor", "agreement", ["floor"], x=st.integers(0, 9), steps=steps_of("cdiv"), says="toys round down"),
        statement("toys/ceiling", "algebra", ["cdiv"], x=st.integers(0, 9), steps=steps_of("cdiv"), device="cuda",
            says="a toy's ceiling is up", sentence="Toys round up."),
    )  # fmt: skip


def declared(*of: Any) -> None:
    @statements(*of)
    def agree(trial: Example, x: int, steps: Any) -> None:
        trial.agrees(*steps(x))


def test_each_row_is_a_property_of_its_own() -> None:
    declared(*rows())
    floor, ceiling = registry.PROPERTIES["toys/floor"], registry.PROPERTIES["toys/ceiling"]
    assert (floor.id, floor.kind, floor.functions, floor.device) == (
        "toys/floor",
        "agreement",
        ("floor",),
        None,
    )
    assert (ceiling.id, ceiling.kind, ceiling.device) == ("toys/ceiling", "algebra", "cuda")
    assert (floor.sentence, ceiling.sentence) == ("Toys round down.", "A toy's ceiling is up.")
    assert set(floor.strategies) == {"x"}
    assert floor.module == __name__


def test_a_row_s_body_is_the_table_s_on_what_the_row_calls() -> None:
    declared(*rows())
    subject = toy(cdiv=lambda x, y: x // y)
    context = ExecutionContext(subject, InProcess(subject, "cpu"))
    with pytest.raises(Falsified) as found:
        registry.PROPERTIES["toys/floor"].explore(context, seed=1, max_examples=50)
    case = found.value.case
    assert case.property_id == "toys/floor"
    assert case.calls == (call("cdiv", x=1, y=2),)


def test_two_rows_of_one_id_are_refused() -> None:
    _, second = rows()
    with pytest.raises(ValueError, match=r"^id = 'toys/ceiling', but should not be that of another property"):
        declared(second, statement("toys/ceiling", "agreement", ["cdiv"], says="toys turn", x=st.integers()))


SOURCE = """
from hypothesis import strategies as st

from statecheck.case.values import call
from statecheck.execution.statements import statement, statements


def floor(x):
    return [call("floor", x=x)]


@statements(
    statement("tabled/one", "agreement", ["cdiv"], x=st.integers(), steps=floor, says="one is tabled"),
    statement(
        "tabled/two", "agreement", ["cdiv"],
        x=st.integers(), steps=floor, says="two is tabled",
    ),
)
def agree(trial, x, steps):
    trial.agrees(*steps(x))
"""


def line_of(text: str) -> int:
    return SOURCE.splitlines().index(text) + 1


def test_pytest_collects_each_row_at_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "test_tabled.py").write_text(SOURCE, encoding="utf-8")
    plugin = "def pytest_itemcollected(item):\n    print('found', item.name, item.reportinfo()[1] + 1)\n"
    (tmp_path / "conftest.py").write_text(plugin, encoding="utf-8")
    options = (
        "--collect-only",
        "-q",
        "-s",
        f"--rootdir={tmp_path}",
        "-p",
        "statecheck.suite.options",
    )
    done = run_pytest(*options, str(tmp_path / "test_tabled.py"))
    one = next(number for number, line in enumerate(SOURCE.splitlines(), 1) if "tabled/one" in line)
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("found")]
    assert found == [["test_one_is_tabled", str(one)], ["test_two_is_tabled", str(line_of("    statement("))]]


def test_what_hypothesis_remembers_of_rows_is_kept_apart_and_found_again(tmp_path: Path) -> None:
    def digests(name: str) -> list[bytes]:
        with module(tmp_path, name, SOURCE) as imported:
            found = vars(__import__(imported))
            tests = [found[f"test_{word}_is_tabled"] for word in ("one", "two")]
            return [function_digest(test.hypothesis.inner_test) for test in tests]

    one, two = digests("tabled")
    registry.PROPERTIES.clear()
    assert one != two
    assert digests("tabled") == [one, two]
