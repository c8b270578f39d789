"""What the rules know in the middle of an example: what names stand for, and what observed memory holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from statecheck.case.values import (
    ITEM_SIZES,
    Call,
    Expected,
    Let,
    Overwrite,
    Returned,
    Tensor,
    Value,
    View,
    as_bytes,
    as_elements,
    described,
    is_closed,
    resolve,
)


@dataclass
class KnownMemory:
    """Follows the steps of an example, as the rules see them.

    A name stands for a value, with the elements that its tensors hold now, or for the call that made or updated it.
    `found` are contents of dotted paths, as far as they are known. `written` are the bytes of pools without elements
    that a view has written, by their places.
    """

    names: dict[str, Value] = field(default_factory=dict)
    found: dict[str, Value] = field(default_factory=dict)
    written: dict[str, dict[int, int]] = field(default_factory=dict)
    _closed: set[str] = field(default_factory=set)

    def bind(self, name: str, value: Value) -> None:
        """`name` stands for `value` from now on; what was known below the name is forgotten."""
        self.names[name] = value
        # Models are resolved for every call, and are large.
        (self._closed.add if is_closed(value) else self._closed.discard)(name)
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

    def follow(self, step: Call, resolved: Call, expected: Expected) -> None:
        """A call was made: what its names stand for, and what memory holds, from now on."""
        if step.bind:
            self.bind(step.bind, resolved)
        if isinstance(expected, Returned):
            if step.updates:
                self.names[step.updates] = resolved
            self.learn(dict(expected.after))

    def resolved(self, call: Call) -> Call:
        """`call` with what its names, and the paths below them, are known to hold before it."""
        arguments = tuple((name, self._resolved(value)) for name, value in call.arguments)
        keywords = tuple((name, self._resolved(value)) for name, value in call.keywords)
        return replace(call, arguments=arguments, keywords=keywords)

    def _resolved(self, value: Value) -> Value:
        return resolve(value, self.names, self.found, self._closed)

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
                self._closed.discard(name)
            else:
                self.found[name] = value

    def _view(self, view: View) -> Tensor | None:
        runs = [self._read(view.of, start, end) for start, end in _places(view)]
        if None in runs:
            return None
        return described(view.dtype, view.shape, b"".join(run for run in runs if run is not None))

    def _read(self, pool: str, start: int, end: int) -> bytes | None:
        tensor = self.names[pool]
        if tensor.elements is None:
            known, places = self.written.get(pool, {}), range(start, end)
            return (
                bytes(known[place] for place in places) if all(place in known for place in places) else None
            )
        held = as_bytes(tensor.elements, tensor.dtype)
        return held[start:end] if start >= 0 and end <= len(held) else None

    def _write(self, view: View, raw: bytes) -> None:
        tensor, places = self.names[view.of], _places(view)
        assert len(raw) == sum(end - start for start, end in places), (
            f"{len(raw)} bytes are not those of {view}"
        )
        if tensor.elements is None:
            written = self.written.setdefault(view.of, {})
            for start, piece in _pieces(raw, places):
                written.update(enumerate(piece, start))
            return
        held = bytearray(as_bytes(tensor.elements, tensor.dtype))
        assert all(start >= 0 and end <= len(held) for start, end in places), f"{view} leaves its storage"
        for start, piece in _pieces(raw, places):
            held[start : start + len(piece)] = piece
        self.names[view.of] = replace(tensor, elements=as_elements(bytes(held), tensor.dtype))


def _pieces(raw: bytes, places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """`raw` cut into what belongs at each place, with where that begins."""
    first = 0
    for start, end in places:
        yield start, raw[first : first + end - start]
        first += end - start


@lru_cache(64)
def _places(view: View) -> tuple[tuple[int, int], ...]:
    """Where each run of the view's bytes begins and ends in its storage, in row-major order of the elements."""
    size = ITEM_SIZES[view.dtype]
    starts, length = Tensor(view.dtype, view.shape, None, view.strides, view.offset).runs()
    return tuple((start * size, (start + length) * size) for start in starts)
