"""The arithmetic of Triton's intermediate language, as its CUDA backend compiles it for sm_90.

    >>> add = operation("arith.addi", ("i32", "i32"), "i32", {})
    >>> add(2**31 - 1, 1)
    -2147483648

`elements` says how values are represented. Functions neither raise nor, under np.errstate(all="ignore"), warn.

What the compiler makes of several operations together is not covered: it contracts a product and a sum to one fma. Results
that LLVM leaves undefined are those of a lone operation. Not known is the fma of f64.

Element types of Triton's intermediate language, and what represents their values here.

| element | scalar | tensor |
|---|---|---|
| i1 | bool, or 0 and 1 | np.bool_ |
| i8, i16, i32, i64, ptr | int, within the signed range | np.int8, np.int16, np.int32, np.int64, np.int64 |
| f16, f32, f64 | np.float16, np.float32, np.float64 | the same |
| bf16 | np.float32, the low 16 bits 0 | the same |
| f8E5M2, f8E4M3FN | int, the byte, 0 to 255 | np.uint8 |

Every function that `operation` gives takes any mix of scalars and arrays, and gives a scalar where all operands are scalars. It
computes with NumPy: integers become NumPy's on the way in, and Python's again on the way out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]
Function = Callable[..., Any]
Convert = Callable[[Any], Any]

INTEGERS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "ptr": 64, "index": 64}
FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
BYTES = {"f8E5M2": 8, "f8E4M3FN": 8}
WIDTHS = INTEGERS | FLOATS | BYTES

SIGNED: dict[int, type[Any]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
DTYPES: dict[str, type[Any]] = {
    "i1": np.bool_,
    **{name: SIGNED[width] for name, width in INTEGERS.items() if width > 1},
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    **dict.fromkeys(BYTES, np.uint8),
}


def plain(value: Any) -> Any:
    """A NumPy array as it is; what has one element and no shape as the scalar of its type."""
    if value.ndim:
        return value
    return value.item() if value.dtype.kind in "iub" else value[()]


# Integer arithmetic as compiled for an NVIDIA GPU, on NumPy's signed integers, and on truth values for i1.
#
# Results wrap around. What LLVM leaves undefined is what the machine code of a lone operation gives: a shift by the width or
# more shifts everything out, where the amount is taken as unsigned and of at most 32 bits; a division by zero gives all
# ones, quotient and remainder, signed or not. The compiler divides 64-bit integers whose upper halves are zero as 32-bit
# ones, so that there all ones are 2**32 - 1. A truth value is never shifted, and a divisor among truth values is 1.


def unsigned(value: Any) -> Any:
    """The same bits without a sign."""
    return value.view(f"u{value.dtype.itemsize}")


def _of_unsigned(compute: Function) -> Function:
    """The same on the unsigned values of the operands."""
    return lambda a, b: compute(unsigned(a), unsigned(b)).view(a.dtype)


def _by_zero(a: Any) -> Any:
    if a.dtype.itemsize < 8:
        return np.full_like(a, -1)
    return np.where((a >= 0) & (a <= 0xFFFFFFFF), np.int64(0xFFFFFFFF), np.int64(-1))


def _division(compute: Function) -> Function:
    def divide(a: Any, b: Any) -> Any:
        zero = b == 0
        return np.where(zero, _by_zero(a), compute(a, np.where(zero, 1, b))) if zero.any() else compute(a, b)

    return divide


@_division
def _divide(a: Any, b: Any) -> Any:
    # NumPy rounds down, a GPU toward zero; a multiple of b leaves nothing to round.
    return (a - np.fmod(a, b)) // b


_divide_unsigned = _division(_of_unsigned(operator.floordiv))


def _shift(compute: Function) -> Function:
    """NumPy shifts everything out where the amount is the width or more."""
    return lambda a, b: compute(a, b & 0xFFFFFFFF if b.dtype.itemsize == 8 else b)


def multiply_high_unsigned(a: Any, b: Any) -> Any:
    """The upper half of the product of unsigned values."""
    return _of_unsigned(_high)(a, b)


def _high(a: Any, b: Any) -> Any:
    width = 8 * a.dtype.itemsize
    if width < 64:
        return (a.astype(np.uint64) * b >> width).astype(a.dtype)
    a_high, a_low, b_high, b_low = a >> 32, a & 0xFFFFFFFF, b >> 32, b & 0xFFFFFFFF
    middle = a_high * b_low + (a_low * b_low >> 32)
    other = a_low * b_high + (middle & 0xFFFFFFFF)
    return a_high * b_high + (middle >> 32) + (other >> 32)


OPERATIONS: dict[str, Function] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": _divide,
    "divui": _divide_unsigned,
    "remsi": _division(np.fmod),
    "remui": _division(_of_unsigned(operator.mod)),
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": _shift(np.left_shift),
    "shrsi": _shift(np.right_shift),
    "shrui": _of_unsigned(_shift(np.right_shift)),
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": _of_unsigned(np.minimum),
    "maxui": _of_unsigned(np.maximum),
}


def _first(a: Any, b: Any) -> Any:
    return a & (b | True)


OF_TRUTH_VALUES: dict[str, Function] = {
    **dict.fromkeys(("addi", "subi", "xori"), operator.xor),
    **dict.fromkeys(("muli", "andi", "maxsi", "minui"), operator.and_),
    **dict.fromkeys(("ori", "minsi", "maxui"), operator.or_),
    **dict.fromkeys(("divsi", "divui", "shli", "shrsi", "shrui"), _first),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a & b & False),
}
"""The signed i1 that is set is -1."""

_ORDER: dict[str, Function] = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def comparison(element: str, predicate: str) -> Function | None:
    """Comparisons of integers: "eq", "ne", or an order with "s" or "u" before it."""
    if predicate in ("eq", "ne"):
        return operator.eq if predicate == "eq" else operator.ne
    compare = _ORDER.get(predicate[1:])
    if compare is None or (predicate[0] == "s") is not (element == "i1"):
        # Truth values are ordered as unsigned ones, all others as signed ones.
        return compare
    return (lambda a, b: compare(b, a)) if element == "i1" else lambda a, b: compare(unsigned(a), unsigned(b))


# Conversions between floating-point formats, bit by bit.
#
# Rounding is to the nearest, ties to even, and once, as conversions of the GPU do it. NaNs become the GPU's NaN: all bits
# set but the sign, except where a conversion is exact.


_BF16_NAN = np.uint32(0x7FFF0000).view(np.float32)
_HIGH_HALF = 0xFFFF0000


def to_bf16(value: Any) -> Any:
    """The nearest bf16 of an f32."""
    bits = value.view(np.uint32)
    # 0x7FFF rounds a tie down; one more, where the last bit that stays is odd, rounds it up to the even neighbour.
    bits = bits + 0x7FFF + (bits >> 16 & 1)
    return np.where(np.isnan(value), _BF16_NAN, (bits & _HIGH_HALF).view(np.float32))


def nearest(value: Any, precision: int, lowest: int) -> Any:
    """The nearest multiple, ties to even, of what ends the significands of that many bits of an f64.

    `lowest` is the exponent of the smallest normal number. Nothing overflows.
    """
    exponent = np.maximum(np.frexp(value)[1] - 1, lowest) - (precision - 1)
    return np.ldexp(np.rint(np.ldexp(value, -exponent)), exponent)


def f64_to_bf16(value: Any) -> Any:
    """The nearest bf16 of an f64."""
    return to_bf16(nearest(value, 8, -126).astype(np.float32))


def f16_to_bf16(value: Any) -> Any:
    return to_bf16(value.astype(np.float32))


def _to_byte(element: torch.dtype) -> Convert:
    """To the nearest. What overflows becomes the largest number, infinities too."""
    largest = torch.finfo(element).max

    def convert(value: Any) -> Any:
        inside = np.asarray(np.clip(value.astype(np.float32), -largest, largest))
        return torch.from_numpy(inside).to(element).view(torch.uint8).numpy()

    return convert


to_e5m2, to_e4m3 = _to_byte(torch.float8_e5m2), _to_byte(torch.float8_e4m3fn)


def _of_byte(element: torch.dtype, result: type[Any]) -> Convert:
    numbers = torch.arange(256, dtype=torch.uint8).view(element).float().numpy().astype(result)
    return lambda value: numbers[value]


def _e5m2_to_bf16(value: Any) -> Any:
    """Triton shifts the bits into place and multiplies: there are neither infinities nor NaNs."""
    magnitude = ((value & 0x7F).astype(np.uint32) << 21).view(np.float32) * np.float32(2.0**112)
    return np.where(value < 0x80, magnitude, -magnitude)


def _f32_to_bf16_toward_zero(value: Any) -> Any:
    cut = (value.view(np.uint32) & _HIGH_HALF).view(np.float32)
    return np.where(np.isnan(value), _BF16_NAN, cut)


def _f32_to_f16_toward_zero(value: Any) -> Any:
    near = np.asarray(value.astype(np.float16))
    too_far = np.abs(near.astype(np.float32)) > np.abs(value)
    # The neighbour of a smaller magnitude has the bits before; of infinity, it is the largest number.
    return (near.view(np.uint16) - too_far.astype(np.uint16)).view(np.float16)


BYTE_TO: dict[tuple[str, str], Convert] = {
    ("f8E5M2", "f16"): _of_byte(torch.float8_e5m2, np.float16),
    ("f8E5M2", "f32"): _of_byte(torch.float8_e5m2, np.float32),
    ("f8E5M2", "bf16"): _e5m2_to_bf16,
    ("f8E4M3FN", "f16"): _of_byte(torch.float8_e4m3fn, np.float16),
    **{("f8E4M3FN", to): _of_byte(torch.float8_e4m3fn, np.float32) for to in ("f32", "bf16")},
}

FP_TO_FP: dict[tuple[str, str], dict[str | None, Convert]] = {
    ("f16", "f32"): dict.fromkeys((None, "rtne", "rtz"), lambda value: value.astype(np.float32)),
    ("f32", "f16"): {"rtne": lambda value: value.astype(np.float16), "rtz": _f32_to_f16_toward_zero},
    ("f32", "bf16"): {"rtne": to_bf16, "rtz": _f32_to_bf16_toward_zero},
    ("f16", "bf16"): dict.fromkeys((None, "rtne"), f16_to_bf16),
    ("bf16", "f16"): dict.fromkeys((None, "rtne"), lambda value: value.astype(np.float16)),
    **{(source, "f8E5M2"): {"rtne": to_e5m2} for source in ("f16", "bf16", "f32")},
    **{(source, "f8E4M3FN"): {"rtne": to_e4m3} for source in ("f16", "bf16", "f32")},
    **{pair: dict.fromkeys((None, "rtne", "rtz"), convert) for pair, convert in BYTE_TO.items()},
}


# Floating-point arithmetic as compiled for an NVIDIA GPU.
#
# Every operation is rounded once, to the nearest, ties to even, and keeps subnormal numbers. bf16 is computed in f32 and
# rounded, which gives the same for sums, differences, products and quotients, as f32 has more than twice its bits. Which
# NaN comes out is not promised.


def arithmetic(compute: Function) -> Callable[[str], Function]:
    """`compute` on the elements, rounded where they are bf16."""

    def of(element: str) -> Function:
        return (lambda a, b: to_bf16(compute(a, b))) if element == "bf16" else compute

    return of


add, subtract = arithmetic(operator.add), arithmetic(operator.sub)
multiply, divide = arithmetic(operator.mul), arithmetic(operator.truediv)


def _zeros_ordered(choose: Function, is_negative: Function) -> Function:
    """NumPy's choice, in which NaNs win, but -0 is less than +0: `is_negative` tells which is chosen, of the signs of both."""

    def chosen_in_order(a: Any, b: Any) -> Any:
        chosen = choose(a, b)
        # NumPy decides all but the sign of a zero.
        if chosen.all():
            return chosen
        negative = is_negative(np.signbit(a), np.signbit(b))
        signed = np.copysign(chosen, np.where(negative, np.int8(-1), np.int8(1)))
        return np.where(chosen == 0, signed, chosen)

    return chosen_in_order


