"""JSON data decoded to what type annotations say: dataclasses, lists, tuples, dicts and scalars.

Anyone may have written the data. Decoding builds dataclasses, runs nothing else, and raises a ValueError that names the place, the
value and the rule.
"""

from __future__ import annotations

import math
import reprlib
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

MOST_PADDED = 1 << 24
"""Elements that a file only declares, in one tuple and in all."""
_LONGEST_TEXT = 120
NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Floats that JSON does not have, as they are written in tagged data."""
_RULES: dict[Any, str] = {
    str: "text",
    int: "an int",
    float: "a number",
    bool: "true or false",
    bytes: "bytes",
    type(None): "None",
}
_SCALARS = frozenset({int, float, bool, str, type(None)})


class Misfit(ValueError):
    """A place, the value there, and the rule that it breaks."""

    def __init__(self, place: str, value: object, rule: str) -> None:
        super().__init__(f"{place} = {format_value(value)}, but should be {rule}")
        self.place, self.rule = place, rule


def format_value(value: object) -> str:
    """The value's beginning, at most about 120 characters."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = _LONGEST_TEXT
    try:
        return short.repr(value)
    except ValueError:
        return "an int with more digits than Python prints"


def require_once(names: Iterable[str], place: str) -> None:
    """Raise a Misfit if a name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Misfit(place, name, "there once")
        seen.add(name)


class _Object(NamedTuple):
    """A tagged object whose fields are not decoded yet."""

    kind: type
    content: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.kind.__name__}(...)"


class _Pairs(list[tuple[Any, Any]]):
    """A tagged dict whose keys and values are not decoded yet."""


@dataclass(frozen=True)
class Decoder:
    """Decodes JSON data.

    Args:
        kinds: dataclasses by tag, for data in which all but scalars and lists are tagged: {"tuple": [1]}, {"Name": {"name": "x"}}.
            Without: plain JSON, where an object is a dict or a dataclass as its annotation says.
        check: called with the place of each annotated number, and the number.
    """

    kinds: Mapping[str, type] | None = None
    check: Callable[[str, int | float], None] | None = None

    def decode(self, data: Any, hint: Any, place: str = "") -> Any:
        """The value of type `hint` that `data` describes.

        Raises:
            ValueError: the data describe no such value.
        """
        return self._as(data if self.kinds is None else self._untagged(data, place), hint, place)

    def build(self, kind: type, content: Mapping[str, Any], place: str = "") -> Any:
        """The dataclass with these fields; a field that has a default may be absent."""
        hints, required = _hints(kind), _required(kind)
        wrong = (set(content) - set(hints)) | (required - set(content))
        if wrong:
            rule = f"fields of {kind.__name__}, which has {sorted(hints)}"
            raise Misfit(f"{place or kind.__name__} fields", sorted(wrong), rule)
        values = {
            name: self.decode(item, hints[name], f"{place}.{name}".lstrip("."))
            for name, item in content.items()
        }
        return kind(**values)

    def _untagged(self, data: Any, place: str) -> Any:
        """The outermost level of tagged data without its tag."""
        assert self.kinds is not None
        if not isinstance(data, dict):
            return data
        if len(data) != 1:
            raise Misfit(place, data, "a scalar, a list or one tagged object")
        ((tag, content),) = data.items()
        if tag not in self.kinds and tag not in _UNTAG:
            raise Misfit("tag", tag, f"one of {', '.join((*_UNTAG, *self.kinds))} [{place}]")
        try:
            return _Object(self.kinds[tag], dict(content)) if tag in self.kinds else _UNTAG[tag](content)
        except (TypeError, ValueError) as error:
            raise Misfit(place, data, f"a valid {tag}: {error}") from error

    def _as(self, value: Any, hint: Any, place: str) -> Any:
        """A value of which the outermost level has no tag any more."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint is Any:
            return self._any(value, place)
        if origin in (Union, types.UnionType):
            return self._union(value, arguments, place)
        if origin is Literal and value in arguments:
            return value
        if origin is Literal:
            raise Misfit(place, value, f"one of {', '.join(map(repr, arguments))}")
        if origin in (tuple, list):
            return self._items(value, origin, arguments, place)
        if origin is dict:
            return self._dict(value, arguments, place)
        if origin is Counter:
            return Counter(self._dict(value, (*arguments, int), place))
        if is_dataclass(hint):
            return self._dataclass(value, hint, place)
        return self._scalar(value, hint, place)

    def _any(self, value: Any, place: str) -> Any:
        if self.kinds is None:
            return value
        if isinstance(value, _Pairs):
            return self._dict(value, (Any, Any), place)
        if isinstance(value, _Object):
            return self.build(value.kind, value.content, place)
        if isinstance(value, (list, tuple)):
            return type(value)(self._each(value, Any, place))
        return value

    def _each(self, items: Iterable[Any], kind: Any, place: str) -> Iterable[Any]:
        # A tensor has many elements.
        if self.check is None and set(map(type, items)) <= (_SCALARS if kind is Any else {kind} & _SCALARS):
            return items
        return [self.decode(item, kind, f"{place}[{at}]") for at, item in enumerate(items)]

    def _union(self, value: Any, kinds: tuple[Any, ...], place: str) -> Any:
        """The first type that fits. If none does, the error of the type whose outermost level fits."""
        misfits: list[Misfit] = []
        for kind in kinds:
            try:
                return self._as(value, kind, place)
            except Misfit as error:
                misfits.append(error)
        for misfit in misfits:
            if misfit.place != place:
                raise misfit
        raise Misfit(place, value, " or ".join(dict.fromkeys(misfit.rule for misfit in misfits)))

    def _items(self, value: Any, origin: Any, kinds: tuple[Any, ...], place: str) -> Any:
        if not isinstance(value, list if self.kinds is None else origin):
            raise Misfit(place, value, f"a {origin.__name__}")
        if origin is list or kinds[1:] == (...,):
            return origin(self._each(value, kinds[0], place))
        if len(value) != len(kinds):
            raise Misfit(place, value, f"{len(kinds)} items")
        pairs = enumerate(zip(value, kinds, strict=True))
        return tuple(self.decode(item, kind, f"{place}[{at}]") for at, (item, kind) in pairs)

    def _dict(self, value: Any, kinds: tuple[Any, ...], place: str) -> dict[Any, Any]:
        if not isinstance(value, dict if self.kinds is None else _Pairs):
            raise Misfit(place, value, "a dict")
        decoded = {}
        for key, item in value.items() if isinstance(value, dict) else value:
            name = self.decode(key, kinds[0], f"a key of {place}")
            try:
                decoded[name] = self.decode(item, kinds[1], f"{place}[{format_value(key)}]")
            except TypeError:
                raise Misfit(f"a key of {place}", name, "hashable") from None
        return decoded

    def _dataclass(self, value: Any, kind: Any, place: str) -> Any:
        if isinstance(value, _Object) and value.kind is kind:
            return self.build(kind, value.content, place)
        if self.kinds is None and isinstance(value, dict):
            return self.build(kind, value, place)
        raise Misfit(place, value, f"a {kind.__name__}")

    def _scalar(self, value: Any, kind: Any, place: str) -> Any:
        # True is no int here, but an int is a float.
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise Misfit(place, value, _RULES.get(kind) or f"a {kind.__name__}")
        if self.check is not None and type(value) in (int, float):
            self.check(place, value)
        return value


def _padded(content: Any) -> tuple[Any, ...]:
    kept, last, times = content
    if type(last) is not int or type(times) is not int or not 0 <= times <= MOST_PADDED:
        raise ValueError(f"an int, at most {MOST_PADDED} times")
    return (*kept, *(last,) * times)


def _tuple(content: Any) -> tuple[Any, ...]:
    if not isinstance(content, list):
        raise TypeError("it has a list")
    return tuple(content)


def _number(content: Any) -> float:
    if content not in NO_NUMBERS:
        raise ValueError(f"one of {', '.join(NO_NUMBERS)}")
    return NO_NUMBERS[content]


_UNTAG: dict[str, Callable[[Any], Any]] = {
    "tuple": _tuple,
    "dict": lambda content: _Pairs((key, item) for key, item in content),
    "bytes": bytes.fromhex,
    "float": _number,
    "padded": _padded,
}


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The fields that are saved, which are those in the `repr`; other fields belong to one run."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init and field.repr}


@cache
def _required(kind: type) -> frozenset[str]:
    return frozenset(
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    )
