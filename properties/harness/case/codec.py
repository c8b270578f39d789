"""Values, steps, outcomes, failures, timelines and suspects as JSON, and back.

Loading builds dataclasses of `values`, `timeline`, `suspect` and `failure` and executes nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

from properties.harness.case import failure, suspect, timeline, values
from properties.harness.case.values import Value
from properties.harness.data.typed import spelled

SAVED_KINDS: tuple[type, ...] = (
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
    values.SourceLine,
    values.Raised,
    values.Refusal,
    timeline.Cell,
    timeline.TableRow,
    timeline.Arrow,
    timeline.Moment,
    timeline.WrongCell,
    timeline.Timeline,
    suspect.Suspect,
    failure.Failure,
)
"""What cases are made of, steps first."""
_SAVED_AS: dict[type, str] = {timeline.WrongCell: "Finding"}
"""Tags of saved cases that are not the class's name."""
_TAGS: dict[str, type] = {_SAVED_AS.get(kind, kind.__name__): kind for kind in SAVED_KINDS}
_TAG_OF = {kind: tag for tag, kind in _TAGS.items()}
SAVED_FIELDS = {kind: tuple(field.name for field in fields(kind) if field.repr) for kind in SAVED_KINDS}
"""What is saved of a value: all that its `repr` has; other fields belong to one run."""
_NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_WIDTH = 120
_LONG, _LONGEST = 64, 1 << 24


def encode(value: Value) -> Any:
    """`value` as JSON data. Scalars and lists stand for themselves; everything else is tagged with its type."""
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers, whatever Python makes of them.
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return _padded(value) or {"tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if type(value) in _TAG_OF:
        content = {name: encode(getattr(value, name)) for name in SAVED_FIELDS[type(value)]}
        return {_TAG_OF[type(value)]: content}
    raise ValueError(f"value = {value!r}, but should be plain data [encode]")


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
    return {"padded": [[encode(item) for item in value[:kept]], value[-1], len(value) - kept]}


def decode(data: Any) -> Value:
    """The value that `encode` wrote.

    Raises:
        ValueError: the data has a tag or a field that no value has, or lacks one.
    """
    try:
        return _decode(data)
    except (TypeError, AttributeError) as error:
        raise ValueError(
            f"data = {spelled(data)}, but should be what encode writes [decode]: {error}"
        ) from error


def _decode(data: Any) -> Value:
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [_decode(item) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(
            f"data = {spelled(data)}, but should be a scalar, a list or one tagged object [decode]"
        )
    ((tag, content),) = data.items()
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag == "padded":
        return _unpadded(*content)
    if tag == "float":
        return _no_number(content)
    if tag not in ("tuple", "dict"):
        return _decode_dataclass(tag, content)
    if not isinstance(content, list):
        raise ValueError(f"{tag} = {spelled(content)}, but should be a list [decode]")
    if tag == "tuple":
        return tuple(map(_decode, content))
    return {_decode(key): _decode(item) for key, item in content}


def _no_number(content: Any) -> float:
    if not isinstance(content, str) or content not in _NO_NUMBERS:
        raise ValueError(
            f"float = {spelled(content)}, but should be one of {', '.join(_NO_NUMBERS)} [decode]"
        )
    return _NO_NUMBERS[content]


def _unpadded(kept: list[Any], last: int, times: int) -> Value:
    if type(last) is not int or type(times) is not int or not 0 <= times <= _LONGEST:
        raise ValueError(
            f"padded = {spelled(last)} x {spelled(times)}, but should be an int, at most {_LONGEST} times [decode]"
        )
    return (*map(_decode, kept), *(last,) * times)


def _decode_dataclass(tag: str, content: Any) -> Value:
    kind = _TAGS.get(tag)
    if kind is None:
        raise ValueError(f"tag = {spelled(tag)}, but should be one of {', '.join(_TAGS)} [decode]")
    known = set(SAVED_FIELDS[kind])
    if not isinstance(content, dict) or not set(content) <= known:
        raise ValueError(
            f"{tag} = {spelled(content)}, but should only have the fields {sorted(known)} [decode]"
        )
    return kind(**{field: _decode(item) for field, item in content.items()})


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
