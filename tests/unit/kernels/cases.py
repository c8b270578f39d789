"""Every operation and every type that Triton 3.6 and 3.9 compile for sm_90, with its text in their language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.unit.kernels.values import WIDTHS, Array

INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("f16", "bf16", "f32", "f64")
SIMPLE = ("addi", "subi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui")
PARTIAL = ("divsi", "divui", "shli", "shrsi", "shrui")
"""These have results that LLVM leaves undefined; of i1, nearly all."""
SIMPLE_FLOAT = ("addf", "subf", "mulf", "minimumf", "maximumf", "minnumf", "maxnumf")
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
ORDERED = ("oeq", "ogt", "oge", "olt", "ole", "one")
FLOAT_PREDICATES = (*ORDERED, "ueq", "ugt", "uge", "ult", "ule", "une")
INTEGER_ATOMICS = ("and", "or", "xor", "add", "max", "min", "umax", "umin", "exch")

Allowed = Callable[[Array], Any]
"""How many numbers a GPU's result may be away from the correctly rounded one, of the first operand's values."""


@dataclass(frozen=True)
class ArithmeticCase:
    name: str
    operands: tuple[str, ...]
    result: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    # What is compiled apart from the others: LLVM would compute a remainder from the quotient beside it.
    apart: str = ""
    # The first version of Triton that compiles it.
    since: tuple[int, int] = (3, 6)
    allowed: Allowed | None = None

    def __str__(self) -> str:
        words = " ".join(self.attributes.values())
        return f"{self.name}{' ' if words else ''}{words} {', '.join(self.operands)} -> {self.result}"

    def text(self, arguments: list[str], size: int) -> str:
        """The operation on tensors of that size."""
        values, (first, *_), last = ", ".join(arguments), self.operands, self.operands[-1]
        of, to = tensor(first, size), tensor(self.result, size)
        if "predicate" in self.attributes:
            return f"{self.name} {self.attributes['predicate']}, {values} : {of}"
        if self.name == "arith.select":
            return f"{self.name} {values} : {of}, {tensor(last, size)}"
        rounding = f", rounding = {self.attributes['rounding']}" if "rounding" in self.attributes else ""
        if self.name in CASTS:
            return f"{self.name} {values} : {of} to {to}"
        if self.name in TRITON_CASTS:
            return f"{self.name} {values}{rounding} : {of} -> {to}"
        return f"{self.name} {values} : {of}"


def tensor(element: str, size: int) -> str:
    return f"tensor<{size}x{'!tt.ptr<i32>' if element == 'ptr' else element}>"


CASTS = tuple(
    f"arith.{name}"
    for name in ("extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui", "extf", "truncf")
)
TRITON_CASTS = ("tt.bitcast", "tt.fp_to_fp", "tt.int_to_ptr", "tt.ptr_to_int")


def _exponential(values: Array) -> Any:
    # The argument is multiplied by log2(e) in f32 first: an error of half an ulp of the product, as large as the argument.
    return 4 + 1.25 * np.clip(np.abs(values), 0, 200)


def _at_most(ulps: float) -> Allowed:
    return lambda values: ulps


DOCUMENTED: dict[str, tuple[Allowed, Allowed]] = {
    # The largest errors of f32 and f64 that CUDA documents for libdevice, and PTX for its .approx instructions; one more for
    # f64, where NumPy's result may be an ulp away itself.
    "exp": (_exponential, _at_most(2)),
    "exp2": (_at_most(2), _at_most(2)),
    "log": (_at_most(1), _at_most(2)),
    "log2": (_at_most(1), _at_most(2)),
    "sqrt": (_at_most(2), _at_most(0)),
    "rsqrt": (_at_most(2), _at_most(2)),
    "sin": (_at_most(2), _at_most(3)),
    "cos": (_at_most(2), _at_most(3)),
    "erf": (_at_most(2), _at_most(3)),
    "ceil": (_at_most(0), _at_most(0)),
    "floor": (_at_most(0), _at_most(0)),
}


def cases() -> list[ArithmeticCase]:
    return [*_integer_cases(), *_boolean_cases(), *_float_cases(), *_cast_cases()]


def _integer_cases() -> Iterator[ArithmeticCase]:
    for t in INTEGERS:
        for name in (*SIMPLE, *PARTIAL):
            yield ArithmeticCase(f"arith.{name}", (t, t), t)
        for name in ("remsi", "remui"):
            yield ArithmeticCase(f"arith.{name}", (t, t), t, apart="remainders")
        for predicate in PREDICATES:
            yield ArithmeticCase("arith.cmpi", (t, t), "i1", {"predicate": predicate})
        yield ArithmeticCase("math.absi", (t,), t)
    for t in ("i32", "i64"):
        yield ArithmeticCase("tt.mulhiui", (t, t), t)


def _boolean_cases() -> Iterator[ArithmeticCase]:
    for name in SIMPLE:
        yield ArithmeticCase(f"arith.{name}", ("i1", "i1"), "i1")
    for predicate in PREDICATES:
        yield ArithmeticCase("arith.cmpi", ("i1", "i1"), "i1", {"predicate": predicate})
    for t in ("i1", *INTEGERS, *FLOATS, "f8E5M2", "ptr"):
        yield ArithmeticCase("arith.select", ("i1", t, t), t)


def _float_cases() -> Iterator[ArithmeticCase]:
    for t in FLOATS:
        for name in SIMPLE_FLOAT:
            yield ArithmeticCase(f"arith.{name}", (t, t), t)
        for predicate in FLOAT_PREDICATES:
            yield ArithmeticCase("arith.cmpf", (t, t), "i1", {"predicate": predicate})
        yield ArithmeticCase("arith.negf", (t,), t, since=(3, 9))
        yield ArithmeticCase("math.absf", (t,), t)
        if t != "f64":
            yield ArithmeticCase("math.fma", (t, t, t), t)
    # div.full.f32 is documented to be wrong by at most 2 ulps.
    yield ArithmeticCase("arith.divf", ("f32", "f32"), "f32", allowed=_at_most(2))
    yield ArithmeticCase("arith.divf", ("f64", "f64"), "f64")
    yield ArithmeticCase("tt.precise_divf", ("f32", "f32"), "f32", apart="precise")
    yield ArithmeticCase("tt.precise_sqrt", ("f32",), "f32", apart="precise")
    for name, allowed in DOCUMENTED.items():
        for t, ulps in zip(("f32", "f64"), allowed, strict=True):
            yield ArithmeticCase(f"math.{name}", (t,), t, allowed=None if name in ("ceil", "floor") else ulps)


def _cast_cases() -> Iterator[ArithmeticCase]:
    all_integers = ("i1", *INTEGERS)
    for n, narrow in enumerate(all_integers):
        for wide in all_integers[n + 1 :]:
            yield ArithmeticCase("arith.extsi", (narrow,), wide)
            yield ArithmeticCase("arith.extui", (narrow,), wide)
            yield ArithmeticCase("arith.trunci", (wide,), narrow)
    for f in FLOATS:
        for i in INTEGERS:
            yield ArithmeticCase("arith.sitofp", (i,), f)
            yield ArithmeticCase("arith.fptosi", (f,), i)
            yield ArithmeticCase("arith.fptoui", (f,), i)
            yield ArithmeticCase("arith.uitofp", (i,), f)
        yield ArithmeticCase("arith.uitofp", ("i1",), f)
        for wide in FLOATS:
            if WIDTHS[wide] > WIDTHS[f]:
                yield ArithmeticCase("arith.extf", (f,), wide)
                yield ArithmeticCase("arith.truncf", (wide,), f)
    yield from _format_cases()
    same = (("i8", "f8E5M2", "f8E4M3FN"), ("i16", "f16", "bf16"), ("i32", "f32"), ("i64", "f64"), ("ptr",))
    for group in same:
        for a in group:
            for b in group:
                yield ArithmeticCase("tt.bitcast", (a,), b)
    yield ArithmeticCase("tt.int_to_ptr", ("i64",), "ptr")
    yield ArithmeticCase("tt.ptr_to_int", ("ptr",), "i64")


def _format_cases() -> Iterator[ArithmeticCase]:
    for byte in ("f8E5M2", "f8E4M3FN"):
        for f in ("f16", "bf16", "f32"):
            yield ArithmeticCase("tt.fp_to_fp", (byte,), f)
            yield ArithmeticCase("tt.fp_to_fp", (f,), byte, {"rounding": "rtne"})
    for f in ("f16", "bf16"):
        yield ArithmeticCase("tt.fp_to_fp", ("f32",), f, {"rounding": "rtne"})
    for a, b in (("f16", "bf16"), ("bf16", "f16")):
        yield ArithmeticCase("tt.fp_to_fp", (a,), b, {"rounding": "rtne"}, since=(3, 9))


ATOMICS = (
    *((op, t) for op in INTEGER_ATOMICS for t in ("i32", "i64")),
    *(("fadd", t) for t in FLOATS),
    *(("exch", t) for t in ("f32", "f64")),
)
"""Read-modify-writes that ptxas accepts, with their element types."""
