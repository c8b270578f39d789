"""Known defects of a subject, as a file: what campaigns go past, and where it is told of.

The file is TOML with a table `[[known]]` for each defect:

    id          a short name
    title       the defect in a sentence
    properties  names of the properties that it shows in, `*` for any characters
    versions    releases that have it, such as ">=0.20,<0.28"
    link        where it is told of
    why         what goes wrong, and how we know
    source      optional: the place in a release's source
    function    optional: the call whose outcome shows it, `*` for any characters
    message     optional: a regular expression that is found in what the case says
    condition   optional: a function that tells from the case, by name
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from properties.subjects import KnownDeviation

if TYPE_CHECKING:
    from properties.harness.case import Case

_NEEDED = ("id", "title", "properties", "versions", "link", "why")
_OPTIONAL = ("source", "function", "message", "condition")
Condition = Callable[["Case"], bool]


@dataclass(frozen=True)
class _Narrowed:
    """Whether a case is one of the defect's, as far as `properties` does not say so."""

    function: str
    message: str
    condition: Condition

    def __call__(self, case: Case) -> bool:
        return (
            any(fnmatchcase(function, self.function) for function in _showing(case))
            and re.search(self.message, case.message, re.DOTALL) is not None
            and self.condition(case)
        )


def _showing(case: Case) -> set[str]:
    """The function whose call shows what is wrong: the one that the message spells, or else the last one."""
    spelled = {call.function for call in case.calls if f" [{call.function}(" in case.message}
    return spelled or {call.function for call in case.calls[-1:]}


def known_in(
    path: Path, release: tuple[int, ...], conditions: Mapping[str, Condition] | None = None
) -> tuple[KnownDeviation, ...]:
    """The defects in the file that the release has.

    Args:
        release: the numbers of the release, such as (0, 25, 1).
        conditions: the functions that entries name.

    Raises:
        ValueError: an entry is not as described above.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
    made = [_made(entry, conditions or {}, path) for entry in entries]
    ids = [known.id for known, _ in made]
    for one in ids:
        if ids.count(one) > 1:
            raise ValueError(f"id = {one!r}, but should be that of one defect [{path.name}]")
    return tuple(known for known, versions in made if has(versions, release))


def has(versions: str, release: tuple[int, ...]) -> bool:
    """Whether a release is among `versions`, such as ">=0.20,<0.28"; "" is all of them.

    Raises:
        ValueError: `versions` says something else.
    """
    return all(_holds(part.strip(), release) for part in versions.split(",") if part.strip())


def _holds(part: str, release: tuple[int, ...]) -> bool:
    found = re.fullmatch(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)", part)
    if found is None:
        raise ValueError(f"versions = {part!r}, but should be as in >=0.20,<0.28 [known]")
    bound = _padded(tuple(map(int, found[2].split("."))))
    mine = _padded(release)
    return {
        ">=": mine >= bound,
        "<=": mine <= bound,
        "==": mine == bound,
        "!=": mine != bound,
        ">": mine > bound,
        "<": mine < bound,
    }[found[1]]


def _padded(release: tuple[int, ...]) -> tuple[int, ...]:
    return (release + (0, 0, 0))[:3]


def _require_readable(entry: dict[str, Any], path: Path) -> None:
    patterns, message = entry["properties"], entry.get("message", "")
    if not (isinstance(patterns, list) and all(isinstance(one, str) for one in patterns)):
        raise ValueError(f"properties = {patterns!r}, but should be a list of names [{path.name}]")
    try:
        re.compile(message)
    except re.error as error:
        raise ValueError(
            f"message = {message!r}, but should be a regular expression [{path.name}]: {error}"
        ) from error


def _made(
    entry: dict[str, Any], conditions: Mapping[str, Condition], path: Path
) -> tuple[KnownDeviation, str]:
    for name in _NEEDED:
        if not entry.get(name):
            raise ValueError(f"{name} = {entry.get(name)!r}, but should be given for {entry} [{path.name}]")
    unknown = sorted(set(entry) - set(_NEEDED) - set(_OPTIONAL))
    if unknown:
        raise ValueError(f"{unknown[0]} = {entry[unknown[0]]!r}, but should not be there [{path.name}]")
    _require_readable(entry, path)
    condition = entry.get("condition")
    if condition is not None and condition not in conditions:
        raise ValueError(
            f"condition = {condition!r}, but should be one of {sorted(conditions)} [{path.name}]"
        )
    narrowed = _Narrowed(
        entry.get("function", "*"),
        entry.get("message", ""),
        conditions[condition] if condition is not None else lambda case: True,
    )
    known = KnownDeviation(
        tuple(entry["properties"]), entry["link"], narrowed, id=entry["id"], title=entry["title"]
    )
    return known, entry["versions"]
