"""Known defects of a subject, as a file: what campaigns go past, and where they are described.

The file is TOML with a table `[[known]]` for each defect:

    id          a short name
    title       the defect in a sentence
    properties  names or ids of the properties that it shows in, with `*` for any characters as a part of one
    versions    releases that have it, such as ">=0.20,<0.28"
    link        where it is described
    why         what goes wrong, and how we know
    source      optional: the place in a release's source
    one_in      optional: about so many examples of a property show it once, 20 if this is not given; it is not said to be gone
                before ten times as many

and in it a table `[[known.symptoms]]` for each way in which it shows, with the fields of a failure:

    kind        "value", "refusal", "memory", "race", "fault" or "hang"
    function    the function whose call shows it, or a list of them; "" for what a scenario of an engine shows and no single call
    place       where in the result, without indices, or a list of such places
    exception   optional: the name of the exception that is raised, or a list of them
    condition   optional: what it wants of the case besides, by name

A failure is one of the defect's if it has all the fields of one symptom. Functions and places may have `*` for any
characters as a part of a name, too.

A declaration that matches more than half of the ways in which a property can fail is refused, whatever its conditions are, and so
are declarations that do so together for all properties of the subject: `execution/breadth.py` says what is counted. A condition
that raises does not hold: the case counts as new, and the campaign, the replay or the test says what was raised.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from statecheck.data.decode import Misfit, format_value
from statecheck.data.files import read_text
from statecheck.subject.deviation import Condition, KnownDeviation, Symptom

LARGEST = 1 << 26
"""Bytes of a file of known defects."""


def known_in(
    path: Path, release: str, conditions: Mapping[str, Condition] | None = None
) -> tuple[KnownDeviation, ...]:
    """The defects in the file that the release has.

    Args:
        release: such as "0.25.1"; "" is older than any.
        conditions: the functions that entries name.

    Raises:
        ValueError: as `declared_in`.
    """
    made = declared_in(path, conditions)
    return tuple(known for known, versions in made if has(versions, release))


def declared_in(
    path: Path, conditions: Mapping[str, Condition] | None = None
) -> tuple[tuple[KnownDeviation, str], ...]:
    """All defects in the file, each with the releases that have it.

    Raises:
        ValueError: there is no such file, it is no TOML, or an entry is not as described above; names the file, and of an entry
            its id or number and the field.
    """
    data = _read(path)
    _require(data, {"known": _Rule("tables [[known]]", _are_tables)}, {"known"}, str(path))
    entries = data.get("known", [])
    made = tuple(
        _made(entry, conditions or {}, f"{path}, entry {_name(entry, at)}")
        for at, entry in enumerate(entries, 1)
    )
    for name, times in Counter(known.id for known, _ in made).items():
        if times > 1:
            raise ValueError(f"id = {name!r}, but should be that of one defect, not of {times} [{path}]")
    return made


def has(versions: str, release: str) -> bool:
    """Whether a release such as "0.25.1" is among `versions`, such as ">=0.20,<0.28"; "" is all of them.

    Raises:
        ValueError: `versions` says something else.
    """
    if not _are_versions(versions) and versions:
        raise ValueError(f"versions = {versions!r}, but should be {_VERSIONS.expected} [known]")
    # A candidate, or a user's own build, has the defects of the release that it is one of.
    numbers = re.search(r"\d+(\.\d+)*", release)
    return SpecifierSet(versions).contains(Version(numbers[0] if numbers else "0"))


@dataclass(frozen=True)
class _Rule:
    """What a field should be, in words and as a condition."""

    expected: str
    allows: Callable[[object], bool]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _are_versions(value: object) -> bool:
    try:
        return _is_text(value) and bool(SpecifierSet(str(value)))
    except InvalidSpecifier:
        return False


_TEXT = _Rule("text that is not empty", _is_text)
_NAMES = _Rule("a name or a list of names", lambda value: _is_text(value) or _are_names(value))
_VERSIONS = _Rule("as in >=0.20,<0.28", _are_versions)
_ENTRY = {
    "id": _TEXT,
    "title": _TEXT,
    "properties": _Rule("a list of names", _are_names),
    "versions": _VERSIONS,
    "link": _TEXT,
    "why": _TEXT,
    "symptoms": _Rule("tables [[known.symptoms]]", _are_tables),
    "source": _TEXT,
    "one_in": _Rule("an integer >= 1", lambda value: type(value) is int and value >= 1),
}
_SYMPTOM = {
    "kind": _TEXT,
    # A function may be "", and means something by that.
    "function": _Rule(_NAMES.expected, lambda value: value == "" or _NAMES.allows(value)),
    "place": _NAMES,
    "exception": _NAMES,
    "condition": _TEXT,
}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, LARGEST))
    except OSError as error:
        raise ValueError(
            f"file = {error.strerror or error}, but should be a readable file [{path}]"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"text = no TOML, but should be TOML: {error} [{path}]") from error


def _require(table: Mapping[str, Any], rules: Mapping[str, _Rule], optional: set[str], where: str) -> None:
    """Refuse a table with a field that is missing, unknown or not as its rule says.

    Raises:
        ValueError: names the first such field, its value, the rule and `where`.
    """
    for name, value in table.items():
        if name not in rules:
            fields = ", ".join(rules)
            raise ValueError(
                f"{name} = {format_value(value)}, but should not be there: fields are {fields} [{where}]"
            )
    for name, rule in rules.items():
        if name not in table and name not in optional:
            raise ValueError(f"{name} = nothing, but should be {rule.expected} [{where}]")
        if name in table and not rule.allows(table[name]):
            raise ValueError(f"{Misfit(name, table[name], rule.expected)} [{where}]")


def _name(entry: Mapping[str, Any], number: int) -> str:
    """What an entry is called in messages."""
    return repr(entry["id"]) if _is_text(entry.get("id")) else str(number)


def _made(
    entry: dict[str, Any], conditions: Mapping[str, Condition], where: str
) -> tuple[KnownDeviation, str]:
    _require(entry, _ENTRY, {"source", "one_in"}, where)
    tables = enumerate(entry["symptoms"], 1)
    shown = tuple(_symptom(one, conditions, f"{where}, symptom {at}") for at, one in tables)
    fields = {name: entry[name] for name in ("id", "title", "one_in") if name in entry}
    with _located(where):
        made = KnownDeviation(tuple(entry["properties"]), entry["link"], shown, **fields)
    return made, entry["versions"]


def _symptom(table: dict[str, Any], conditions: Mapping[str, Condition], where: str) -> Symptom:
    _require(table, _SYMPTOM, {"exception", "condition"}, where)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in table.items()
    }
    name = fields.pop("condition", None)
    if name is not None and name not in conditions:
        raise ValueError(f"condition = {name!r}, but should be one of {sorted(conditions)} [{where}]")
    if name is not None:
        fields["condition"] = conditions[name]
    with _located(where):
        return Symptom(**fields)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Add the place in the file to what a declaration refuses."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} [{where}]") from error
