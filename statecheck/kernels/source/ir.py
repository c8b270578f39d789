"""Triton's IR as a tree: functions, blocks, operations and values of the dialects tt, arith, math, scf and cf."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic import DTYPES, FLOATS


class NotUnderstoodError(Exception):
    """The IR has something that the executor does not know. `str()` of it names that."""


@dataclass(frozen=True)
class Type:
    """Of a value. `shape` is None for a scalar; `element` is "ptr" for pointers, which point to `pointee`."""

    shape: tuple[int, ...] | None
    element: str
    pointee: str = ""


@dataclass(eq=False)
class Value:
    """One SSA value."""

    name: str
    type: Type


@dataclass(eq=False)
class Block:
    label: str
    arguments: list[Value]
    operations: list[Operation] = field(default_factory=list)


@dataclass(frozen=True)
class SourcePlace:
    """A line of kernel code, and the lines from which it was called, innermost first."""

    file: str
    line: int
    callers: tuple[tuple[str, int], ...] = ()


NOWHERE = SourcePlace("", 0)


@dataclass(eq=False)
class Operation:
    name: str
    results: list[Value]
    operands: list[Value]
    text: str
    """What stands between the name and the types."""
    types: str
    regions: list[list[Block]] = field(default_factory=list)
    successors: list[tuple[str, list[Value]]] = field(default_factory=list)
    place: SourcePlace = NOWHERE

    @property
    def result(self) -> Value:
        return self.results[0]


@dataclass(eq=False)
class FuncOp:
    name: str
    public: bool
    arguments: list[Value]
    results: list[Type]
    blocks: list[Block]

    def walk(self) -> Iterator[Operation]:
        """All operations, those of regions behind the one that has them."""
        return _walk(self.blocks)


def _walk(blocks: list[Block]) -> Iterator[Operation]:
    for block in blocks:
        for operation in block.operations:
            yield operation
            for region in operation.regions:
                yield from _walk(region)


def result_types(operation: Operation) -> list[Type]:
    """The types of an operation's results, from what stands behind its colon."""
    name, types = operation.name, operation.types
    if name == "arith.constant" and not types:
        return [Type(None, "i1")]
    if name in ("arith.cmpi", "arith.cmpf"):
        kind = type_of(types)
        return [Type(kind.shape, "i1")]
    if name == "arith.select":
        return [operation.operands[1].type]
    if name == "tt.addptr":
        return [operation.operands[0].type]
    if name == "tt.elementwise_inline_asm" and not types:
        # Without operands there is no colon.
        types = operation.text
    if name == "tt.split":
        half = type_of(types.rpartition("->")[2])
        return [half, half]
    if name in ("tt.load", "tt.descriptor_load", "tt.descriptor_gather") and "->" not in types:
        kind = operation.operands[0].type
        return [loaded_type(kind)]
    if "->" in types:
        types = types.rpartition("->")[2].strip()
        types = types[1:-1] if types.startswith("(") else types
    elif " to " in types:
        types = types.rpartition(" to ")[2]
    elif name in ("scf.if", "scf.for", "scf.while"):
        types = types[1:-1] if types.startswith("(") else types
    return [type_of(text) for text in split(types)]


def loaded_type(pointer: Type) -> Type:
    """What a load through a pointer gives."""
    return (
        type_of(pointer.pointee)
        if pointer.shape is None
        else _with_shape(type_of(pointer.pointee), pointer.shape)
    )


def _with_shape(kind: Type, shape: tuple[int, ...]) -> Type:
    return Type(shape, kind.element, kind.pointee)


_ELEMENT = re.compile(r"^(i1|i8|i16|i32|i64|index|bf16|f16|f32|f64|f8\w+)$")


@cache
def type_of(text: str) -> Type:
    """A type by its text.

    Raises:
        NotUnderstoodError: it is none that the executor knows.
    """
    text = text.strip()
    if _ELEMENT.match(text):
        return Type(None, "i64" if text == "index" else text)
    if text.startswith("!tt.ptr<"):
        pointee = text[len("!tt.ptr<") : -1]
        return Type(None, "ptr", split(pointee)[0])
    if text.startswith("tensor<"):
        dims, element = _dims(text[len("tensor<") : -1])
        inner = type_of(element)
        return Type(dims, inner.element, inner.pointee)
    raise NotUnderstoodError(f"the type {text}")


def _dims(text: str) -> tuple[tuple[int, ...], str]:
    match = re.match(r"((?:\d+x)*)(.*)$", text)
    assert match is not None
    return tuple(int(size) for size in match.group(1).split("x") if size), split(match.group(2))[0]


def split(text: str) -> list[str]:
    """A list in the text, cut at its own commas."""
    parts, start = list[str](), 0
    for at in outside_brackets(text, ","):
        parts.append(text[start:at].strip())
        start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def outside_brackets(text: str, letter: str) -> Iterator[int]:
    """Where a letter stands in the text, outside of all brackets."""
    if letter not in text:
        return
    depth = 0
    for at, found in enumerate(text):
        if found in "(<[{":
            depth += 1
        elif found in ")]}" or (found == ">" and text[at - 1] != "-"):
            depth -= 1
        elif found == letter and depth == 0:
            yield at


# Values of Triton's types as Python and NumPy hold them, see `arithmetic.elements`, and as memory does.


_STORED = {"bf16": np.dtype(np.uint16), "i1": np.dtype(np.bool_)}


@cache
def dtype_of(element: str) -> np.dtype[Any]:
    """Of a tile of this type in hand."""
    if element.startswith("f8"):
        return np.dtype(np.uint8)
    if element not in DTYPES:
        raise NotUnderstoodError(f"the type {element}")
    return np.dtype(DTYPES[element])


@cache
def stored_dtype(element: str) -> np.dtype[Any]:
    """Of the same in memory."""
    return _STORED.get(element) or dtype_of(element)


def size_of(element: str) -> int:
    """Bytes in memory."""
    return stored_dtype(element).itemsize if element else 0


def number(text: str, element: str) -> Any:
    """A literal of the IR as a scalar of this type.

    Raises:
        NotUnderstoodError: it is none.
    """
    if element == "i1":
        return text in ("true", "1", "-1")
    if element in FLOATS:
        return _floating(text, element)
    try:
        return int(text, 0)
    except ValueError:
        raise NotUnderstoodError(f"the literal {text[:40]} of {element}") from None


def _floating(text: str, element: str) -> Any:
    if not text.startswith("0x"):
        return dtype_of(element).type(float(text))
    raw = int(text, 16)
    if element == "bf16":
        raw, element = raw << 16, "f32"
    code = {"f16": "<H", "f32": "<I", "f64": "<Q"}[element]
    return np.frombuffer(struct.pack(code, raw), dtype_of(element))[0]