def _of_numbers(choose: Function) -> Function:
    """The other operand where one is a NaN, signalling ones included."""

    def chosen_number(a: Any, b: Any) -> Any:
        chosen = choose(a, b)
        if not np.isnan(chosen).any():
            return chosen
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))

    return chosen_number


minimum, maximum = _zeros_ordered(np.minimum, operator.or_), _zeros_ordered(np.maximum, operator.and_)
minimum_number, maximum_number = _of_numbers(minimum), _of_numbers(maximum)


def _or_unordered(compute: Function) -> Function:
    """What is true of NaNs: that the opposite, `compute`, is not."""
    return lambda a, b: np.logical_not(compute(a, b))


def _different(a: Any, b: Any) -> Any:
    return (a < b) | (a > b)


COMPARISONS: dict[str, Function] = {
    "oeq": operator.eq,
    "ogt": operator.gt,
    "oge": operator.ge,
    "olt": operator.lt,
    "ole": operator.le,
    "one": _different,
    "ueq": _or_unordered(_different),
    "ugt": _or_unordered(operator.le),
    "uge": _or_unordered(operator.lt),
    "ult": _or_unordered(operator.ge),
    "ule": _or_unordered(operator.gt),
    "une": operator.ne,
}


def sum_to_odd(a: Any, b: Any) -> Any:
    """The sum of two f64 rounded to the neighbour with an odd significand, unless it is exact.

    Rounding it again to a format that is shorter by two bits or more gives what rounding the exact sum does.
    """
    near = np.asarray(a + b)
    part = near - a
    error = (a - (near - part)) + (b - part)
    bits = near.view(np.int64)
    even = (np.abs(error) > 0) & (bits & 1 == 0)
    return np.where(even, bits + np.where((error > 0) == (near > 0), 1, -1), bits).view(np.float64)


