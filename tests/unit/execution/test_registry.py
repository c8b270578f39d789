"""The declaration of a property, and the ids that an expression chooses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.stateful import rule

from examples import off_by_one
from statecheck.case.values import call
from statecheck.execution import registry
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.property import ExampleMachine, MachineProperty, no_body
from statecheck.execution.registry import PROPERTIES, Property, load_properties, prop, remember
from statecheck.execution.selection import select
from subjects.plain import adapted
from tests.helpers.cases import a_property
from tests.helpers.processes import run_pytest


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the properties that a test registers."""
    monkeypatch.setattr(registry, "PROPERTIES", dict(load_properties()))


def declared(id_: Any) -> Callable[..., None]:
    @prop(id_, "agreement", "cdiv")
    def test_toys_divide(trial: Any) -> None: ...

    return test_toys_divide


@pytest.mark.parametrize(
    "id_", ["", "toys", "toys/", "/divide", "Toys/divide", "toys/di_vide", "toys/divide/", "toys/di vide"]
)
def test_an_id_is_a_topic_and_a_word(id_: str) -> None:
    with pytest.raises(ValueError, match=r"^id = .*, but should be <topic>/<word>, each of a-z, 0-9 and '-'"):
        declared(id_)
    assert "toys/divide" not in registry.PROPERTIES


def test_an_id_is_that_of_one_property() -> None:
    with pytest.raises(
        ValueError, match=r"^id = 'v1-postprocess/boundary', .* that of another property \[prop\]"
    ):
        declared("v1-postprocess/boundary")
    assert "toys/divide" not in registry.PROPERTIES


def test_a_module_that_is_imported_again_declares_the_same_properties() -> None:
    remember(a_property(id="toys/divide"))
    remember(a_property(id="toys/divide"))


def test_no_id_is_a_part_of_another_s() -> None:
    """A user who types the shorter id would be given both."""
    assert [(id_, other) for id_, other in permutations(PROPERTIES, 2) if id_ in other] == []


# Which properties an expression chooses.

COVER, END, DECODES = IDS = ["fla-chunks/cover", "fla-chunks/end", "split/decodes"]
TESTED = {**load_properties(), **{id_: a_property(id=id_) for id_ in IDS}}
PORT = adapted(off_by_one)


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("fla-chunks/end", [END]),
        ("fla-chunks", [COVER, END]),
        ("split/", [DECODES]),
        ("split/decodes or fla-chunks/cover", [COVER, DECODES]),
        ("not fla-chunks", [DECODES]),
        ("fla-chunks and end", [END]),
        ("decodes", [DECODES]),
    ],
)
def test_an_expression_chooses_ids_by_their_parts(expression: str, chosen: list[str]) -> None:
    assert select(IDS, expression, TESTED, PORT) == chosen


def test_a_word_that_is_a_topic_selects_the_whole_topic_and_nothing_else() -> None:
    ids, tested = [*IDS, "fla-chunks/split"], TESTED | {"fla-chunks/split": TESTED[COVER]}
    assert select(ids, "split", tested, PORT) == [DECODES]
    assert select(ids, "split or cover", tested, PORT) == [COVER, DECODES]


def test_an_expression_that_chooses_nothing_is_refused_with_the_nearest_ids() -> None:
    with pytest.raises(
        ValueError,
        match=r"^only = 'chunk_fla', but should match a property, or a function that properties call; like it are fla-chunks",
    ):
        select(IDS, "chunk_fla", TESTED, PORT)


@pytest.mark.parametrize("name", ["chunk_offsets", "prepare_chunk_offsets"])
def test_the_name_of_a_function_selects_the_properties_that_call_it(name: str) -> None:
    chosen = select(sorted(TESTED), name, TESTED, PORT)
    assert set(chosen) == {
        id_ for id_, tested in TESTED.items() if "prepare_chunk_offsets" in tested.functions
    }


@pytest.mark.slow
def test_pytest_s_own_k_knows_ids() -> None:
    done = run_pytest("properties/test_types.py", "--collect-only", "-q", "-k", "cdiv/ or page-size/padded")
    assert done.stdout.splitlines()[:3] == [
        "properties/test_types.py::test_cdiv_either_sign",
        "properties/test_types.py::test_cdiv_tensor",
        "properties/test_types.py::test_a_page_is_as_large_as_the_rules_say[page-size/padded]",
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("divide/exact", '@prop("divide/exact", '),
        ("lifecycle/v1-provenance", "class RequestsInRowsReadTheStateOfTheirTokens("),
    ],
)
def test_a_test_stands_where_its_statement_does(name: str, line: str) -> None:
    """The test does not stand in the harness, where pytest's list of failures, and a click on it, would lead to otherwise."""
    tested: Any = PROPERTIES[name]
    code = tested.test().__code__
    statement = Path(code.co_filename).read_text(encoding="utf-8").splitlines()[code.co_firstlineno - 1 :]
    # Of a class, some versions of Python count the line of its decorator.
    assert any(text.startswith(line) for text in statement[:2])


# What it remembers of failures.


def fails(trial: Example, x: int) -> None:
    trial.run(call("divide", x=x, y=1))
    trial.holds(x > 9, f"x = {x}", "should be > 9")


class Failing(ExampleMachine):
    """Fails in its first step."""

    @rule(number=st.integers(0, 9))
    def fail(self, number: int) -> None:
        fails(self.trial, number)


@pytest.mark.parametrize(
    "tested",
    [
        a_property(fails, strategies={"x": st.integers(0, 9)}),
        MachineProperty("toys/failing", "Fails.", "algebra", (), no_body, {}, __name__, machine=Failing),
    ],
    ids=["body", "machine"],
)
def test_a_test_run_keeps_failures_in_the_database_and_an_exploration_does_not(
    tested: Property, trial: ExecutionContext
) -> None:
    database = InMemoryExampleDatabase()
    before = settings.default
    settings.register_profile("with_database", before, database=database)
    settings.load_profile("with_database")
    try:
        with pytest.raises(Falsified):
            tested.explore(trial, seed=1, max_examples=20)
        assert database.data == {}
        with pytest.raises(Falsified):
            tested.search(trial)
        assert database.data != {}
    finally:
        settings.register_profile("before", before)
        settings.load_profile("before")
