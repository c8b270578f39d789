"""Reasons why mutants that survive are equivalent: a checked file, in which no reason outlives its mutant."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.mutants.results import MutantResult

_RULE = "[[equivalent]] with file, ids and why"


@dataclass(frozen=True)
class Reason:
    """Why some mutants of a file change nothing that a caller may rely on."""

    file: str
    ids: tuple[str, ...]
    why: str


def read_reasons(path: Path) -> list[Reason]:
    """The reasons in a file.

    Raises:
        ValueError: the file is no list of reasons.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} = {error}, but should be a file of {_RULE} [mutants]") from error
    if content.keys() - {"equivalent"} or not isinstance(content.get("equivalent", []), list):
        raise ValueError(f"{path} = {sorted(content)}, but should be a file of {_RULE} [mutants]")
    return [_reason(path, one) for one in content.get("equivalent", [])]


def _reason(path: Path, one: Any) -> Reason:
    fields = one if isinstance(one, Mapping) else {}
    file, ids, why = (fields.get(name) for name in ("file", "ids", "why"))
    right = (
        isinstance(file, str) and isinstance(ids, list) and isinstance(why, str) and bool(ids) and bool(why)
    )
    if not right or len(fields) != 3:
        raise ValueError(f"{path} = {one!r}, but should be {_RULE} [mutants]")
    return Reason(str(file), tuple(map(str, ids or ())), str(why))


def explained(reasons: Iterable[Reason]) -> dict[str, str]:
    """Why, by the mutant's id."""
    return {mutant: reason.why for reason in reasons for mutant in reason.ids}


def require_current(
    reasons: Iterable[Reason], files: Mapping[str, Collection[str]], results: Mapping[str, MutantResult]
) -> None:
    """Refuse a reason that has outlived its mutant.

    Args:
        files: the ids of all mutants of each file that is judged.

    Raises:
        ValueError: no such mutant is left, or an item notices it.
    """
    for reason in reasons:
        known = files.get(reason.file)
        for mutant in reason.ids if known is not None else ():
            if mutant not in (known or ()):
                raise ValueError(
                    f"reason for {mutant} = {reason.why!r}, but should be about a mutant of {reason.file}: it has none of that id [mutants]"
                )
            result = results.get(mutant)
            # Which mutants have the IR of the source depends on Triton's release, so that those keep their reasons.
            if result is not None and result.noticed:
                rule = f"be about one that survives: {result.status} {result.by or result.why}"
                raise ValueError(f"reason for {mutant} = {reason.why!r}, but should {rule} [mutants]")
