"""Inputs and outcomes as plain data.

What a case file holds, what an execution port is handed and what a report prints are the same values: Python
scalars and containers plus the few frozen dataclasses below. They know nothing of torch, so a case can be read,
sent and compared where no subject is installed.
"""

from __future__ import annotations

import itertools
import re
import struct
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any, Final, Literal, NamedTuple

Place = Literal["device", "host"]
CANARY = 0xA5
"""What every byte of the memory around a tensor holds."""
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
"""Bytes of an element, by the name of its torch dtype."""


@dataclass(frozen=True)
class Tensor:
    """A tensor together with the memory that it is a view of.

    `elements` is the whole storage in elements (integer and bool dtypes; bytes say the same of "uint8" in less
    space), or None where the contents do not matter, or are written through a `View` (state pools that are too large to
    write out); `shape`, `strides` and `offset`, in elements, select the view.
    """

    dtype: str
    shape: tuple[int, ...]
    elements: tuple[Any, ...] | bytes | None
    """Ints; floats only in what a subject returned."""
    strides: tuple[int, ...] | None = None
    offset: int = 0
    on: Place = "device"

    @property
    def contiguous_strides(self) -> tuple[int, ...]:
        return dense_strides(self.shape)

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
        starts, length = self.runs()
        return itertools.chain.from_iterable(range(start, start + length) for start in starts)

    def runs(self) -> tuple[tuple[int, ...], int]:
        """Where each run of neighbouring elements of the view begins in the storage, in row-major order; their length."""
        return _runs(self.shape, self.strides or self.contiguous_strides, self.offset)

    def values(self) -> tuple[int, ...]:
        """The view's elements in row-major order."""
        if self.elements is None:
            raise ValueError("elements = None, but should be known to read a tensor's values")
        if self.is_dense:
            return tuple(self.elements)
        starts, length = self.runs()
        runs = [self.elements[start : start + length] for start in starts]
        assert all(len(run) == length for run in runs), f"{self} reaches beyond its storage"
        return tuple(itertools.chain.from_iterable(runs))

    @property
    def is_dense(self) -> bool:
        """Whether the storage holds the view's elements, in row-major order, and nothing else."""
        return self.strides is None and self.offset == 0 and self.storage_size == prod(self.shape)

    def rows(self) -> tuple[tuple[int, ...], ...]:
        """A 2-D view's elements, row by row."""
        flat, width = self.values(), self.shape[1]
        return tuple(flat[row * width : (row + 1) * width] for row in range(self.shape[0]))

    def dense(self) -> Tensor:
        """The same values without the memory around them."""
        kept = self.elements if self.is_dense else self.values()
        return Tensor(self.dtype, self.shape, kept, on=self.on)

    def storage(self) -> Tensor:
        """The whole storage as a vector, which is how observed memory is described; of "uint8" as bytes."""
        assert self.elements is not None
        kept = bytes(self.elements) if self.dtype == "uint8" else self.elements
        if kept is self.elements and self.is_dense and len(self.shape) == 1:
            return self
        return Tensor(self.dtype, (len(kept),), kept, on=self.on)

    def on_host(self) -> Tensor:
        return replace(self, on="host")


@dataclass(frozen=True)
class Bounded:
    """What is expected of a float tensor whose elements are known within bounds: of a result, or of memory as it is observed.

    `raw` are the bytes of all elements, in row-major order, which is where an element of no place in `near` has to agree to the bit. `near` has
    the place of each other element, the number expected there, and by how much the tensor may differ from it: infinitely where nothing is expected.
    `view` is what the memory is a view of for its reader, by shape, strides and offset in elements.
    """

    dtype: str
    shape: tuple[int, ...]
    raw: bytes
    near: tuple[tuple[int, float, float], ...]
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None = None

    def index(self, at: int) -> tuple[int, ...]:
        """The index of an element by its place: in the view where the view has it, or else in the memory."""
        shape, strides, rest = self.shape, dense_strides(self.shape), at
        if self.view is not None:
            shape, strides, rest = *self.view[:2], at - self.view[2]
        found = [0] * len(shape)
        for axis in sorted(range(len(shape)), key=lambda axis: -strides[axis]):
            if shape[axis] > 1:
                found[axis], rest = divmod(rest, strides[axis])
        inside = rest == 0 and all(0 <= one < size for one, size in zip(found, shape, strict=True))
        return tuple(found) if inside else (at,)


