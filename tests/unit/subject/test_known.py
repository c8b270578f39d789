"""The file of a subject's known defects."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import subjects
from statecheck.case import Failure
from statecheck.execution.registry import load_properties
from statecheck.rooms import property_files
from statecheck.subject.known import covers, has, known_in
from statecheck.subject.profile import DOCUMENTS
from subjects import Condition, KnownDeviation, Symptom
from subjects.vllm_conditions import CONDITIONS
from tests.helpers.cases import a_case
from tests.helpers.declared import entries
from tests.helpers.modules import ROOT

NEEDED: dict[str, Any] = {
    "id": "off-by-one",
    "title": "It divides wrongly",
    "properties": ["toys/*"],
    "versions": ">=0.20,<0.28",
    "link": "https://example.org/1",
    "why": "seen",
}
SHOWN: dict[str, Any] = {"kind": "refusal", "function": "divide", "place": "the call"}
FAILURE = Failure("refusal", "the call = ValueError: out of order", "", "divide", 0, "the call", "ValueError")


def read(
    folder: Path,
    *entries: dict[str, Any],
    shown: Sequence[dict[str, Any]] = (SHOWN,),
    release: str = "0.25.1",
) -> tuple[KnownDeviation, ...]:
    """The defects of a release in a file of such entries, each with these symptoms."""
    path = folder / "known.toml"
    symptoms = "".join(f"[[known.symptoms]]\n{_table(symptom)}\n" for symptom in shown)
    tables = (f"[[known]]\n{_table(entry)}\n{symptoms}" for entry in entries)
    path.write_text("".join(tables), encoding="utf-8")
    even = Condition(lambda case, _: case.calls[0].named["x"] % 2 == 0)
    return known_in(path, release, {"even": even})


def _table(fields: dict[str, Any]) -> str:
    return "\n".join(f"{name} = {value!r}" for name, value in fields.items())


def narrowed(folder: Path, **fields: Any) -> KnownDeviation:
    (known,) = read(folder, NEEDED, shown=[SHOWN | fields])
    return known


@pytest.mark.parametrize(
    ("versions", "release", "among"),
    [
        (">=0.20,<0.28", "0.20.0", True),
        (">=0.20,<0.28", "0.28.0", False),
        ("<0.9", "0.10.0", False),
        ("", "1.0.0", True),
        ("<0.28", "0.28.0rc1", False),
        (">=0.28", "0.28.0rc1", True),
        (">=0.1", "", False),
    ],
)
def test_versions_are_compared_as_numbers(versions: str, release: str, among: bool) -> None:
    assert has(versions, release) is among


def test_only_the_defects_of_the_release_are_known(tmp_path: Path) -> None:
    later = NEEDED | {"id": "later", "versions": ">=0.28"}
    assert [known.id for known in read(tmp_path, NEEDED, later)] == ["off-by-one"]


@pytest.mark.parametrize(
    ("fields", "shows"),
    [
        ({}, True),
        ({"kind": "value"}, False),
        ({"function": ["cdiv", "divide"]}, True),
        ({"function": "cdiv"}, False),
        ({"function": "d.vide"}, False),
        ({"function": "scenario"}, False),
        ({"place": "result"}, False),
        ({"place": ["result", "the call"]}, True),
        ({"exception": "ValueError"}, True),
        ({"exception": ["TypeError", "ValueError"]}, True),
        ({"exception": "TypeError"}, False),
        ({"condition": "even"}, False),
    ],
    ids=str,
)
def test_a_failure_is_a_defect_s_by_kind_function_place_exception_and_condition(
    tmp_path: Path, fields: dict[str, Any], shows: bool
) -> None:
    assert narrowed(tmp_path, **fields).shows_in(a_case(failure=FAILURE), DOCUMENTS) is shows


def test_a_single_symptom_of_several_is_enough(tmp_path: Path) -> None:
    (known,) = read(tmp_path, NEEDED, shown=[SHOWN | {"kind": "race"}, SHOWN])
    assert known.shows_in(a_case(failure=FAILURE), DOCUMENTS)


def test_no_symptom_is_made_of_the_fields_of_two(tmp_path: Path) -> None:
    (known,) = read(tmp_path, NEEDED, shown=[SHOWN | {"kind": "race"}, SHOWN | {"place": "result"}])
    assert not known.shows_in(a_case(failure=FAILURE), DOCUMENTS)


@pytest.mark.parametrize(
    ("properties", "shows"),
    [(["toys/divide"], True), (["toys/*"], True), (["toys/add", "toys/*s"], False)],
    ids=str,
)
def test_an_entry_names_properties_or_their_ids(tmp_path: Path, properties: list[str], shows: bool) -> None:
    (known,) = read(tmp_path, NEEDED | {"properties": properties})
    assert known.shows_in(a_case(failure=FAILURE, property_id="toys/divide"), DOCUMENTS) is shows


def test_a_case_of_another_property_shows_no_defect(tmp_path: Path) -> None:
    assert not narrowed(tmp_path).shows_in(a_case(property_id="tops/turn", failure=FAILURE), DOCUMENTS)


def test_a_case_of_which_nothing_is_known_to_be_wrong_shows_no_defect(tmp_path: Path) -> None:
    assert not narrowed(tmp_path).shows_in(a_case(failure=None), DOCUMENTS)


@pytest.mark.parametrize(
    ("place", "shows"), [("pool0[3]", True), ("pool12[0, 1]", True), ("spool[1]", False)]
)
def test_a_place_is_compared_without_its_indices(tmp_path: Path, place: str, shows: bool) -> None:
    known = narrowed(tmp_path, place="pool")
    assert known.shows_in(a_case(failure=replace(FAILURE, place=place)), DOCUMENTS) is shows


def test_a_failure_that_no_single_call_shows_is_declared_for_the_scenario(tmp_path: Path) -> None:
    known = narrowed(tmp_path, kind="value", function="scenario", place=["read", "stored"])
    scenario = Failure("value", "in step 1, the forward reads zeros", place="read")
    assert known.shows_in(a_case(failure=scenario), DOCUMENTS)
    assert not known.shows_in(a_case(failure=replace(scenario, place="written")), DOCUMENTS)
    assert not known.shows_in(a_case(failure=replace(scenario, function="divide")), DOCUMENTS)


def test_a_failure_without_a_place_matches_no_defect(tmp_path: Path) -> None:
    assert not narrowed(tmp_path, place="result").shows_in(
        a_case(failure=replace(FAILURE, place="")), DOCUMENTS
    )


@pytest.mark.parametrize("symptoms", [(), "value", ("value",)])
def test_a_declaration_without_symptoms_is_refused(symptoms: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^symptoms = .*, but should be a Symptom or several \[KnownDeviation\]$"
    ):
        KnownDeviation("toys/divide", "https://example.org/1", symptoms)


@pytest.mark.parametrize("name", ["*", "", ("toys/divide", "**"), ()])
def test_a_declaration_for_every_property_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^property = "):
        KnownDeviation(name, "https://example.org/1", Symptom("value", "divide", "result"))


FILES = sorted(Path(subjects.__file__).parent.glob("*_known.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_property_that_a_released_engine_s_file_names_exists(path: Path) -> None:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
    patterns = {pattern for entry in entries for pattern in entry["properties"]}
    assert [
        pattern
        for pattern in sorted(patterns)
        if not any(covers((pattern,), name) for name in load_properties())
    ] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_link_of_a_released_engine_s_file_is_an_address_or_a_report_of_ours(path: Path) -> None:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
    reports = {f"docs/findings/{path.name}" for path in (ROOT / "docs" / "findings").glob("*.md")}
    links = {entry["id"]: entry["link"] for entry in entries if entry["link"] not in reports}
    assert [name for name, link in links.items() if not re.match(r"https://\S+$", link)] == []


def test_every_condition_of_a_released_engine_is_used_by_an_entry() -> None:
    shown = [row for known in entries() for row in known.shown_by]
    assert {id(row.condition) for row in shown} >= {id(condition) for condition in CONDITIONS.values()}


def test_every_declared_exception_is_known_by_its_type() -> None:
    kinds = ("refusal", "race")
    anything = [
        known.id for known in entries() for row in known.shown_by if row.kind in kinds and not row.exception
    ]
    assert anything == []


def test_every_condition_that_a_property_states_has_a_place_to_name() -> None:
    nameless = [
        f"{path.name}:{node.lineno}"
        for path in property_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "holds"
        if "place" not in [keyword.arg for keyword in node.keywords]
    ]
    assert nameless == []
