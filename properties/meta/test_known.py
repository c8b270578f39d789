"""The file of a subject's known defects."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from properties import subjects
from properties.harness.registry import load_properties
from properties.harness.values import Raised, call
from properties.meta.broken import a_case
from properties.subjects import KnownDeviation
from properties.subjects.known import has, known_in

NEEDED = {
    "id": "off-by-one",
    "title": "It divides wrongly",
    "properties": ["toys_*"],
    "versions": ">=0.20,<0.28",
    "link": "https://example.org/1",
    "why": "seen",
}


def read(folder: Path, *entries: dict[str, Any], release: tuple[int, ...] = (0, 25, 1)) -> Any:
    """The defects of a release in a file of such entries."""
    path = folder / "known.toml"
    tables = ("\n".join(f"{name} = {value!r}" for name, value in one.items()) for one in entries)
    path.write_text("".join(f"[[known]]\n{table}\n" for table in tables), encoding="utf-8")
    return known_in(path, release, {"even": lambda case: case.calls[0].named["x"] % 2 == 0})


def narrowed(folder: Path, **fields: str) -> KnownDeviation:
    (known,) = read(folder, NEEDED | fields)
    return known


@pytest.mark.parametrize(
    ("versions", "release", "among"),
    [
        (">=0.20,<0.28", (0, 20, 0), True),
        (">=0.20,<0.28", (0, 27, 9), True),
        (">=0.20,<0.28", (0, 28, 0), False),
        (">0.20.1", (0, 20, 1), False),
        ("==0.25.1", (0, 25, 1), True),
        ("==0.25", (0, 25, 1), False),
        ("!=0.25.1", (0, 25, 1), False),
        ("<=0.25.1, >=0.25", (0, 25), True),
        ("<0.9", (0, 10, 0), False),
        ("", (1, 0, 0), True),
    ],
)
def test_versions_are_compared_as_numbers(versions: str, release: tuple[int, ...], among: bool) -> None:
    assert has(versions, release) is among


@pytest.mark.parametrize("versions", ["0.25", "~=0.25", ">=", ">=0.x", "0.20-0.28"])
def test_versions_that_mean_nothing_are_refused(versions: str) -> None:
    with pytest.raises(ValueError, match=r"^versions = '.*', but should be as in >=0\.20,<0\.28 \[known\]$"):
        has(versions, (0, 25, 1))


def test_only_the_defects_of_the_release_are_known(tmp_path: Path) -> None:
    later = NEEDED | {"id": "later", "versions": ">=0.28"}
    assert [one.id for one in read(tmp_path, NEEDED, later)] == ["off-by-one"]


def test_a_defect_tells_its_title_and_where_it_shows(tmp_path: Path) -> None:
    known = narrowed(tmp_path)
    assert (known.title, known.link, known.property) == (
        "It divides wrongly",
        "https://example.org/1",
        ("toys_*",),
    )


@pytest.mark.parametrize(
    ("fields", "shows"),
    [
        ({}, True),
        ({"function": "div*"}, True),
        ({"function": "cdiv"}, False),
        ({"message": "ValueError.*names x"}, True),
        ({"message": "TypeError"}, False),
        ({"condition": "even"}, False),
    ],
    ids=str,
)
def test_a_defect_is_narrowed_by_function_message_and_condition(
    tmp_path: Path, fields: dict[str, str], shows: bool
) -> None:
    assert narrowed(tmp_path, **fields).shows_in(a_case()) is shows


def test_a_case_of_another_property_shows_no_defect(tmp_path: Path) -> None:
    assert not narrowed(tmp_path).shows_in(a_case(property_name="tops_turn"))


@pytest.mark.parametrize(("function", "shows"), [("divide", True), ("cdiv", False)])
def test_the_function_is_that_of_the_call_that_the_message_spells(
    tmp_path: Path, function: str, shows: bool
) -> None:
    steps = (call("divide", x=5, y=2), call("cdiv", x=5, y=2))
    case = a_case(steps=steps, message="result = 1, but should be 2 [divide(x=5, y=2)]")
    assert narrowed(tmp_path, function=function).shows_in(case) is shows


def test_without_a_spelled_call_the_function_is_that_of_the_last_one(tmp_path: Path) -> None:
    steps = (call("divide", x=5, y=2), call("cdiv", x=5, y=2))
    case = a_case(steps=steps, actual=(Raised("ValueError", "no"),) * 2, message="the story ends badly")
    assert narrowed(tmp_path, function="cdiv").shows_in(case)


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_an_entry_without_a_field_that_is_needed_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} = None, but should be given for .*\[known\.toml\]$"):
        read(tmp_path, {field: value for field, value in NEEDED.items() if field != name})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"kind": "bug"}, "kind = 'bug', but should not be there"),
        ({"condition": "odd"}, r"condition = 'odd', but should be one of \['even'\]"),
        ({"message": "("}, r"message = '\(', but should be a regular expression"),
        ({"properties": "toys_divide"}, "properties = 'toys_divide', but should be a list of names"),
        ({"versions": "all"}, "versions = 'all', but should be as in"),
    ],
    ids=str,
)
def test_an_entry_that_means_nothing_is_refused(
    tmp_path: Path, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}"):
        read(tmp_path, NEEDED | fields)


def test_two_entries_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^id = 'off-by-one', but should be that of one defect \[known"):
        read(tmp_path, NEEDED, NEEDED)


def test_every_property_that_a_released_engine_s_file_names_exists() -> None:
    (path,) = Path(subjects.__file__).parent.glob("*_known.toml")
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
    names = load_properties()
    patterns = {pattern for entry in entries for pattern in entry["properties"]}
    assert [one for one in sorted(patterns) if not any(fnmatchcase(name, one) for name in names)] == []


def test_every_link_of_a_released_engine_s_file_is_an_address() -> None:
    (path,) = Path(subjects.__file__).parent.glob("*_known.toml")
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
    assert [one["id"] for one in entries if not re.match(r"https://\S+$", one["link"])] == []