def _round_bf16(value: Any) -> Any:
    return nearest(value, 8, -126).astype(np.float32)


def _fused(rounded: Function) -> Function:
    """The product plus the third operand, rounded once."""

    def compute(a: Any, b: Any, c: Any) -> Any:
        product = a.astype(np.float64) * b.astype(np.float64)
        return rounded(sum_to_odd(product, c.astype(np.float64)))

    return compute


fma_f32 = _fused(lambda value: value.astype(np.float32))
FMA: dict[str, Function] = {
    "f16": _fused(lambda value: value.astype(np.float16)),
    "bf16": _fused(_round_bf16),
    "f32": fma_f32,
}
"""By the type of the elements."""


# Square roots, exponentials and their like, of f32 and f64.
#
# A GPU approximates most of them. Here they are rounded correctly where they are of f32, and to within an ulp or two where
# they are of f64. Where the instructions that Triton compiles to take or leave subnormal numbers as zero, so do these.


_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal
_erf = np.frompyfunc(math.erf, 1, 1)


def erf(value: Any) -> Any:
    """Of f64."""
    return np.asarray(_erf(value), np.float64)


def reciprocal_root(value: Any) -> Any:
    """Of f64."""
    return 1.0 / np.sqrt(value)


def flushed(value: Any) -> Any:
    """An f32 that is zero, of the same sign, where it was subnormal."""
    subnormal = np.abs(value) < _SMALLEST_NORMAL
    return np.where(subnormal, np.copysign(np.float32(0), value), value) if subnormal.any() else value


