"""JSON that somebody else may have written: read as far as it is small, plain and said once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from properties.harness.data.files import read_text

LARGEST = 1 << 26
"""Bytes of a file."""
_DEEPEST = 100
_MOST_PADDED = 1 << 24
"""Elements that a file only declares, all together."""


def load(path: Path, rule: str, *, largest: int = LARGEST) -> Any:
    """What a file of JSON stands for.

    Raises:
        OSError: there is no such file, or nobody may read it.
        ValueError: it is no such file; names the file and the rule.
    """
    return parsed(read_text(path, largest), rule)


def parsed(text: str, rule: str) -> Any:
    """What JSON stands for.

    Args:
        rule: what it should be, such as "a case of schema 7".

    Raises:
        ValueError: no JSON, a key twice in one object, a number that JSON does not have, or lists in lists without end.
    """
    try:
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"text = no JSON ({error}), but should be {rule}") from error
    _require_small(found)
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _require_small(data: Any) -> None:
    """Refuse what is small in a file and large in memory, and what is too deep to be walked through."""
    padded = 0
    for depth, item in _inside(data):
        if depth > _DEEPEST:
            raise ValueError(f"depth = more than {_DEEPEST}, but should be at most {_DEEPEST} lists in lists")
        if isinstance(item, dict) and isinstance(item.get("padded"), list):
            times = (item["padded"] or [0])[-1]
            padded += times if type(times) is int and times > 0 else 0
    if padded > _MOST_PADDED:
        raise ValueError(f"padded elements = {padded}, but should be at most {_MOST_PADDED} in all")


def _inside(data: Any) -> Iterator[tuple[int, Any]]:
    """Everything in JSON data, with how deep it lies; without recursion."""
    waiting = [(0, data)]
    while waiting:
        depth, item = waiting.pop()
        if isinstance(item, (list, dict)):
            yield depth, item
            items = item.values() if isinstance(item, dict) else item
            waiting += [(depth + 1, one) for one in items if isinstance(one, (list, dict))]
