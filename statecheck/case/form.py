"""Whether a property can read a result: types, lengths of containers and dimensions, as far as the rules know them."""

from __future__ import annotations

from collections.abc import Iterable

from statecheck.case.compare import Difference, brief, damage
from statecheck.case.values import Record, SameAs, Tensor, Value

_REAL = ("float", "bfloat", "complex")


def form_difference(expected: Value, actual: Value, place: str) -> Difference | None:
    """The first part of `actual` that cannot be read as the rules' value of that part can; its numbers are not compared.

    Lengths of tensors are not part of the form: properties have sentences of their own about them.
    """
    if isinstance(actual, Record) and actual.type == "Damaged":
        return damage(actual, place)
    if isinstance(expected, SameAs) or expected is None:
        return None
    if isinstance(expected, Tensor):
        return _tensor_form(expected, actual, place)
    if isinstance(expected, (list, tuple)):
        return _sequence_form(expected, actual, place)
    if type(expected) is not type(actual):
        return Difference(place, brief(actual), brief(expected))
    if isinstance(expected, Record):
        return _record_form(expected, actual, place)
    if isinstance(expected, dict):
        return _dict_form(expected, actual, place)
    return None


def _tensor_form(expected: Tensor, actual: Value, place: str) -> Difference | None:
    if not isinstance(actual, Tensor):
        return Difference(place, brief(actual), brief(expected))
    if len(expected.shape) != len(actual.shape):
        shapes = str(actual.shape), str(expected.shape)
        return Difference(f"{place}.shape", *shapes, (expected, actual))
    if expected.dtype.startswith(_REAL) != actual.dtype.startswith(_REAL):
        return Difference(f"{place}.dtype", actual.dtype, expected.dtype, (expected, actual))
    return None


def _sequence_form(expected: list[Value] | tuple[Value, ...], actual: Value, place: str) -> Difference | None:
    if not isinstance(actual, (list, tuple)):
        return Difference(place, brief(actual), brief(expected))
    if len(expected) != len(actual):
        return Difference(f"len({place})", str(len(actual)), str(len(expected)))
    pairs = enumerate(zip(expected, actual, strict=True))
    return _first(form_difference(wanted, seen, f"{place}[{at}]") for at, (wanted, seen) in pairs)


def _record_form(expected: Record, actual: Record, place: str) -> Difference | None:
    """Of fields that both have: one that is missing is only wrong where a property reads it."""
    if expected.type != actual.type:
        return Difference(f"type({place})", actual.type, expected.type)
    known = dict(expected.fields)
    return _first(
        form_difference(known[name], item, f"{place}.{name}")
        for name, item in actual.fields
        if name in known and item is not None
    )


def _dict_form(expected: dict[Value, Value], actual: dict[Value, Value], place: str) -> Difference | None:
    if not set(expected) <= set(actual):
        return Difference(f"{place} keys", repr(list(actual)), repr(list(expected)))
    return _first(form_difference(item, actual[key], f"{place}[{key!r}]") for key, item in expected.items())


def _first(differences: Iterable[Difference | None]) -> Difference | None:
    return next((difference for difference in differences if difference is not None), None)