def _in_f64(compute: Convert) -> Convert:
    return lambda value: compute(value.astype(np.float64)).astype(np.float32)


def _of_flushed(compute: Convert) -> Convert:
    return lambda value: compute(flushed(value))


def _flushed_result(compute: Convert) -> Convert:
    return lambda value: flushed(compute(value))


OF_F64: dict[str, Convert] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": reciprocal_root,
    "sin": np.sin,
    "cos": np.cos,
    "erf": erf,
}

OF_F32: dict[str, Convert] = {
    "ceil": _of_flushed(np.ceil),
    "floor": _of_flushed(np.floor),
    "exp": _in_f64(np.exp),
    "exp2": _flushed_result(_in_f64(np.exp2)),
    "log": _in_f64(np.log),
    "log2": _in_f64(np.log2),
    "sqrt": _of_flushed(np.sqrt),
    "rsqrt": _of_flushed(_in_f64(reciprocal_root)),
    "sin": _of_flushed(_in_f64(np.sin)),
    "cos": _in_f64(np.cos),
    "erf": _of_flushed(_in_f64(erf)),
}


# Functions of CUDA's library libdevice, which kernels call by their symbols, such as "__nv_tanhf" of f32 and "__nv_tanh" of f64.
#
# They are rounded as those above are; those with `fast_` in their names are less precise on a GPU.


def _half_away(value: Any) -> Any:
    return np.copysign(np.floor(np.abs(value) + 0.5), value)


def _each(compute: Callable[[float], float]) -> Convert:
    whole = np.frompyfunc(compute, 1, 1)
    return lambda value: np.asarray(whole(value), np.float64)


