"""Inputs and outcomes as plain data.

What a case file holds, what an execution port is handed and what a report prints are the same values: Python
scalars and containers plus the few frozen dataclasses below. They know nothing of torch, so a case can be read,
sent and compared where no subject is installed.
"""

# ruff: noqa: PLC0414 - tensors are values, and imported from here
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from statecheck.case.tensor import CANARY as CANARY
from statecheck.case.tensor import ITEM_SIZES as ITEM_SIZES
from statecheck.case.tensor import Place as Place
from statecheck.case.tensor import Tensor as Tensor
from statecheck.case.tensor import boolean as boolean
from statecheck.case.tensor import int32 as int32
from statecheck.case.tensor import int64 as int64

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
    `schedule` is the order in which the programs of each launch run on a CPU (see `case.program_schedule`).
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


@dataclass(frozen=True)
class Raised:
    """The call raised, or its process ended or gave no answer; `changed`, `after` and `by_subject` as in `Returned`.

    `kind`: "refusal" for an exception of the subject's code, "memory" or "race" for a finding of the sanitizer, whose `access` is the one that it
    is about, "fault" where the process ended or the device became unusable, and "hang". `exception` is the name of the exception or finding, or
    the kind of the fault, see `case.faults`.
    `at` is the innermost line of the subject's own code that the exception came from. It moves with every change of the file, so
    that two outcomes are equal whatever it is. `not_offered`: the subject's adapter says that the subject does not offer what the
    call needs, or its launch cannot be executed.
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
