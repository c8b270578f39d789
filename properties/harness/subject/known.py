"""Known defects of a subject, as a file: what campaigns go past, and where it is told of.

The file is TOML with a table `[[known]]` for each defect:

    id          a short name
    title       the defect in a sentence
    properties  names or ids of the properties that it shows in, with `*` for any characters as a part of one
    versions    releases that have it, such as ">=0.20,<0.28"
    link        where it is told of
    why         what goes wrong, and how we know
    source      optional: the place in a release's source
    one_in      optional: about so many examples of a property show it once, 20 if this is not given; it is not said to be gone
                before ten times as many

and in it a table `[[known.symptoms]]` for each way in which it shows, with the fields of a failure:

    kind        "value", "refusal", "memory", "race", "fault" or "hang"
    function    the function whose call shows it, or a list of them; "" for what an engine's life shows and no single call
    place       where in the result, without indices, or a list of such places
    exception   optional: the name of the exception that is raised, or a list of them
    condition   optional: what it wants of the case besides, by name

A failure is one of the defect's if it has all the fields of one symptom. Functions and places may have `*` for any
characters as a part of a name, too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from properties.harness.subject.deviation import ONE_IN, Condition, KnownDeviation, Symptom

_NEEDED = ("id", "title", "properties", "versions", "link", "why", "symptoms")
_OPTIONAL = ("source", "one_in")
_NEEDED_OF_SYMPTOM = ("kind", "function", "place")
_OPTIONAL_OF_SYMPTOM = ("exception", "condition")


def known_in(
    path: Path, release: str, conditions: Mapping[str, Condition] | None = None
) -> tuple[KnownDeviation, ...]:
    """The defects in the file that the release has.

    Args:
        release: such as "0.25.1"; "" is older than any.
        conditions: the functions that entries name.

    Raises:
        ValueError: an entry is not as described above.
    """
    made = declared_in(path, conditions)
    return tuple(known for known, versions in made if has(versions, release))


def declared_in(
    path: Path, conditions: Mapping[str, Condition] | None = None
) -> tuple[tuple[KnownDeviation, str], ...]:
    """All defects in the file, each with the releases that have it.

    Raises:
        ValueError: an entry is not as described above.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
    made = tuple(_made(entry, conditions or {}, path) for entry in entries)
    ids = [known.id for known, _ in made]
    for one in ids:
        if ids.count(one) > 1:
            raise ValueError(f"id = {one!r}, but should be that of one defect [{path.name}]")
    return made


def has(versions: str, release: str) -> bool:
    """Whether a release such as "0.25.1" is among `versions`, such as ">=0.20,<0.28"; "" is all of them.

    Raises:
        ValueError: `versions` says something else.
    """
    try:
        wanted = SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise ValueError(f"versions = {versions!r}, but should be as in >=0.20,<0.28 [known]") from error
    # A candidate, or a build of somebody's own, has the defects of the release that it is one of.
    numbers = re.search(r"\d+(\.\d+)*", release)
    return wanted.contains(Version(numbers[0] if numbers else "0"))


def _made(
    entry: dict[str, Any], conditions: Mapping[str, Condition], path: Path
) -> tuple[KnownDeviation, str]:
    _require_fields(entry, _NEEDED, _OPTIONAL, path)
    properties, symptoms, one_in = entry["properties"], entry["symptoms"], entry.get("one_in", ONE_IN)
    if type(one_in) is not int or one_in < 1:
        raise ValueError(f"one_in = {one_in!r}, but should be an integer >= 1 [{path.name}]")
    if not isinstance(properties, list):
        raise ValueError(f"properties = {properties!r}, but should be a list of names [{path.name}]")
    if not isinstance(symptoms, list) or not all(isinstance(one, dict) for one in symptoms):
        raise ValueError(f"symptoms = {symptoms!r}, but should be tables [{path.name}]")
    try:
        shown = tuple(_symptom(one, conditions, path) for one in symptoms)
        known = KnownDeviation(
            tuple(properties),
            entry["link"],
            shown,
            id=entry["id"],
            title=entry["title"],
            one_in=one_in,
        )
    except ValueError as error:
        raise ValueError(f"{error}, in {entry['id']} of {path.name}") from error
    return known, entry["versions"]


def _symptom(table: dict[str, Any], conditions: Mapping[str, Condition], path: Path) -> Symptom:
    # A function may be "", and means something by that.
    _require_fields(table, _NEEDED_OF_SYMPTOM, _OPTIONAL_OF_SYMPTOM, path, empty=("function",))
    fields = {name: _one_or_several(value) for name, value in table.items()}
    name = fields.pop("condition", None)
    if name is None:
        return Symptom(**fields)
    if name not in conditions:
        raise ValueError(f"condition = {name!r}, but should be one of {sorted(conditions)}")
    return Symptom(**fields, condition=conditions[name])


def _one_or_several(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _require_fields(
    table: dict[str, Any],
    needed: Sequence[str],
    optional: Sequence[str],
    path: Path,
    empty: Sequence[str] = (),
) -> None:
    for name in needed:
        if not table.get(name) and not (name in empty and table.get(name) == ""):
            raise ValueError(f"{name} = {table.get(name)!r}, but should be given for {table} [{path.name}]")
    unknown = sorted(set(table) - set(needed) - set(optional))
    if unknown:
        raise ValueError(f"{unknown[0]} = {table[unknown[0]]!r}, but should not be there [{path.name}]")