def floats_of(raw: bytes, dtype: str) -> tuple[float, ...]:
    """The numbers that the bytes of a float type stand for."""
    if dtype == "bfloat16":
        halves = struct.unpack(f"<{len(raw) // 2}H", raw)
        return struct.unpack(
            f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves))
        )
    return struct.unpack(f"<{len(raw) // ITEM_SIZES[dtype]}{_FLOAT_CODES[dtype]}", raw)


def raw_floats(values: Sequence[float], dtype: str) -> bytes:
    """The bytes of numbers that a float type can hold exactly; the inverse of `floats_of`. Of bfloat16 others are cut off."""
    if dtype == "bfloat16":
        whole = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
        return struct.pack(f"<{len(values)}H", *(number >> 16 for number in whole))
    return struct.pack(f"<{len(values)}{_FLOAT_CODES[dtype]}", *values)


LARGEST = {
    "float16": 65504.0,
    "bfloat16": (2.0 - 2.0**-7) * 2.0**127,
    "float32": (2.0 - 2.0**-23) * 2.0**127,
    "float64": sys.float_info.max,
}
"""The largest finite number of a float type."""
_FLOAT_CODES = {"float16": "e", "float32": "f", "float64": "d"}


@lru_cache(4096)
def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, in row-major order."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


MOST_LISTED_RUNS = 1 << 20
"""Pieces of memory of a view that is observed, each of which costs time by itself."""


