"""Operations compiled by Triton, without its front end: a kernel that performs many of them on the same operands.

Its arguments are pointers to bytes: up to three operands and the results, which lie behind each other in stretches of eight
bytes per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.kernels.cases import ArithmeticCase, tensor
from tests.unit.kernels.values import WIDTHS

BLOCK = 128
SLAB = 8
"""Bytes that the results of an operation take per element."""


class _CompiledWriter:
    """The text of a kernel on `size` elements."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lines = [
            "module {",
            "tt.func public @operations(%in0: !tt.ptr<i8>, %in1: !tt.ptr<i8>, %in2: !tt.ptr<i8>, %out: !tt.ptr<i8>) {",
            f"%block = arith.constant {BLOCK} : i32",
            "%program = tt.get_program_id x : i32",
            "%start = arith.muli %program, %block : i32",
            f"%lanes = tt.make_range {{end = {BLOCK} : i32, start = 0 : i32}} : {tensor('i32', BLOCK)}",
            f"%starts = tt.splat %start : i32 -> {tensor('i32', BLOCK)}",
            f"%index = arith.addi %starts, %lanes : {tensor('i32', BLOCK)}",
        ]
        self.names = 0

    def name(self, text: str) -> str:
        """A name for the value of an expression."""
        self.names += 1
        self.lines.append(f"%v{self.names} = {text}")
        return f"%v{self.names}"

    def pointers(self, base: str, element: str, slab: int = 0) -> str:
        """Of this program's elements."""
        plain = _stored(element)
        offset = self.name(f"arith.constant {slab * self.size * SLAB} : i64")
        moved = self.name(f"tt.addptr {base}, {offset} : !tt.ptr<i8>, i64")
        typed = moved
        if plain != "i8":
            typed = self.name(f"tt.bitcast {moved} : !tt.ptr<i8> -> !tt.ptr<{plain}>")
        many = f"tensor<{BLOCK}x!tt.ptr<{plain}>>"
        spread = self.name(f"tt.splat {typed} : !tt.ptr<{plain}> -> {many}")
        return self.name(f"tt.addptr {spread}, %index : {many}, {tensor('i32', BLOCK)}")

    def load(self, n: int, element: str) -> str:
        plain = _stored(element)
        value = self.name(f"tt.load {self.pointers(f'%in{n}', element)} : tensor<{BLOCK}x!tt.ptr<{plain}>>")
        return self.converted(value, plain, element)

    def store(self, value: str, element: str, slab: int) -> None:
        plain = _stored(element)
        bits = self.converted(value, element, plain)
        pointers = self.pointers("%out", element, slab)
        self.lines.append(f"tt.store {pointers}, {bits} : tensor<{BLOCK}x!tt.ptr<{plain}>>")

    def converted(self, value: str, source: str, result: str) -> str:
        of, to = tensor(source, BLOCK), tensor(result, BLOCK)
        if source == result:
            return value
        if "i1" in (source, result):
            word = "extui" if source == "i1" else "trunci"
            return self.name(f"arith.{word} {value} : {of} to {to}")
        word = {"ptr": "int_to_ptr"}.get(result, "ptr_to_int" if source == "ptr" else "bitcast")
        return self.name(f"tt.{word} {value} : {of} -> {to}")

    def text(self) -> str:
        return "\n".join([*self.lines, "tt.return", "}", "}"])


def _stored(element: str) -> str:
    return f"i{WIDTHS[element]}"


def operations(cases: Sequence[ArithmeticCase], size: int) -> str:
    """A kernel whose n-th stretch of results is that of the n-th case; all of them have the same types of operands."""
    writer = _CompiledWriter(size)
    arguments = [writer.load(n, element) for n, element in enumerate(cases[0].operands)]
    for slab, case in enumerate(cases):
        writer.store(writer.name(case.text(arguments, BLOCK)), case.result, slab)
    return writer.text()


def atomics(ops: Sequence[str], element: str, size: int) -> str:
    """A kernel that changes every second stretch of the results with the second operand, and stores what it found behind."""
    writer = _CompiledWriter(size)
    # Loaded as what it is: a bitcast of pointers loses no bits either.
    value = writer.load(1, element)
    many, of = f"tensor<{BLOCK}x!tt.ptr<{element}>>", tensor(element, BLOCK)
    mask = writer.name(f"arith.constant dense<true> : {tensor('i1', BLOCK)}")
    for n, op in enumerate(ops):
        plain = writer.pointers("%out", element, 2 * n)
        stored = f"tensor<{BLOCK}x!tt.ptr<{_stored(element)}>>"
        memory = plain if stored == many else writer.name(f"tt.bitcast {plain} : {stored} -> {many}")
        types = f"({many}, {of}, {tensor('i1', BLOCK)}) -> {of}"
        old = writer.name(f"tt.atomic_rmw {op}, acq_rel, gpu, {memory}, {value}, {mask} : {types}")
        writer.store(old, element, 2 * n + 1)
    return writer.text()


def compiled(text: str, folder: Path, target: Any = None) -> Any:
    """The kernel of such a text: for this machine's GPU unless a target is given."""
    import triton

    path = folder / "operations.ttir"
    path.write_text(text)
    # As it is by default; Triton 3.9 warns where nothing is said.
    return triton.compile(str(path), target=target, options={"enable_fp_fusion": True})
