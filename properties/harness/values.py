"""Inputs and outcomes as plain data.

What a case file holds, what an execution port is handed and what a report prints are the same values: Python
scalars and containers plus the few frozen dataclasses below. They know nothing of torch, so a case can be read,
sent and compared where no subject is installed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

Value = Any
"""int, str, bool, None, list, tuple, dict, or one of the dataclasses of this module."""

Place = Literal["device", "host"]


@dataclass(frozen=True)
class Tensor:
    """A tensor together with the memory that it is a view of.

    `elements` is the whole storage in elements (integer and bool dtypes), or None where the contents do not matter
    (state pools of which only addresses are taken); `shape`, `strides` and `offset`, in elements, select the view.
    """

    dtype: str
    shape: tuple[int, ...]
    elements: tuple[int, ...] | None
    strides: tuple[int, ...] | None = None
    offset: int = 0
    on: Place = "device"

    @property
    def contiguous_strides(self) -> tuple[int, ...]:
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    @property
    def storage_size(self) -> int:
        """Elements that the storage needs to hold the view, or holds."""
        if self.elements is not None:
            return len(self.elements)
        if 0 in self.shape:
            return self.offset
        reach = zip(self.shape, self.strides or self.contiguous_strides, strict=True)
        return self.offset + 1 + sum((size - 1) * stride for size, stride in reach)

    def positions(self) -> Iterator[int]:
        """Storage position of each element of the view, in row-major order."""
        strides = self.strides or self.contiguous_strides
        for index in itertools.product(*map(range, self.shape)):
            yield self.offset + sum(i * stride for i, stride in zip(index, strides, strict=True))

    def values(self) -> tuple[int, ...]:
        """The view's elements in row-major order."""
        if self.elements is None:
            raise ValueError("elements = None, but should be known to read a tensor's values")
        if self.strides is None and self.offset == 0 and len(self.elements) == prod(self.shape):
            return self.elements
        return tuple(self.elements[position] for position in self.positions())

    def rows(self) -> tuple[tuple[int, ...], ...]:
        """A 2-D view's elements, row by row."""
        flat, width = self.values(), self.shape[1]
        return tuple(flat[row * width : (row + 1) * width] for row in range(self.shape[0]))

    def dense(self) -> Tensor:
        """The same values without the memory around them."""
        return Tensor(self.dtype, self.shape, self.values(), on=self.on)

    def on_host(self) -> Tensor:
        return replace(self, on="host")


@dataclass(frozen=True)
class DType:
    """A torch dtype by name, such as "bfloat16"."""

    name: str


@dataclass(frozen=True)
class Device:
    """The device of the run."""


@dataclass(frozen=True)
class Name:
    """A variable bound by an earlier `Let`."""

    name: str


@dataclass(frozen=True)
class Record:
    """An object of the subject's class `type`, or of any class with these attributes where it has none."""

    type: str
    fields: tuple[tuple[str, Value], ...]

    def __getitem__(self, field: str) -> Value:
        return dict(self.fields)[field]


@dataclass(frozen=True)
class Returns:
    """A function without arguments that returns `value`, for methods of configuration objects."""

    value: Value


@dataclass(frozen=True)
class SameAs:
    """The very object found at `path`: an argument's name, or a place in the result such as `result[0]`."""

    path: str


@dataclass(frozen=True)
class Address:
    """The memory address `offset` bytes behind the first element of the argument `argument`."""

    argument: str
    offset: int


@dataclass(frozen=True)
class Let:
    """Bind a value to a name, so that several calls are handed the same object."""

    name: str
    value: Value


@dataclass(frozen=True)
class Overwrite:
    """Replace the elements of a named tensor in place."""

    name: str
    elements: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One call of a documented symbol: positional arguments under the documents' names, then keywords.

    A class is called to construct an object. `bind` is a name under which later steps find the result. `by_content`
    describes tensors of the result by what they hold, also where they are an argument's very object. Functions whose
    name begins with `harness.` are the port's own.
    """

    function: str
    arguments: tuple[tuple[str, Value], ...]
    keywords: tuple[tuple[str, Value], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    bind: str = ""
    by_content: bool = False

    @property
    def named(self) -> dict[str, Value]:
        return dict(self.arguments) | dict(self.keywords)


Step = Let | Overwrite | Call


@dataclass(frozen=True)
class Returned:
    """The call returned `value`; `changed` names the arguments whose memory, guards included, it wrote to."""

    value: Value
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Raised:
    """The call raised; `changed` as in `Returned`."""

    exception: str
    message: str
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """What the rules expect of an input outside their domain: this exception, naming this argument."""

    argument: str
    exception: str = "ValueError"


Outcome = Returned | Raised
Expected = Returned | Refusal


def call(function: str, *, environment: Any = None, **arguments: Value) -> Call:
    """A call with positional arguments in the order given."""
    return Call(function, tuple(arguments.items()), environment=tuple((environment or {}).items()))


def record(type_: str, **fields: Value) -> Record:
    return Record(type_, tuple(fields.items()))


def _tensor(dtype: str, values: Sequence[Any]) -> Tensor:
    if values and isinstance(values[0], (list, tuple)):
        flat = tuple(itertools.chain.from_iterable(values))
        return Tensor(dtype, (len(values), len(values[0])), flat)
    return Tensor(dtype, (len(values),), tuple(values))


def int32(values: Sequence[Any]) -> Tensor:
    """A dense int32 vector, or matrix when the values are rows."""
    return _tensor("int32", values)


def int64(values: Sequence[Any]) -> Tensor:
    """A dense int64 vector, or matrix when the values are rows."""
    return _tensor("int64", values)


def boolean(values: Sequence[bool]) -> Tensor:
    """A dense bool vector."""
    return _tensor("bool", [int(value) for value in values])


def resolve(value: Value, names: dict[str, Value]) -> Value:
    """`value` with every `Name` replaced by what it is bound to."""
    if isinstance(value, Name):
        return resolve(names[value.name], names)
    if isinstance(value, Record):
        return Record(value.type, tuple((field, resolve(item, names)) for field, item in value.fields))
    if isinstance(value, (list, tuple)):
        return type(value)(resolve(item, names) for item in value)
    if isinstance(value, dict):
        return {key: resolve(item, names) for key, item in value.items()}
    return value