_SAME_NAMES = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan"),
    *("sinh", "cosh", "tanh", "floor", "ceil", "trunc", "rint", "fabs", "copysign", "hypot", "fmod"),
)
"""Functions that NumPy calls so, too."""
_LIBRARY: dict[str, Function] = {
    **{name: getattr(np, name) for name in _SAME_NAMES},
    **{
        f"a{name}": getattr(np, f"arc{name}")
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")
    },
    "exp10": lambda value: np.power(10.0, value),
    "rsqrt": reciprocal_root,
    "rcp_rn": np.reciprocal,
    "round": _half_away,
    "nearbyint": np.rint,
    "erf": erf,
    "erfc": _each(math.erfc),
    "lgamma": _each(lambda x: math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)),
    "pow": np.power,
    "fmin": minimum_number,
    "fmax": maximum_number,
    "fdivide": operator.truediv,
    "div_rn": operator.truediv,
    "add_rn": operator.add,
    "sub_rn": operator.sub,
    "mul_rn": operator.mul,
    "sqrt_rn": np.sqrt,
}
_TESTS: dict[str, Function] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
}


def library_function(symbol: str, operands: tuple[str, ...], result: str) -> Function | None:
    """A function of libdevice by its symbol; None where it is not known."""
    element = operands[0]
    if element not in ("f32", "f64") or any(operand != element for operand in operands):
        return None
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    if name.endswith("_rn"):
        # Of __nv_fdiv_rn and __nv_ddiv_rn.
        name = name[1:]
    elif element == "f32":
        name = name.removesuffix("f")
    elif name.endswith("d") and name[:-1] in _TESTS:
        name = name[:-1]
    if name == "fma":
        return FMA.get(element)
    if name in _TESTS:
        test = _TESTS[name]
        return lambda value: test(value).astype(DTYPES[result])
    compute = _LIBRARY.get(name)
    if compute is None or result != element:
        return None
    dtype = DTYPES[element]
    return lambda *values: np.asarray(compute(*(value.astype(np.float64) for value in values))).astype(dtype)


# Conversions between element types as compiled for an NVIDIA GPU.


def same(value: Any) -> Any:
    return value


def _of_bits(value: Any) -> Any:
    return value if value.dtype == np.bool_ else unsigned(value)


def extend_signed(source: str, result: str) -> Convert:
    dtype = DTYPES[result]
    return (lambda value: -value.astype(dtype)) if source == "i1" else lambda value: value.astype(dtype)


def extend_unsigned(source: str, result: str) -> Convert:  # noqa: ARG001 - as the others
    dtype = DTYPES[result]
    return lambda value: _of_bits(value).astype(dtype)


def truncate(source: str, result: str) -> Convert:  # noqa: ARG001 - as the others
    dtype = DTYPES[result]
    return (lambda value: (value & 1) != 0) if result == "i1" else lambda value: value.astype(dtype)


def index_cast(source: str, result: str, extend: Callable[[str, str], Convert]) -> Convert:
    return (truncate if INTEGERS[source] > INTEGERS[result] else extend)(source, result)


def _from_number(source: str, result: str) -> Convert:
    """From integers of any width."""
    if result != "bf16":
        dtype = DTYPES[result]
        return lambda numbers: numbers.astype(dtype)
    if INTEGERS[source] < 64:
        return lambda numbers: f64_to_bf16(numbers.astype(np.float64))

    def convert(numbers: Any) -> Any:
        high = (numbers >> 32).astype(np.float64) * 2.0**32
        return f64_to_bf16(sum_to_odd(high, (numbers & 0xFFFFFFFF).astype(np.float64)))

    return convert


def signed_to_float(source: str, result: str) -> Convert | None:
    """None for i1, of which Triton makes unsigned numbers only."""
    return None if source == "i1" else _from_number(source, result)


def unsigned_to_float(source: str, result: str) -> Convert:
    convert = _from_number(source, result)
    return lambda value: convert(_of_bits(value))


