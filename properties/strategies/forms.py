"""Arguments of another type than the documented one: what is no tensor, or another tensor, and what is no int."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from statecheck.case.values import Call, Record, Tensor, Value


@dataclass(frozen=True)
class WrongForm:
    """A call with one argument of another type; `name` says which and how."""

    name: str
    call: Call


def wrong_ints(call: Call, *paths: str) -> Iterator[WrongForm]:
    """The call with each of these ints as a bool and as a float."""
    for path in paths:
        for kind, value in (("a bool", True), ("a float", 2.5)):
            yield WrongForm(f"{path} as {kind}", with_value(call, path, value))


def wrong_tensors(call: Call, *paths: str) -> Iterator[WrongForm]:
    """The call with each of these tensors missing, of floats, and with a dimension too many."""
    for path in paths:
        tensor = value_at(call, path)
        assert isinstance(tensor, Tensor)
        yield WrongForm(f"{path} as a list", with_value(call, path, list(tensor.elements or ())))
        yield WrongForm(f"{path} of floats", with_value(call, path, replace(tensor, dtype="float32")))
        deeper = replace(tensor, shape=(1, *tensor.shape), strides=None)
        yield WrongForm(f"{path} with a dimension too many", with_value(call, path, deeper))


def value_at(call: Call, path: str) -> Value:
    """An argument of the call, or a field of one, as in "common_attn_metadata.seq_lens"."""
    first, *rest = path.split(".")
    value = call.named[first]
    for name in rest:
        value = value[int(name)] if isinstance(value, list | tuple) else value[name]
    return value


def with_value(call: Call, path: str, value: Value) -> Call:
    """The call with another value there."""
    first, *rest = path.split(".")
    changed = {first: _replaced(call.named[first], rest, value)}
    return replace(
        call,
        arguments=tuple((name, changed.get(name, one)) for name, one in call.arguments),
        keywords=tuple((name, changed.get(name, one)) for name, one in call.keywords),
    )


def _replaced(held: Value, path: Sequence[str], value: Value) -> Value:
    if not path:
        return value
    first, *rest = path
    if isinstance(held, Record):
        return replace(held, fields=tuple(_with_field(held.fields, first, rest, value)))
    if isinstance(held, dict):
        return held | {first: _replaced(held[first], rest, value)}
    index, items = int(first), list(held)
    items[index] = _replaced(items[index], rest, value)
    return type(held)(items)


def _with_field(
    fields: Iterable[tuple[str, Value]], name: str, path: Sequence[str], value: Value
) -> Iterator[tuple[str, Value]]:
    for one, held in fields:
        yield one, _replaced(held, path, value) if one == name else held