def _runs(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
    if 0 in shape:
        return (), 0
    (axes, length), starts = outer_axes(shape, strides), [offset]
    if prod(size for size, _ in axes) > MOST_LISTED_RUNS:
        raise ValueError(
            f"shape = {shape}, but should be in at most {MOST_LISTED_RUNS} pieces of memory where all are compared"
        )
    for size, stride in axes:
        starts = [start + index * stride for start in starts for index in range(size)]
    return tuple(starts), length


def outer_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[list[tuple[int, int]], int]:
    """Size and stride of the axes that repeat a run of neighbouring elements, and the run's length."""
    axes, length = list(zip(shape, strides, strict=False)), 1
    while axes and (axes[-1][0] == 1 or axes[-1][1] == length):
        length *= axes.pop()[0]
    return axes, length


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
    return struct.unpack(_format(dtype, len(raw) // ITEM_SIZES[dtype]), raw)


def as_bytes(elements: tuple[int, ...] | bytes, dtype: str) -> bytes:
    """The memory of `elements`; the inverse of `as_elements`.

    Raises:
        ValueError: the type is a float type, and the elements are not bytes already.
    """
    if isinstance(elements, bytes):
        return elements
    return struct.pack(_format(dtype, len(elements)), *elements)


def _format(dtype: str, count: int) -> str:
    """How `struct` spells so many elements."""
    if "float" in dtype:
        raise ValueError(
            f"dtype = {dtype!r}, but should be an integer type, or its elements bytes [as_bytes]"
        )
    code = {1: "b", 2: "h", 4: "i", 8: "q"}[ITEM_SIZES[dtype]]
    return f"<{count}{code if dtype[0] == 'i' else code.upper()}"


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


Value = Any
"""int, float, str, bool, None, bytes, list, tuple, dict, or one of the dataclasses of this module."""


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
class View:
    """A typed view into the storage of the tensor that a `Let` bound to `of`; strides and offset in elements of `dtype`."""

    of: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0


@dataclass(frozen=True)
class Fake:
    """A tensor of the device that has no memory: it answers questions, and its `data_ptr()` is `address`."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    address: int


@dataclass(frozen=True)
class Function:
    """The subject's function of that name, as an argument."""

    name: str


@dataclass(frozen=True)
class BufferMaker:
    """A function `(*size, dtype)` that makes the subject's `CpuGpuBuffer` for the device of the run."""


@dataclass(frozen=True)
class Rows:
    """A function of n that returns the first n rows of the tensor `of`."""

    of: Value


@dataclass(frozen=True)
class NumPy:
    """The NumPy array that shares the memory of the host tensor `of`."""

    of: Value


@dataclass(frozen=True)
class Attribute:
    """What is found at the dotted `path` below the bound object `of`."""

    of: Value
    path: str


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
    """Replace in place what the storage of a named tensor holds, or the elements of a named view.

    Elements as in `Tensor`; bytes also say what a view of any dtype holds, in row-major order.
    """

    name: str
    elements: tuple[int, ...] | bytes


@dataclass(frozen=True)
class Call:
    """One call of a documented symbol: positional arguments under the documents' names, then keywords.

    A class is called to construct an object. `bind` is a name under which later steps find the result. `by_content`
    describes tensors of the result by what they hold, also where they are an argument's very object. Functions whose
    name begins with `harness.` are the port's own.

    `observes` are the names whose contents after the call belong to its outcome: what a `Let` bound (tensors, views,
    dicts, lists), or a dotted path below a bound object. They may be written to; everything else has to stay as it was.
    `updates` is a bound object that the call changes: for the rules the name stands for this call from then on.
    `schedule` is the order in which the programs of each launch run on a CPU (see `ProgramSchedule`).
    """

    function: str
    arguments: tuple[tuple[str, Value], ...]
    keywords: tuple[tuple[str, Value], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    bind: str = ""
    by_content: bool = False
    observes: tuple[str, ...] = ()
    updates: str = ""
    schedule: str = ""

    @property
    def named(self) -> dict[str, Value]:
        return dict(self.arguments) | dict(self.keywords)

    @property
    def keeps(self) -> bool:
        """Whether an object that is left behind may remember the arguments."""
        return bool(self.bind or self.updates)


Step = Let | Overwrite | Call


@dataclass(frozen=True)
class Returned:
    """The call returned `value`; `changed` names the arguments whose memory, guards included, it wrote to.

    `after` holds what the call observes, in its order: a tensor as its whole storage (or a record `Damaged` of the bytes
    before, inside and after it, where guard bytes are not what they were), a view as its elements, anything else as it is.
    `by_subject`: a function of the subject ran, and not the adapter alone. It belongs to the run and is not saved.
    """

    value: Value
    changed: tuple[str, ...] = ()
    after: tuple[tuple[str, Value], ...] = ()
    by_subject: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True)
class SourceLine:
    """A line of the subject's own code: `file` below the folder that its package is imported from, and `text` without indentation."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class KernelAccess:
    """The access to memory that a finding of the sanitizer is about.

    Args:
        kernel: its name.
        verb: "loads", "stores", "changes atomically" or "computes". Which access of a race comes first depends on the input.
        tensor: the tensor's name, "" where the address is in no known tensor.
        element: the indices in the tensor's view; None for an address in none of its elements.
    """

    kernel: str
    verb: str
    tensor: str
    element: tuple[int, ...] | None


RaisedKind = Literal["refusal", "memory", "race", "fault", "hang"]
OF_ACCESSES: Final = ("memory", "race")
"""Kinds that are about accesses to memory."""


@dataclass(frozen=True)
class Raised:
    """The call raised, or its process ended or gave no answer; `changed`, `after` and `by_subject` as in `Returned`.

    `kind`: "refusal" for an exception of the subject's code, "memory" or "race" for a finding of the sanitizer, whose `access` is the one that it
    is about, "fault" where the process ended or the device became unusable, and "hang". `exception` is the name of the exception or finding, or
    the kind of the fault, see `case.raised`.
    `at` is the innermost line of the subject's own code that the exception came from. It moves with every change of the file, so
    that two outcomes are equal whatever it is. `not_offered`: the subject's adapter says that the subject does not offer what the
    call needs, or its launch cannot be executed; of a "fault", that the device has no room, which other processes hold.
    """

    exception: str
    message: str
    changed: tuple[str, ...] = ()
    after: tuple[tuple[str, Value], ...] = ()
    at: SourceLine | None = field(default=None, compare=False)
    kind: RaisedKind = "refusal"
    access: KernelAccess | None = None
    by_subject: bool = field(default=True, compare=False, repr=False)
    not_offered: bool = field(default=False, compare=False, repr=False)

    @property
    def is_finding(self) -> bool:
        """Whether the sanitizer ended the call."""
        return self.kind in OF_ACCESSES


@dataclass(frozen=True)
class Refusal:
    """What the rules expect of an input outside their domain: this exception, naming this argument.

    `after` as in `Returned`: what was known of the observed contents before, since a refusal comes before any change.
    """

    argument: str
    exception: str = "ValueError"
    after: tuple[tuple[str, Value], ...] = ()


Outcome = Returned | Raised
Expected = Returned | Refusal


def call(
    function: str,
    *,
    environment: Any = None,
    bind: Any = "",
    observes: Any = (),
    updates: Any = "",
    schedule: Any = "",
    **arguments: Value,
) -> Call:
    """A call with positional arguments in the order given; the options are the fields of `Call`."""
    return Call(
        function,
        tuple(arguments.items()),
        environment=tuple((environment or {}).items()),
        bind=bind,
        observes=tuple(observes),
        updates=updates,
        schedule=schedule,
    )


def record(type_: str, **fields: Value) -> Record:
    return Record(type_, tuple(fields.items()))


# Names in values, and what they are bound to.

_CLOSED = (int, str, bytes, Tensor, View, DType, Call, type(None))
"""What has no names in it, or none to look up any more."""


def is_closed(value: Value) -> bool:
    """Whether there is nothing in `value` to resolve."""
    if isinstance(value, Record):
        return all(is_closed(item) for _, item in value.fields)
    if isinstance(value, (list, tuple)):
        return all(map(is_closed, value))
    if isinstance(value, dict):
        return all(map(is_closed, value.values()))
    return not isinstance(value, (Name, Rows, NumPy, Attribute))


def resolve(
    value: Value,
    names: Mapping[str, Value],
    contents: Mapping[str, Value] | None = None,
    closed: Container[str] = (),
) -> Value:
    """`value` with every `Name` replaced by what it is bound to, and every `Attribute` by its contents.

    Args:
        contents: by dotted path, as far as they are known. An `Attribute` that is not stays one, of what it is of.
        closed: names that are known to be bound to something in which there is nothing to resolve.
    """
    if isinstance(value, _CLOSED):
        return value
    contents = contents or {}

    def inside(item: Value) -> Value:
        return resolve(item, names, contents, closed)

    if isinstance(value, Name):
        bound = names[value.name]
        return bound if value.name in closed else inside(bound)
    if isinstance(value, Record):
        return Record(value.type, tuple((field, inside(item)) for field, item in value.fields))
    if isinstance(value, (list, tuple)):
        return type(value)(map(inside, value))
    if isinstance(value, dict):
        return {key: inside(item) for key, item in value.items()}
    if isinstance(value, Attribute) and isinstance(value.of, Name):
        path = f"{value.of.name}.{value.path}"
        if path in contents:
            return contents[path]
    if isinstance(value, (Rows, NumPy, Attribute)):
        return replace(value, of=inside(value.of))
    return value


# Schedules as text: what a call's `schedule` may say, and the switches from one program to another that it may name.
#
#     switches:5>1,3>0            program 0 begins; after 5 memory operations program 1 goes on, after 3 more program 0
#     switches:5>1;;2>1           the same in the first launch of a call, no switch in the second, one in the third
#
# Programs are counted in row-major order. Operations are those since the last switch, whichever programs made them. Where a
# program ends, the lowest one that has not ended goes on. A switch to one that has ended, or that there is not, is one to
# some other.


REVERSED, SWITCHES = "reversed", "switches"
_SWITCH = re.compile(r"(\d{1,9})>(\d{1,9})")
_SCHEDULE_RULE = "'', 'reversed' or 'switches:5>1,3>0'"


class Switch(NamedTuple):
    """After so many operations since the last switch, program `to` goes on."""

    after: int
    to: int


Switches = tuple[Switch, ...]


class ProgramSchedule(NamedTuple):
    """What a schedule says.

    Args:
        kind: `REVERSED` or `SWITCHES`, "" for row-major order.
        launches: the switches of each launch that has some.
    """

    kind: str
    launches: tuple[Switches, ...] = ()

    def of_launch(self, number: int) -> Switches:
        """The switches of a launch, by its number from 0."""
        return self.launches[number] if number < len(self.launches) else ()


def parsed(schedule: str) -> ProgramSchedule:
    """What the text says.

    Raises:
        ValueError: no such schedule.
    """
    kind, _, rest = schedule.partition(":")
    if schedule in ("", REVERSED):
        return ProgramSchedule(schedule)
    if kind == SWITCHES and ":" in schedule:
        parts = [_switches(part) for part in rest.split(";")]
        if all(part is not None for part in parts):
            return ProgramSchedule(kind, launches=tuple(part or () for part in parts))
    raise ValueError(f"schedule = {schedule!r}, but should be {_SCHEDULE_RULE} [program_schedule]")


def _switches(text: str) -> Switches | None:
    if not text:
        return ()
    matches = [_SWITCH.fullmatch(part) for part in text.split(",")]
    return (
        None if None in matches else tuple(Switch(int(match[1]), int(match[2])) for match in matches if match)
    )


def schedule_text(launches: Sequence[Sequence[Switch]]) -> str:
    """The text of a schedule with these switches, "" where there are none in any launch."""
    parts = [",".join(f"{switch.after}>{switch.to}" for switch in switches) for switches in launches]
    while parts and not parts[-1]:
        parts.pop()
    return f"{SWITCHES}:{';'.join(parts)}" if parts else ""
