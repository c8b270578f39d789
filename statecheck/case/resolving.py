"""Names in values, and what they are bound to."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from statecheck.case.values import (
    Attribute,
    Call,
    DType,
    Name,
    NumPy,
    Record,
    Rows,
    Tensor,
    Value,
    View,
)

_CLOSED = (int, str, bytes, Tensor, View, DType, Call, type(None))
"""What has no names in it, or none to look up any more."""


def is_closed(value: Value) -> bool:
    """Whether there is nothing in `value` to resolve."""
    if isinstance(value, Record):
        return all(is_closed(item) for _, item in value.fields)
    if isinstance(value, (list, tuple)):
        return all(map(is_closed, value))
    if isinstance(value, dict):
        return all(map(is_closed, value.values()))
    return not isinstance(value, (Name, Rows, NumPy, Attribute))


def resolve(
    value: Value,
    names: Mapping[str, Value],
    contents: Mapping[str, Value] | None = None,
    closed: Container[str] = (),
) -> Value:
    """`value` with every `Name` replaced by what it is bound to, and every `Attribute` by its contents.

    Args:
        contents: by dotted path, as far as they are known. An `Attribute` that is not stays one, of what it is of.
        closed: names that are known to be bound to something in which there is nothing to resolve.
    """
    if isinstance(value, _CLOSED):
        return value
    contents = contents or {}

    def inside(item: Value) -> Value:
        return resolve(item, names, contents, closed)

    if isinstance(value, Name):
        bound = names[value.name]
        return bound if value.name in closed else inside(bound)
    if isinstance(value, Record):
        return Record(value.type, tuple((field, inside(item)) for field, item in value.fields))
    if isinstance(value, (list, tuple)):
        return type(value)(map(inside, value))
    if isinstance(value, dict):
        return {key: inside(item) for key, item in value.items()}
    if isinstance(value, Attribute) and isinstance(value.of, Name):
        path = f"{value.of.name}.{value.path}"
        if path in contents:
            return contents[path]
    if isinstance(value, (Rows, NumPy, Attribute)):
        return replace(value, of=inside(value.of))
    return value
