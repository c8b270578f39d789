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

and a table `[[unsupported]]` for what the subject cannot do:

    properties  names or ids of properties, with `*` for any characters, that are not applicable therefore
    models      optional: names of models of a library of sequences, with `*` for any characters; the properties apply to all others
    why         the reason

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from statecheck.subject.deviation import Condition, KnownDeviation, Symptom
from statecheck.util.decode import Decoder, Misfit
from statecheck.util.files import read_text

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
            its id or number, from 0 on, and the field.
    """
    made = tuple(_made(entry, conditions or {}, f"{path}, entry {entry.id!r}") for entry in _file(path).known)
    for name, times in Counter(known.id for known, _ in made).items():
        if times > 1:
            raise ValueError(f"id = {name!r}, but should be that of one defect, not of {times} [{path}]")
    return made


def unsupported_in(path: Path) -> tuple[Unsupported, ...]:
    """What the subject cannot do, according to the file.

    Raises:
        ValueError: as `declared_in`.
    """
    made = _file(path).unsupported
    for at, entry in enumerate(made):
        with _located(f"{path}, unsupported entry {at}"):
            _given(entry)
    return tuple(made)


def ids_in(path: Path) -> frozenset[str]:
    """The ids of the entries in the file, also of those whose author has not said the reason yet.

    Raises:
        ValueError: there is no such file, it is no TOML, or an entry lacks a field.
    """
    return frozenset(entry.id for entry in _file(path).known)


def has(versions: str, release: str) -> bool:
    """Whether a release such as "0.25.1" is among `versions`, such as ">=0.20,<0.28"; "" is all of them.

    Raises:
        ValueError: `versions` says something else.
    """
    try:
        releases = SpecifierSet(versions)
    except InvalidSpecifier:
        raise ValueError(f"versions = {versions!r}, but should be as in >=0.20,<0.28") from None
    # A candidate, or a user's own build, has the defects of the release that it is one of.
    numbers = re.search(r"\d+(\.\d+)*", release)
    return releases.contains(Version(numbers[0] if numbers else "0"))


_Names = str | list[str]


@dataclass(frozen=True)
class KnownSymptom:
    kind: str
    function: _Names
    place: _Names
    exception: _Names | None = None
    condition: str | None = None


@dataclass(frozen=True)
class KnownEntry:
    id: str
    title: str
    properties: list[str]
    versions: str
    link: str
    why: str
    symptoms: list[KnownSymptom]
    source: str | None = None
    one_in: int | None = None


@dataclass(frozen=True)
class Unsupported:
    """Properties, by names, ids or patterns, that ask for what the subject cannot do, and why it cannot."""

    properties: list[str]
    why: str
    models: list[str] | None = None


@dataclass(frozen=True)
class KnownFile:
    known: list[KnownEntry] = field(default_factory=list)
    unsupported: list[Unsupported] = field(default_factory=list)


def _file(path: Path) -> KnownFile:
    data = _read(path)
    with _located(str(path)):
        file: KnownFile = Decoder().decode(data, KnownFile)
    return file


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, LARGEST))
    except OSError as error:
        raise ValueError(
            f"file = {error.strerror or error}, but should be a readable file [{path}]"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"text = no TOML, but should be TOML: {error} [{path}]") from error


def _given(decoded: KnownEntry | KnownSymptom | Unsupported, empty: str = "") -> dict[str, Any]:
    """The fields that are given; none of them is empty but the one that may be."""
    given = {name: value for name, value in vars(decoded).items() if value is not None}
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        blank = not texts or any(isinstance(text, str) and not text.strip() for text in texts)
        if blank and not (name == empty and value == ""):
            raise Misfit(name, value, "text that is not empty")
    return given


def _made(entry: KnownEntry, conditions: Mapping[str, Condition], where: str) -> tuple[KnownDeviation, str]:
    with _located(where):
        given = _given(entry)
        has(entry.versions, "")
        if entry.one_in is not None and entry.one_in < 1:
            raise Misfit("one_in", entry.one_in, "an integer >= 1")
    shown = tuple(
        _symptom(one, conditions, f"{where}, symptom {at}") for at, one in enumerate(entry.symptoms, 1)
    )
    fields = {name: given[name] for name in ("id", "title", "one_in") if name in given}
    with _located(where):
        return KnownDeviation(tuple(entry.properties), entry.link, shown, **fields), entry.versions


def _symptom(symptom: KnownSymptom, conditions: Mapping[str, Condition], where: str) -> Symptom:
    with _located(where):
        # A function may be "", and means something by that.
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in _given(symptom, empty="function").items()
        }
        name = given.pop("condition", None)
        if name is not None and name not in conditions:
            raise ValueError(f"condition = {name!r}, but should be one of {sorted(conditions)}")
        if name is not None:
            given["condition"] = conditions[name]
        return Symptom(**given)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Add the place in the file to what a declaration refuses."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} [{where}]") from error
