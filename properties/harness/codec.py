"""Values, steps, outcomes, timelines and suspects as JSON, and back.

Loading builds dataclasses of `values`, `timeline` and `suspect` and executes nothing.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from properties.harness import suspect, timeline, values
from properties.harness.values import Value

_TYPES = {
    kind.__name__: kind
    for kind in (
        values.Tensor,
        values.DType,
        values.Device,
        values.Name,
        values.Record,
        values.Returns,
        values.View,
        values.Fake,
        values.Function,
        values.BufferMaker,
        values.Rows,
        values.NumPy,
        values.Attribute,
        values.SameAs,
        values.Address,
        values.Let,
        values.Overwrite,
        values.Call,
        values.Returned,
        values.Raised,
        values.Refusal,
    )
}
_TOLD = {
    kind.__name__: kind
    for kind in (
        timeline.Cell,
        timeline.TableRow,
        timeline.Arrow,
        timeline.Moment,
        timeline.Finding,
        timeline.Timeline,
        suspect.Suspect,
    )
}
_TAGS: dict[str, type] = {**_TYPES, **_TOLD}


def encode(value: Value) -> Any:
    """`value` as JSON data. Scalars and lists stand for themselves; everything else is tagged with its type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if is_dataclass(value) and type(value).__name__ in _TAGS:
        content = {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        return {type(value).__name__: content}
    raise ValueError(f"value = {value!r}, but should be plain data [encode]")


def decode(data: Any) -> Value:
    """The value that `encode` wrote.

    Raises:
        ValueError: the data has a tag or a field that no value has, or lacks one.
    """
    try:
        return _decode(data)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"data = {data!r}, but should be what encode writes [decode]: {error}") from error


def _decode(data: Any) -> Value:
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [_decode(item) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"data = {data!r}, but should be a scalar, a list or one tagged object [decode]")
    ((tag, content),) = data.items()
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag not in ("tuple", "dict"):
        return _decode_dataclass(tag, content)
    if not isinstance(content, list):
        raise ValueError(f"{tag} = {content!r}, but should be a list [decode]")
    if tag == "tuple":
        return tuple(map(_decode, content))
    return {_decode(key): _decode(item) for key, item in content}


def _decode_dataclass(tag: str, content: Any) -> Value:
    kind = _TAGS.get(tag)
    if kind is None:
        raise ValueError(f"tag = {tag!r}, but should be one of {', '.join(_TAGS)} [decode]")
    known = {field.name for field in fields(kind)}
    if not isinstance(content, dict) or not set(content) <= known:
        raise ValueError(f"{tag} = {content!r}, but should only have the fields {sorted(known)} [decode]")
    return kind(**{field: _decode(item) for field, item in content.items()})