def float_to_integer(source: str, result: str, *, is_signed: bool) -> Convert | None:
    """Toward zero. What is out of range becomes the nearest integer that is not; 8 bits are the lower ones of 16.

    A NaN becomes zero, but where one of the types has 64 bits, it becomes the integer of the highest bit alone. None for i1,
    which Triton asks for with a comparison.
    """
    if result == "i1":
        return None
    working = max(INTEGERS[result], 16)
    low = -(1 << working - 1) if is_signed else 0
    high = low + (1 << working) - 1
    of_nan = 1 << working - 1 if source == "f64" or working == 64 else 0
    dtype, wide = DTYPES[result], np.int64 if is_signed else np.uint64

    def convert(value: Any) -> Any:
        number = value.astype(np.float64)
        above, below, nan = number >= high + 1, number < low, np.isnan(number)
        inside = np.where(above | below | nan, 0, number).astype(wide).view(np.int64)
        outside = (np.array(limit, np.uint64).view(np.int64) for limit in (high, low % (1 << 64), of_nan))
        return np.select((above, below, nan), tuple(outside), inside).astype(dtype)

    return convert


def extend_float(source: str, result: str) -> Convert | None:
    """To a longer format; exact."""
    if source in BYTES or FLOATS[source] >= FLOATS[result]:
        return None
    dtype = DTYPES[result]
    return lambda value: value.astype(dtype)


def truncate_float(source: str, result: str) -> Convert | None:
    """To a shorter format, to the nearest."""
    if result in BYTES or FLOATS[source] <= FLOATS[result]:
        return None
    if result == "bf16":
        return to_bf16 if source == "f32" else f64_to_bf16
    dtype = DTYPES[result]
    return lambda value: value.astype(dtype)


def bitcast(source: str, result: str) -> Convert | None:
    """The same bits as another type of as many."""
    if source == result or {source, result} <= {"i64", "ptr"}:
        return same
    if WIDTHS[source] != WIDTHS[result] or WIDTHS[source] == 1:
        return None
    dtype = DTYPES[result]
    if source == "bf16":
        return lambda value: (value.view(np.uint32) >> 16).astype(np.uint16).view(dtype)
    if result == "bf16":
        return lambda value: (value.view(np.uint16).astype(np.uint32) << 16).view(dtype)
    return lambda value: value.view(dtype)


_FLOAT: dict[str, Callable[[str], Function]] = {
    "addf": add,
    "subf": subtract,
    "mulf": multiply,
    "divf": divide,
    "negf": lambda element: operator.neg,
    "minimumf": lambda element: minimum,
    "maximumf": lambda element: maximum,
    "minnumf": lambda element: minimum_number,
    "maxnumf": lambda element: maximum_number,
}

_CAST: dict[str, tuple[Mapping[str, int], Mapping[str, int], Callable[[str, str], Function | None]]] = {
    "extsi": (INTEGERS, INTEGERS, extend_signed),
    "extui": (INTEGERS, INTEGERS, extend_unsigned),
    "trunci": (INTEGERS, INTEGERS, truncate),
    "index_cast": (INTEGERS, INTEGERS, partial(index_cast, extend=extend_signed)),
    "index_castui": (INTEGERS, INTEGERS, partial(index_cast, extend=extend_unsigned)),
    "sitofp": (INTEGERS, FLOATS, signed_to_float),
    "uitofp": (INTEGERS, FLOATS, unsigned_to_float),
    "fptosi": (FLOATS, INTEGERS, partial(float_to_integer, is_signed=True)),
    "fptoui": (FLOATS, INTEGERS, partial(float_to_integer, is_signed=False)),
    "extf": (FLOATS, FLOATS, extend_float),
    "truncf": (FLOATS, FLOATS, truncate_float),
    "bitcast": (WIDTHS, WIDTHS, bitcast),
}

_ATOMIC_INTEGER = {
    **{name: f"{name}i" for name in ("and", "or", "xor", "add")},
    "max": "maxsi",
    "min": "minsi",
    "umax": "maxui",
    "umin": "minui",
}


def operation(
    name: str, operands: tuple[str, ...], result: str, attributes: Mapping[str, str]
) -> Function | None:
    """What computes an operation on elements of these types; None where there is no such operation.

    Comparisons name their "predicate" among the attributes, and tt.fp_to_fp its "rounding".
    """
    dialect, _, name = name.partition(".")
    if dialect == "arith":
        compute = _arith(name, operands, result, attributes)
    elif dialect == "math":
        compute = _math(name, operands[0])
    else:
        compute = _triton(name, operands, result, attributes) if dialect == "tt" else None
    if compute is None:
        return None
    function, division = _of_scalars_too(compute, operands), _PYTHON_DIVISIONS.get(name)
    return function if division is None or operands[0] == "i1" else _with_python_division(division, function)


