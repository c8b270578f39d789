"""Reads JSON files that anyone may have written: small, not too deep, and every key once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statecheck.util.decode import MOST_PADDED
from statecheck.util.files import read_text

LARGEST = 1 << 26
"""Bytes of a file."""
_DEEPEST = 100


def load(path: Path, rule: str, *, largest: int = LARGEST) -> Any:
    """The JSON data in a file.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: not such a file; names the file and the rule.
    """
    return parse(read_text(path, largest), rule)


def parse(text: str, rule: str) -> Any:
    """JSON data.

    Args:
        rule: what the text should be, such as "a case of schema 7".

    Raises:
        ValueError: no JSON, a key twice in one object, a number that JSON does not have, or too many lists in lists.
    """
    try:
        data = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"text = no JSON ({error}), but should be {rule}") from error
    require_small(data)
    return data


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return data


def require_small(data: Any) -> None:
    """Refuse data that are small in a file and large in memory, or nested too deeply for recursion."""
    padded = 0
    waiting: list[tuple[int, Any]] = [(-1, [data])]
    while waiting:
        depth, item = waiting.pop()
        if depth > _DEEPEST:
            raise ValueError(f"depth = more than {_DEEPEST}, but should be at most {_DEEPEST} lists in lists")
        if isinstance(item, dict) and isinstance(item.get("padded"), list):
            times = item["padded"][-1:]
            padded += times[0] if times and type(times[0]) is int and times[0] > 0 else 0
        items = item.values() if isinstance(item, dict) else item
        waiting += [(depth + 1, inner) for inner in items if isinstance(inner, (list, dict))]
    if padded > MOST_PADDED:
        raise ValueError(f"padded elements = {padded}, but should be at most {MOST_PADDED} in all")
