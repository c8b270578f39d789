"""Values, steps, outcomes, failures, timelines and wrong bytes as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from statecheck.case import failure, tensor, timeline, values
from statecheck.case.values import Value
from statecheck.util.decode import Decoder

TAGS: dict[str, type] = {
    name: kind
    for module in (tensor, values, timeline, failure)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
}
"""The dataclasses that a case consists of, by the tag that they are saved with."""
DECODER = Decoder(TAGS)
_TAG_OF = {kind: tag for tag, kind in TAGS.items()}
SAVED_FIELDS = {kind: tuple(field.name for field in fields(kind) if field.repr) for kind in TAGS.values()}
"""What is saved of a value: all that its `repr` has; other fields belong to one run."""
_WIDTH = 120
_LONG = 64
_PLAIN = frozenset({type(None), bool, int, str})


def encode(value: Value) -> Any:
    """`value` as JSON data. Scalars and lists stand for themselves; everything else is tagged with its type."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in _TAG_OF:
        return {_TAG_OF[kind]: {name: encode(getattr(value, name)) for name in SAVED_FIELDS[kind]}}
    if isinstance(value, float):
        # JSON has no number for infinity and NaN, whatever Python makes of them.
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, list):
        return _each(value)
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return _padded(value) or {"tuple": _each(value)}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    raise ValueError(f"value = {value!r}, but should be plain data [encode]")


def _each(items: Sequence[Value]) -> list[Any]:
    # A tensor has many elements.
    return list(items) if set(map(type, items)) <= _PLAIN else [encode(item) for item in items]


def _padded(value: tuple[Value, ...]) -> dict[str, list[Any]] | None:
    """A tuple that ends in one int many times, as tables with room do: what comes before, the int, how many times."""
    if len(value) < _LONG or type(value[-1]) is not int:
        return None
    other = (
        at for at in range(len(value) - 1, -1, -1) if value[at] != value[-1] or type(value[at]) is not int
    )
    kept = next(other, -1) + 1
    if len(value) - kept < _LONG:
        return None
    return {"padded": [_each(value[:kept]), value[-1], len(value) - kept]}


def decode(data: Any) -> Value:
    """The value that `encode` wrote.

    Raises:
        ValueError: the data have a tag or a field that no value has, or lack one.
    """
    return DECODER.decode(data, Any, "data")


def spread(data: Any, indent: int = 0) -> str:
    """JSON over several lines, as few as are still to be read: what fits on one stands on it, as do scalars of one list."""
    if isinstance(data, dict):
        if len(data) == 1:
            ((key, item),) = data.items()
            return f"{{{json.dumps(key)}: {spread(item, indent)}}}"
        ends = "{}"
        items = [f"{json.dumps(key)}: {spread(item, indent + 1)}" for key, item in data.items()]
    elif isinstance(data, list):
        ends = "[]"
        items = [spread(item, indent + 1) for item in data]
    else:
        return json.dumps(data)
    line = ", ".join(items)
    flat = isinstance(data, list) and not any(isinstance(item, (dict, list)) for item in data)
    if flat or (len(line) < _WIDTH - indent and "\n" not in line):
        return f"{ends[0]}{line}{ends[1]}"
    margin = "\n" + " " * (indent + 1)
    return f"{ends[0]}{margin}{f',{margin}'.join(items)}{margin[:-1]}{ends[1]}"