_PYTHON_DIVISIONS = {"divsi": operator.floordiv, "remsi": operator.mod}


def _with_python_division(exact: Function, compute: Function) -> Function:
    """Indices are divided by sizes, mostly: that needs no number of NumPy's."""
    return lambda a, b: exact(a, b) if type(a) is type(b) is int and a >= 0 < b else compute(a, b)


_PYTHON = (int, bool)


def _of_scalars_too(compute: Function, operands: tuple[str, ...]) -> Function:
    """What computes on NumPy's numbers and arrays, of Python's integers as well."""
    dtypes = [DTYPES[element] for element in operands]

    def unary(value: Any) -> Any:
        return plain(compute(dtypes[0](value) if type(value) in _PYTHON else value))

    def call(*values: Any) -> Any:
        return plain(
            compute(
                *[
                    dtype(value) if type(value) in _PYTHON else value
                    for dtype, value in zip(dtypes, values, strict=True)
                ]
            )
        )

    return unary if len(operands) == 1 else call


def _arith(
    name: str, operands: tuple[str, ...], result: str, attributes: Mapping[str, str]
) -> Function | None:
    element = operands[-1]
    if name in _CAST:
        sources, results, convert = _CAST[name]
        return convert(element, result) if element in sources and result in results else None
    if name == "select":
        return np.where if element in DTYPES else None
    if name == "cmpi":
        return comparison(element, attributes["predicate"]) if element in INTEGERS else None
    if name == "cmpf":
        return COMPARISONS.get(attributes["predicate"]) if element in FLOATS else None
    if element == "i1":
        return OF_TRUTH_VALUES.get(name)
    if element in INTEGERS:
        return OPERATIONS.get(name)
    if name == "remf":
        # The remainder of the quotient that is rounded toward zero has no more bits than its operands.
        return np.fmod if element in FLOATS else None
    return _FLOAT[name](element) if name in _FLOAT and element in FLOATS else None


def _math(name: str, element: str) -> Function | None:
    if name == "absi" and INTEGERS.get(element, 0) > 1:
        return np.abs
    if name == "absf" and element in FLOATS:
        return np.abs
    if name == "fma":
        return FMA.get(element)
    return {"f32": OF_F32, "f64": OF_F64}.get(element, {}).get(name)


def _triton(
    name: str, operands: tuple[str, ...], result: str, attributes: Mapping[str, str]
) -> Function | None:
    source = operands[0]
    if name == "bitcast" and source in WIDTHS and result in WIDTHS:
        return bitcast(source, result)
    if name in ("int_to_ptr", "ptr_to_int"):
        return same
    if name == "fp_to_fp":
        return FP_TO_FP.get((source, result), {}).get(attributes.get("rounding"))
    if name == "clampf" and source in FLOATS:
        low, high = (
            (minimum, maximum) if attributes["propagateNan"] == "all" else (minimum_number, maximum_number)
        )
        return lambda value, least, most: low(high(value, least), most)
    if name == "extern_elementwise":
        return library_function(attributes["symbol"], operands, result)
    if name == "mulhiui" and INTEGERS.get(source, 0) > 1:
        return multiply_high_unsigned
    if name == "precise_sqrt" and source == "f32":
        return np.sqrt
    return operator.truediv if name in ("precise_divf", "approx_divf") and source == "f32" else None


def atomic(op: str, element: str) -> Function | None:
    """What a read-modify-write stores, of the value before and the operand; None where there is no such operation.

    On the GPU's global memory, an addition of f32 takes and leaves subnormal numbers as zero.
    """
    if op == "exch":
        return lambda old, new: new
    compute: Function | None = None
    if op == "fadd" and element in FLOATS:
        compute = _add_flushed if element == "f32" else add(element)
    elif op in _ATOMIC_INTEGER and INTEGERS.get(element, 0) > 1:
        compute = OPERATIONS[_ATOMIC_INTEGER[op]]
    return None if compute is None else _of_scalars_too(compute, (element, element))


def _add_flushed(old: Any, new: Any) -> Any:
    return flushed(flushed(old) + flushed(new))
