"""Whether data are what the annotations of a dataclass say: what a file holds was written by whoever had the file."""

from __future__ import annotations

import reprlib
import types
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

_LONGEST = 120


class Misfit(NamedTuple):
    """A place, what stands there, and what should."""

    place: str
    value: object
    rule: str

    def __str__(self) -> str:
        return f"{self.place} = {spelled(self.value)}, but should be {self.rule}"


def require(value: object, hint: Any, place: str) -> None:
    """Refuse a value that the annotation does not allow. `Any` allows plain data, and dataclasses that are as annotated.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    for found in misfits(value, hint, place):
        raise ValueError(str(found))


def require_once(names: Iterable[str], place: str) -> None:
    """Refuse a name that is there twice.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refused(place, name, "there once")
        seen.add(name)


def refused(place: str, value: object, rule: str) -> ValueError:
    """The error that names the place, the value and the rule."""
    return ValueError(str(Misfit(place, value, rule)))


def spelled(value: object) -> str:
    """The value, as much of it as one reads."""
    told = reprlib.Repr()
    told.maxstring = told.maxother = _LONGEST
    try:
        return told.repr(value)
    except ValueError:
        return "a number of more digits than Python spells"


def misfits(value: object, hint: Any, place: str) -> Iterator[Misfit]:
    """The places in which `value` is not what `hint` says."""
    origin = get_origin(hint)
    if hint is Any:
        yield from _of_any(value, place)
    elif origin is Literal:
        if value not in get_args(hint):
            yield Misfit(place, value, f"one of {', '.join(map(repr, get_args(hint)))}")
    elif origin in (Union, types.UnionType):
        yield from _of_union(value, get_args(hint), place)
    elif origin is tuple:
        yield from _of_tuple(value, get_args(hint), place)
    elif origin is list:
        yield from _of_list(value, get_args(hint)[0], place)
    elif origin is dict:
        yield from _of_dict(value, get_args(hint), place)
    elif not _is_a(value, hint):
        yield Misfit(place, value, _NAMES.get(hint) or f"a {hint.__name__}")
    elif is_dataclass(hint):
        yield from _of_fields(value, hint, place)


_NAMES: dict[Any, str] = {
    str: "text",
    int: "an int",
    float: "a number",
    bool: "true or false",
    bytes: "bytes",
    type(None): "None",
}


def _is_a(value: object, kind: Any) -> bool:
    """Whether it is of exactly that type: True is no int here, but an int is a float."""
    if kind is float:
        return type(value) in (int, float)
    return type(value) is (type(None) if kind is None else kind)


_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})


def _of_any(value: object, place: str) -> Iterator[Misfit]:
    if type(value) in _SCALARS:
        return
    if isinstance(value, (list, tuple)):
        # A tensor has many elements.
        if not set(map(type, value)) <= _SCALARS:
            yield from _of_items(value, Any, place)
    elif isinstance(value, dict):
        yield from _of_dict(value, (Any, Any), place)
    elif is_dataclass(value):
        yield from _of_fields(value, type(value), place)
    else:
        yield Misfit(place, value, "plain data")


def _of_fields(value: object, kind: Any, place: str) -> Iterator[Misfit]:
    hints = _hints(kind)
    for one in fields(kind):
        yield from misfits(getattr(value, one.name), hints[one.name], f"{place}.{one.name}".lstrip("."))


def _of_union(value: object, kinds: tuple[Any, ...], place: str) -> Iterator[Misfit]:
    """Of several types the one that it has the form of says what is wrong with it."""
    found = [list(misfits(value, kind, place)) for kind in kinds]
    if all(found):
        inside = next((one for one in found if one[0].place != place), None)
        rules = " or ".join(dict.fromkeys(one[0].rule for one in found))
        yield inside[0] if inside is not None else Misfit(place, value, rules)


def _of_tuple(value: object, kinds: tuple[Any, ...], place: str) -> Iterator[Misfit]:
    if not isinstance(value, tuple):
        yield Misfit(place, value, "a tuple")
    elif kinds[1:] == (...,):
        yield from _of_items(value, kinds[0], place)
    elif len(value) != len(kinds):
        yield Misfit(place, value, f"{len(kinds)} items")
    else:
        pairs = enumerate(zip(value, kinds, strict=True))
        yield from chain.from_iterable(misfits(one, kind, f"{place}[{at}]") for at, (one, kind) in pairs)


def _of_list(value: object, kind: Any, place: str) -> Iterator[Misfit]:
    if isinstance(value, list):
        yield from _of_items(value, kind, place)
    else:
        yield Misfit(place, value, "a list")


def _of_items(items: Iterable[object], kind: Any, place: str) -> Iterator[Misfit]:
    # A tensor has many elements.
    if kind is int and set(map(type, items)) <= {int}:
        return
    for at, one in enumerate(items):
        yield from misfits(one, kind, f"{place}[{at}]")


def _of_dict(value: object, kinds: tuple[Any, ...], place: str) -> Iterator[Misfit]:
    if not isinstance(value, dict):
        yield Misfit(place, value, "a dict")
        return
    for key, item in value.items():
        yield from misfits(key, kinds[0], f"a key of {place}")
        yield from misfits(item, kinds[1], f"{place}[{spelled(key)}]")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
