"""The first place where an outcome differs from what the rules expect, in words; and whether a property can read a result at all."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statecheck.case.values import (
    CANARY,
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
    Expected,
    Fake,
    Function,
    Name,
    NumPy,
    Outcome,
    Raised,
    Record,
    Refusal,
    Returned,
    Returns,
    Rows,
    SameAs,
    Tensor,
    Value,
    View,
)

NOTHING_WRONG = "nothing"  # of a law that holds; otherwise a sentence stands there that says what breaks it


@dataclass(frozen=True)
class Difference:
    """`place` was observed to be `observed`, but should be `expected`; `tensors` are (expected, observed) if it is one.

    `sentence`: what was observed, where it says itself what is wrong. `tensor`: the place of the tensor in which an element is wrong, at `index`, or
    whose surrounding memory was written to, at byte `guard`: 1 is the first behind it, and -1 the last before it.
    """

    place: str
    observed: str
    expected: str
    tensors: tuple[Tensor, Tensor] | None = None
    sentence: str = ""
    tensor: str = ""
    index: tuple[int, ...] | None = None
    guard: int | None = None

    @property
    def seen(self) -> str:
        return self.sentence or f"{self.place} = {self.observed}"

    @property
    def wanted(self) -> str:
        return "" if self.sentence else f"should be {self.expected}"

    def __str__(self) -> str:
        return f"{self.seen}, but {self.wanted}" if self.wanted else self.seen


def outcome_difference(expected: Expected, actual: Outcome, *, places: bool) -> Difference | None:
    """Compare an outcome with the expected one; `places` says whether host and device memory are compared, too."""
    if actual.changed:
        return Difference(
            ", ".join(actual.changed), "written to", "left as it was, memory around it included"
        )
    if isinstance(expected, Refusal):
        differs = _refusal_difference(expected, actual)
    elif isinstance(actual, Raised):
        right = (
            " in which nothing is wrong"
            if _nothing_is_wrong(expected.value)
            else f", {brief(expected.value)}"
        )
        differs = Difference("the call", brief_raised(actual), f"a result{right}")
    else:
        differs = difference(expected.value, actual.value, "result", places=places)
    if differs is not None:
        return differs
    known = dict(expected.after)
    return _first(((name, known[name], seen) for name, seen in actual.after if name in known), places)


def _nothing_is_wrong(value: Value) -> bool:
    if isinstance(value, Record):
        return all(_nothing_is_wrong(item) for _, item in value.fields)
    return value == NOTHING_WRONG


def _refusal_difference(expected: Refusal, actual: Outcome) -> Difference | None:
    wanted = f"{expected.exception} that names {expected.argument}"
    if not isinstance(actual, Raised):
        return Difference("result", brief(actual.value), wanted)
    named = re.search(rf"(?<!\w){re.escape(expected.argument)}(?!\w)", actual.message)
    if actual.exception != expected.exception or (expected.argument and not named):
        return Difference("the call", brief_raised(actual), wanted)
    return None


def difference(expected: Value, actual: Value, place: str, *, places: bool) -> Difference | None:
    """Depth-first comparison of two values; bool and int are different types here, as are list and tuple."""
    if isinstance(actual, Record) and actual.type == "Damaged":
        return damage(actual, place)
    if type(expected) is not type(actual):
        return Difference(place, brief(actual), brief(expected))
    if isinstance(expected, Tensor):
        return _tensor_difference(expected, actual, place, places=places)
    if isinstance(expected, Record):
        return _record_difference(expected, actual, place, places=places)
    if isinstance(expected, dict):
        if [(type(key), key) for key in expected] != [(type(key), key) for key in actual]:
            return Difference(f"{place} keys", repr(list(actual)), repr(list(expected)))
        pairs = ((f"{place}[{key!r}]", item, actual[key]) for key, item in expected.items())
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(actual):
            return Difference(f"len({place})", str(len(actual)), str(len(expected)))
        pairs = ((f"{place}[{i}]", item, actual[i]) for i, item in enumerate(expected))
    else:
        if expected == actual:
            return None
        sentence = str(actual) if expected == NOTHING_WRONG else ""
        return Difference(place, brief(actual), brief(expected), sentence=sentence)
    return _first(pairs, places)


def _first(pairs, places: bool) -> Difference | None:  # type: ignore[no-untyped-def]
    differences = (difference(item, other, place, places=places) for place, item, other in pairs)
    return next(filter(None, differences), None)


def _record_difference(expected: Record, actual: Record, place: str, *, places: bool) -> Difference | None:
    if expected.type != actual.type:
        return Difference(f"type({place})", actual.type, expected.type)
    observed = dict(actual.fields)
    for field, item in expected.fields:
        if field not in observed:
            return Difference(f"{place}.{field}", "missing", brief(item))
        differs = difference(item, observed[field], f"{place}.{field}", places=places)
        if differs is not None:
            return differs
    return None


def _tensor_difference(expected: Tensor, actual: Tensor, place: str, *, places: bool) -> Difference | None:
    for name in ("dtype", "shape"):
        if getattr(expected, name) != getattr(actual, name):
            values = str(getattr(actual, name)), str(getattr(expected, name))
            return Difference(f"{place}.{name}", *values, (expected, actual))
    if places and expected.on != actual.on:
        return Difference(f"{place}.device", actual.on, expected.on)
    if expected.is_dense and actual.is_dense and expected.elements == actual.elements:
        return None
    want, got = expected.values(), actual.values()
    write = hexadecimal if isinstance(expected.elements, bytes) else str
    indices = itertools.product(*map(range, expected.shape))
    for index, wanted, seen in zip(indices, want, got, strict=True):
        if wanted != seen:
            where = f"{place}[{', '.join(map(str, index))}]"
            tensors = (expected, actual)
            return Difference(where, write(seen), write(wanted), tensors, tensor=place, index=index)
    return None


def damage(actual: Record, place: str) -> Difference:
    """The guard byte nearest to the tensor at `place` that is not what it was."""
    before, after = actual["before"][::-1], actual["after"]
    at, side = min(
        (at, side)
        for side, guard in (("before", before), ("behind", after))
        for at, byte in enumerate(guard)
        if byte != CANARY
    )
    seen = (before if side == "before" else after)[at]
    where = f"byte {at + 1} {side} {place}"
    guard = -at - 1 if side == "before" else at + 1
    return Difference(where, hexadecimal(seen), hexadecimal(CANARY), tensor=place, guard=guard)


def hexadecimal(byte: int) -> str:
    return f"0x{byte:02x}"


def brief_outcome(outcome: Outcome | Refusal) -> str:
    """What came of a call, or what should have, in a line."""
    if isinstance(outcome, Returned):
        return brief(outcome.value)
    if isinstance(outcome, Raised):
        return brief_raised(outcome)
    return f"{outcome.exception}{f' that names {outcome.argument}' if outcome.argument else ''}"


def brief_raised(raised: Raised) -> str:
    """Type and message of the exception, and the line of the subject that it came from."""
    message = f"{raised.exception}: {raised.message}"
    return f"{message} ({raised.at})" if raised.at is not None else message


def brief(value: Value, limit: int = 24) -> str:
    """`value` in a line: tensors as `int32[0, 5]`, long ones cut in the middle."""
    if isinstance(value, Tensor):
        return _brief_tensor(value, limit)
    if isinstance(value, bytes):
        return _cut_bytes(value, limit)
    if isinstance(value, Record):
        return f"{value.type}({', '.join(f'{name}={brief(item, limit)}' for name, item in value.fields)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {brief(item, limit)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(brief(item, limit) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return _brief_reference(value, limit)


def _brief_reference(value: Value, limit: int) -> str:
    """What stands for a function, a name, or a part of another value; a plain value as it is."""
    match value:
        case Call():
            return f"<{value.bind or value.updates or value.function}>"
        case DType():
            return f"torch.{value.name}"
        case Name() | Function():
            return value.name
        case Returns():
            return f"lambda: {brief(value.value, limit)}"
        case Device():
            return "device"
        case BufferMaker():
            return "make_buffer"
        case View():
            return f"<{value.dtype}{list(value.shape)} in {value.of}>"
        case Fake():
            return f"<{value.dtype}{list(value.shape)} at {value.address:#x}>"
        case Rows() | NumPy():
            return f"<{type(value).__name__.lower()} of {brief(value.of, limit)}>"
        case Attribute():
            return f"{brief(value.of, limit)}.{value.path}"
        case _:
            return repr(value)


def _brief_tensor(tensor: Tensor, limit: int) -> str:
    if tensor.elements is None:
        return f"{tensor.dtype}{list(tensor.shape)} with any contents"
    if isinstance(tensor.elements, bytes) and tensor.is_dense:
        return f"{tensor.dtype}{list(tensor.shape)} {_cut_bytes(tensor.elements, limit)}"
    if len(tensor.shape) == 1:
        return f"{tensor.dtype}{_cut(tensor.values(), limit)}"
    if len(tensor.shape) == 2:
        rows = ", ".join(_cut(row, limit) for row in tensor.rows())
        return f"{tensor.dtype}[{rows}]"
    return f"{tensor.dtype}{list(tensor.shape)} {_cut(tensor.values(), limit)}"


def _cut_bytes(raw: bytes, limit: int) -> str:
    if len(raw) <= limit:
        return raw.hex(" ")
    return f"{raw[: limit - 2].hex(' ')} ... {raw[-2:].hex(' ')}"


def _cut(elements: Sequence[int], limit: int) -> str:
    if len(elements) <= limit:
        return "[" + ", ".join(map(str, elements)) + "]"
    head, tail = elements[: limit // 2], elements[-2:]
    return f"[{', '.join(map(str, head))}, ... {len(elements)} in all ..., {', '.join(map(str, tail))}]"


def form_difference(expected: Value, actual: Value, place: str) -> Difference | None:
    """The first part of `actual` that a property cannot read as the rules' value of that part; its numbers are not compared.

    Types, lengths of containers and dimensions, as far as the rules know them. Lengths of tensors are not part of the form: properties have
    sentences of their own about them. A field that is missing is only wrong where a property reads it.
    """
    parts: Iterable[tuple[Value, Value, str]] = ()
    if isinstance(actual, Record) and actual.type == "Damaged":
        return damage(actual, place)
    if isinstance(expected, SameAs) or expected is None:
        return None
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(expected) != len(actual):
            return Difference(f"len({place})", str(len(actual)), str(len(expected)))
        pairs = zip(expected, actual, strict=True)
        parts = ((wanted, seen, f"{place}[{at}]") for at, (wanted, seen) in enumerate(pairs))
    elif type(expected) is not type(actual):
        return Difference(place, brief(actual), brief(expected))
    elif isinstance(expected, Tensor):
        is_real = [tensor.dtype.startswith(("float", "bfloat", "complex")) for tensor in (expected, actual)]
        if len(expected.shape) != len(actual.shape):
            shapes = str(actual.shape), str(expected.shape)
            return Difference(f"{place}.shape", *shapes, (expected, actual))
        if is_real[0] != is_real[1]:
            return Difference(f"{place}.dtype", actual.dtype, expected.dtype, (expected, actual))
    elif isinstance(expected, Record):
        if expected.type != actual.type:
            return Difference(f"type({place})", actual.type, expected.type)
        known = dict(expected.fields)
        parts = (
            (known[name], item, f"{place}.{name}")
            for name, item in actual.fields
            if name in known and item is not None
        )
    elif isinstance(expected, dict):
        if not set(expected) <= set(actual):
            return Difference(f"{place} keys", repr(list(actual)), repr(list(expected)))
        parts = ((item, actual[key], f"{place}[{key!r}]") for key, item in expected.items())
    return next(filter(None, (form_difference(*part) for part in parts)), None)
