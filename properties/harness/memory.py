"""What the rules know in the middle of an example: what names stand for, and what observed memory holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from properties.harness.values import Call, Let, Overwrite, Tensor, Value, View, resolve

ITEM_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}


@dataclass
class Memory:
    """Follows the steps of an example, as the rules see them.

    A name stands for a value, with the elements that its tensors hold now, or for the call that made or updated it.
    `found` are contents of dotted paths, as far as they are known. `written` are the bytes of pools without elements:
    those that a view has written.
    """

    names: dict[str, Value] = field(default_factory=dict)
    found: dict[str, Value] = field(default_factory=dict)
    written: dict[str, dict[int, int]] = field(default_factory=dict)

    def bind(self, name: str, value: Value) -> None:
        """`name` stands for `value` from now on; what was known below the name is forgotten."""
        self.names[name] = value
        self.written.pop(name, None)
        for path in [path for path in self.found if path.startswith(f"{name}.")]:
            del self.found[path]

    def note(self, step: Let | Overwrite) -> None:
        if isinstance(step, Let):
            self.bind(step.name, step.value)
            return
        target = self.names[step.name]
        if isinstance(target, View):
            self._write(target, as_bytes(step.elements, target.dtype))
        else:
            self.names[step.name] = replace(target, elements=step.elements)

    def resolved(self, call: Call) -> Call:
        """`call` with what its names, and the paths below them, are known to hold before it."""
        arguments = tuple((name, self._resolved(value)) for name, value in call.arguments)
        keywords = tuple((name, self._resolved(value)) for name, value in call.keywords)
        return replace(call, arguments=arguments, keywords=keywords)

    def _resolved(self, value: Value) -> Value:
        return resolve(value, self.names, self.found)

    def known(self, call: Call) -> dict[str, Value]:
        """Contents by name, None where unknown: every tensor, container and path, and whatever `call` observes."""
        plain = (Tensor, dict, list)
        held = [name for name, value in self.names.items() if isinstance(value, plain)]
        held += [name for name, value in self.names.items() if self._is_window(value)]
        return {name: self.contents(name) for name in (*held, *self.found, *call.observes)}

    def _is_window(self, value: Value) -> bool:
        return isinstance(value, View) and self.names[value.of].elements is None

    def contents(self, name: str) -> Value | None:
        """What `name` holds, in the form in which it is observed; None where that is not known."""
        value = self.names.get(name)
        if isinstance(value, View):
            return self._view(value)
        if isinstance(value, Tensor):
            return value.storage() if value.elements is not None else None
        if isinstance(value, (dict, list, tuple)):
            return self._resolved(value)
        return self.found.get(name)

    def learn(self, after: Mapping[str, Value]) -> None:
        """Make `after`, contents by name, the known ones."""
        for name, value in after.items():
            old = self.names.get(name)
            if isinstance(old, View):
                self._write(old, as_bytes(value.elements, value.dtype))
            elif isinstance(old, Tensor):
                self.names[name] = replace(old, elements=value.elements)
            elif name in self.names:
                self.names[name] = value
            else:
                self.found[name] = value

    def _view(self, view: View) -> Tensor | None:
        held = self._bytes(view.of)
        places = list(_places(view))
        if any(place not in held for place in places):
            return None
        return described(view.dtype, view.shape, bytes(held[place] for place in places))

    def _bytes(self, pool: str) -> dict[int, int]:
        tensor = self.names[pool]
        if tensor.elements is None:
            return self.written.get(pool, {})
        return dict(enumerate(as_bytes(tensor.elements, tensor.dtype)))

    def _write(self, view: View, raw: bytes) -> None:
        tensor, changed = self.names[view.of], dict(zip(_places(view), raw, strict=True))
        if tensor.elements is None:
            self.written.setdefault(view.of, {}).update(changed)
            return
        held = bytes((self._bytes(view.of) | changed).values())
        self.names[view.of] = replace(tensor, elements=as_elements(held, tensor.dtype))


def _places(view: View) -> Iterator[int]:
    """The byte positions of a view's elements in their storage, in row-major order."""
    size = ITEM_SIZES[view.dtype]
    for position in Tensor(view.dtype, view.shape, None, view.strides, view.offset).positions():
        yield from range(position * size, (position + 1) * size)


def described(dtype: str, shape: tuple[int, ...], raw: bytes) -> Tensor:
    """A view's elements in the form in which they are observed: those of a float type as the bytes that they are."""
    if "float" in dtype:
        return Tensor("uint8", (len(raw),), raw)
    return Tensor(dtype, shape, as_elements(raw, dtype))


def as_elements(raw: bytes, dtype: str) -> tuple[int, ...] | bytes:
    """The integers that `raw` holds; bytes stay bytes where the type is "uint8".

    Raises:
        ValueError: the type is a float type.
    """
    if dtype == "uint8":
        return raw
    size = _integer_size(dtype)
    starts = range(0, len(raw), size)
    return tuple(int.from_bytes(raw[i : i + size], "little", signed=dtype[0] == "i") for i in starts)


def as_bytes(elements: tuple[int, ...] | bytes, dtype: str) -> bytes:
    """The memory of `elements`; the inverse of `as_elements`.

    Raises:
        ValueError: the type is a float type, and the elements are not bytes already.
    """
    if isinstance(elements, bytes):
        return elements
    size = _integer_size(dtype)
    return b"".join(element.to_bytes(size, "little", signed=dtype[0] == "i") for element in elements)


def _integer_size(dtype: str) -> int:
    if "float" in dtype:
        raise ValueError(f"dtype = {dtype!r}, but should be an integer type, or its elements bytes [Memory]")
    return ITEM_SIZES[dtype]
