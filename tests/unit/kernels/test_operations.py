"""Operations of Triton on whole tiles, of libdevice and of inline assembly, executed: each as torch or NumPy computes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from statecheck.case.findings import NotExecuted
from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.kernels.source.ptx import assembly
from statecheck.kernels.source.tiles import AssertionFailedError

pytestmark = pytest.mark.usefixtures("executed")

ROWS, COLUMNS = 4, 8


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tl.gather(tl.load(x_ptr + places), tl.load(index_ptr + places), AXIS)
    tl.store(out_ptr + places, tile)


@pytest.mark.parametrize("index_dtype", [torch.int8, torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_gather_is_that_of_torch(axis: int, dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    x = (torch.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) * 3 - 40).to(dtype)
    size = (ROWS, COLUMNS)[axis]
    index = (torch.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) * 5 % size).to(index_dtype)
    out = torch.zeros_like(x)
    gather_kernel[(1,)](x, index, out, AXIS=axis, ROWS=ROWS, COLUMNS=COLUMNS)
    assert torch.equal(out, x.gather(axis, index.long()))


@pytest.mark.parametrize("wrong", [-1, COLUMNS])
def test_a_gather_by_an_index_outside_of_its_axis_stops_at_its_line(wrong: int) -> None:
    x = torch.zeros(ROWS, COLUMNS)
    index = torch.zeros(ROWS, COLUMNS, dtype=torch.int32)
    index[2, 3] = wrong
    with pytest.raises(
        AssertionFailedError, match=rf"index {wrong} of tl.gather, but should be .* < {COLUMNS}"
    ):
        gather_kernel[(1,)](x, index, torch.zeros_like(x), AXIS=1, ROWS=ROWS, COLUMNS=COLUMNS)


@triton.jit
def halves_kernel(x_ptr, y_ptr, out_ptr, OPERATION: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    x, y = tl.load(x_ptr + lanes), tl.load(y_ptr + lanes)
    twice = tl.arange(0, 2 * SIZE)
    if OPERATION == "join":
        pairs = lanes[:, None] * 2 + tl.arange(0, 2)[None, :]
        tl.store(out_ptr + pairs, tl.join(x, y))
    elif OPERATION == "interleave":
        tl.store(out_ptr + twice, tl.interleave(x, y))
    elif OPERATION == "cat":
        tl.store(out_ptr + twice, tl.cat(x, y, can_reorder=True))
    else:
        first, second = tl.split(tl.reshape(tl.load(x_ptr + twice), (SIZE, 2)))
        tl.store(out_ptr + lanes, first)
        tl.store(out_ptr + SIZE + lanes, second)


HALVES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "join": lambda x, y: torch.stack((x[:8], y), -1).flatten(),
    "interleave": lambda x, y: torch.stack((x[:8], y), -1).flatten(),
    "cat": lambda x, y: torch.cat((x[:8], y)),
    "split": lambda x, y: torch.cat((x[::2], x[1::2])),
}


# Triton 3.6 concatenates only with `can_reorder`, of which 3.9 warns.
@pytest.mark.filterwarnings("ignore:tl.cat:UserWarning")
@pytest.mark.parametrize("operation", HALVES)
def test_tiles_are_joined_split_and_concatenated_as_torch_does(operation: str) -> None:
    x, y = torch.arange(16.0), torch.arange(8.0) + 100
    out = torch.zeros(16)
    halves_kernel[(1,)](x, y, out, OPERATION=operation, SIZE=8)
    assert out.tolist() == HALVES[operation](x, y).tolist()


@triton.jit
def histogram_kernel(x_ptr, out_ptr, below, SIZE: tl.constexpr, BINS: tl.constexpr, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(x_ptr + tl.arange(0, SIZE))
    if MASKED:
        counts = tl.histogram(x, BINS, mask=x < below)
    else:
        counts = tl.histogram(x, BINS)
    tl.store(out_ptr + tl.arange(0, BINS), counts)


@pytest.mark.parametrize("masked", [False, True])
def test_a_histogram_counts_as_torch_does(*, masked: bool) -> None:
    x = torch.arange(64, dtype=torch.int32) ** 2 % 15
    out = torch.zeros(16, dtype=torch.int32)
    histogram_kernel[(1,)](x, out, 9, SIZE=64, BINS=16, MASKED=masked)
    kept = x[x < 9] if masked else x
    assert out.tolist() == torch.bincount(kept, minlength=16).tolist()


@triton.jit
def float_kernel(x_ptr, y_ptr, out_ptr, OPERATION: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    x, y = tl.load(x_ptr + lanes), tl.load(y_ptr + lanes)
    if OPERATION == "remainder":
        x = x % y
    elif OPERATION == "clamp":
        x = tl.clamp(x, -1.0, y)
    elif OPERATION == "clamp, NaN stays":
        x = tl.clamp(x, -1.0, y, propagate_nan=tl.PropagateNan.ALL)
    elif OPERATION == "pow":
        x = libdevice.pow(x, y)
    elif OPERATION == "tanh":
        x = libdevice.tanh(x)
    elif OPERATION == "log1p":
        x = libdevice.log1p(x)
    elif OPERATION == "round":
        x = libdevice.round(x)
    elif OPERATION == "rint":
        x = libdevice.rint(x)
    elif OPERATION == "div_rn":
        x = libdevice.div_rn(x, y)
    elif OPERATION == "isnan":
        x = libdevice.isnan(x).to(x.dtype)
    elif OPERATION == "acosh":
        x = libdevice.acosh(x)
    tl.store(out_ptr + lanes, x)


def _clamped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), -1.0, torch.minimum(x.clamp(min=-1.0), y))


FLOATS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "remainder": torch.fmod,
    "clamp": _clamped,
    "clamp, NaN stays": lambda x, y: torch.minimum(x.clamp(min=-1.0), y),
    "pow": torch.pow,
    "tanh": lambda x, y: torch.tanh(x),
    "log1p": lambda x, y: torch.log1p(x),
    "round": lambda x, y: torch.copysign(torch.floor(x.abs() + 0.5), x),
    "rint": lambda x, y: torch.round(x),
    "div_rn": torch.div,
    "isnan": lambda x, y: x.isnan().to(x.dtype),
    "acosh": lambda x, y: torch.acosh(x),
}
X = [0.5, -0.5, 1.5, -2.5, 7.25, -7.25, math.nan, math.inf, -math.inf, 0.0, -0.0, 3.0, 1e-3, 100.0, 2.5, -1.0]
Y = [2.0, 1.5, 0.75, 3.0, 2.0, 2.0, 1.0, 2.0, 3.0, 1.0, 2.0, 0.1, 5.0, 7.0, 0.5, 0.25]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("operation", FLOATS)
def test_functions_of_floats_are_those_of_torch(operation: str, dtype: torch.dtype) -> None:
    x, y = torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype)
    out = torch.zeros_like(x)
    float_kernel[(1,)](x, y, out, OPERATION=operation, SIZE=16)
    expected = FLOATS[operation](x.double(), y.double()).to(dtype)
    torch.testing.assert_close(out, expected, rtol=2e-7, atol=0, equal_nan=True)
    assert torch.equal(out.signbit()[~out.isnan()], expected.signbit()[~out.isnan()])


@triton.jit
def narrow_kernel(x_ptr, out_ptr, SIZE: tl.constexpr, TO: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes).to(TO, fp_downcast_rounding="rtz"))


@pytest.mark.parametrize(
    ("dtype", "to"), [(torch.float16, tl.float16), (torch.bfloat16, tl.bfloat16)], ids=str
)
def test_a_rounding_toward_zero_gives_the_largest_number_within(dtype: torch.dtype, to: Any) -> None:
    x = torch.tensor([1.0, 1.0009, -1.0009, 65535.9, -1e30, 1e-8, -0.0, math.inf], dtype=torch.float32)
    out = torch.zeros(8, dtype=dtype)
    narrow_kernel[(1,)](x, out, SIZE=8, TO=to)
    assert (out.double().abs() <= x.double().abs()).all()
    up = torch.where(
        out.isinf(), out, torch.nextafter(out, torch.copysign(torch.tensor(math.inf), x).to(dtype))
    )
    assert ((up.double().abs() > x.double().abs()) | x.isinf() | (out.double() == x.double())).all()


@triton.jit
def dot_kernel(  # type: ignore[no-untyped-def]
    a_ptr, b_ptr, out_ptr, PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr, SIZE: tl.constexpr
):
    lanes = tl.arange(0, SIZE)
    places = lanes[:, None] * SIZE + lanes[None, :]
    a, b = tl.load(a_ptr + places), tl.load(b_ptr + places)
    tl.store(out_ptr + places, tl.dot(a, b, input_precision=PRECISION, out_dtype=ACCUMULATOR))


def _fractions_cut_to_tf32(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy((x.numpy().view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32))


@pytest.mark.parametrize(
    ("dtype", "precision", "accumulator"),
    [
        (torch.float32, "ieee", torch.float32),
        (torch.float32, "tf32", torch.float32),
        (torch.bfloat16, "tf32", torch.float32),
        (torch.float16, "tf32", torch.float32),
        (torch.float16, "tf32", torch.float16),
        (torch.float8_e4m3fn, "tf32", torch.float32),
        (torch.float8_e5m2, "tf32", torch.float32),
    ],
    ids=str,
)
def test_a_product_is_exact_but_for_one_rounding_to_its_accumulator(
    dtype: torch.dtype, precision: str, accumulator: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(1)
    a, b = (torch.randn(32, 32, generator=random).to(dtype) for _ in range(2))
    out = torch.zeros(32, 32, dtype=accumulator)
    to = {torch.float32: tl.float32, torch.float16: tl.float16}[accumulator]
    dot_kernel[(1,)](a, b, out, PRECISION=precision, ACCUMULATOR=to, SIZE=32)
    exact = [x.float() for x in (a, b)]
    if dtype == torch.float32 and precision == "tf32":
        exact = [_fractions_cut_to_tf32(x) for x in exact]
    assert torch.equal(out, (exact[0].double() @ exact[1].double()).to(accumulator))


@pytest.mark.parametrize(("precision", "bits"), [("tf32", 9), ("bf16x3", 15), ("tf32x3", 20), ("bf16x6", 22)])
def test_a_product_of_several_parts_is_nearer_to_that_of_float32(precision: str, bits: int) -> None:
    random = torch.Generator().manual_seed(1)
    a, b = (torch.randn(32, 32, generator=random) for _ in range(2))
    out = torch.zeros(32, 32)
    dot_kernel[(1,)](a, b, out, PRECISION=precision, ACCUMULATOR=tl.float32, SIZE=32)
    off = (out.double() - a.double() @ b.double()).abs() / (a.double().abs() @ b.double().abs())
    assert 2.0 ** -(bits + 5) < off.max() < 2.0**-bits
    a = torch.tensor([[math.inf, 0.0], [0.0, 0.0]]).repeat(16, 16)
    a[1, 1] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    dot_kernel[(1,)](a, torch.ones(32, 32), out, PRECISION=precision, ACCUMULATOR=tl.float32, SIZE=32)
    assert torch.equal(out.isnan().any(1), torch.arange(32) == 1)
    assert torch.equal(out.isinf().all(1), torch.arange(32) % 2 == 0)


@triton.jit
def assembly_kernel(x_ptr, out_ptr, SIZE: tl.constexpr, TEXT: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    x = tl.inline_asm_elementwise(TEXT, "=r,r", [tl.load(x_ptr + lanes)], tl.float32, True, 1)
    tl.inline_asm_elementwise("griddepcontrol.wait; // dummy $0", "=r", [], tl.int32, False, 1)
    tl.store(out_ptr + lanes, x)


SOFTPLUS = """{ .reg .pred p; setp.gt.f32 p, $1, 20.;
@p  mov.f32 $0, $1;
@!p mul.f32 $0, $1, 1.4426950408889634; @!p ex2.approx.ftz.f32 $0, $0; @!p add.f32 $0, $0, 1.0;
@!p lg2.approx.ftz.f32 $0, $0; @!p mul.f32 $0, $0, 0.6931471805599453; }"""


def test_inline_assembly_with_predicates_computes_as_the_formula() -> None:
    x = torch.tensor([-3.0, 0.0, 1.0, 19.0, 21.0, 80.0, -0.5, 5.0])
    out = torch.zeros(8)
    assembly_kernel[(1,)](x, out, SIZE=8, TEXT=SOFTPLUS)
    torch.testing.assert_close(out, torch.nn.functional.softplus(x, threshold=20.0), rtol=1e-6, atol=1e-7)


def test_inline_assembly_that_is_not_known_is_not_executed_and_named() -> None:
    with pytest.raises(NotExecuted, match=r"inline assembly with bar\.sync"):
        assembly_kernel[(1,)](torch.zeros(8), torch.zeros(8), SIZE=8, TEXT="bar.sync 0;")


NAN = math.nan


@pytest.mark.parametrize(
    ("text", "operands", "values", "expected"),
    [
        ("shl.b32 $0, $1, $2;", ("i32", "i32"), (3, 31), -(1 << 31)),
        ("shl.b32 $0, $1, $2;", ("i32", "i32"), (3, 40), 0),
        ("shr.u32 $0, $1, 4;", ("i32",), (-1,), 0x0FFFFFFF),
        ("shr.s32 $0, $1, 40;", ("i32",), (-7,), -1),
        ("mul.lo.u32 $0, $1, $1;", ("i32",), (0x10001,), 0x20001),
        ("setp.lt.s32 p, $1, 0; selp.b32 $0, 5, $1, p;", ("i32",), (-3,), 5),
        ("setp.lt.u32 p, $1, 9; selp.b32 $0, 5, $1, p;", ("i32",), (-3,), -3),
        ("setp.ne.f32 p, $1, $1; selp.b32 $0, 1, 0, p;", ("f32",), (NAN,), 0),
        ("setp.neu.f32 p, $1, $1; selp.b32 $0, 1, 0, p;", ("f32",), (NAN,), 1),
        ("mov.b32 $0, 0f3F800000;", (), (), 0x3F800000),
        ("not.b32 $0, $1;", ("i32",), (0,), -1),
    ],
    ids=str,
)
def test_an_instruction_on_bits_is_that_of_the_manual(
    text: str, operands: tuple[str, ...], values: tuple[float, ...], expected: int
) -> None:
    numbers = [
        np.float32(value) if element == "f32" else value
        for value, element in zip(values, operands, strict=True)
    ]
    assert assembly(text, "=r" + ",r" * len(operands), operands, ("i32",))(*numbers) == expected


def test_the_larger_magnitude_has_the_sign_of_the_product() -> None:
    compute = assembly("max.NaN.xorsign.abs.f32 $0, $1, $2;", "=r,r,r", ("f32", "f32"), ("f32",))
    assert compute(np.float32(-3), np.float32(2)) == -3
    assert compute(np.float32(-3), np.float32(-4)) == 4
    assert math.isnan(compute(np.float32(NAN), np.float32(1)))


def test_a_flushing_instruction_takes_subnormal_numbers_as_zero() -> None:
    flushing = assembly("mul.ftz.f32 $0, $1, $2;", "=f,f,f", ("f32", "f32"), ("f32",))
    plain = assembly("mul.f32 $0, $1, $2;", "=f,f,f", ("f32", "f32"), ("f32",))
    assert flushing(np.float32(1e-40), np.float32(8)) == 0
    assert plain(np.float32(1e-40), np.float32(8)) > 0


@pytest.mark.parametrize(("constraints", "operands"), [("=h,h", ("f32",)), ("=r,r", ("f16",))])
def test_registers_of_other_widths_are_not_known(constraints: str, operands: tuple[str, ...]) -> None:
    with pytest.raises(NotUnderstoodError):
        assembly("mov.f32 $0, $1;", constraints, operands, ("f32",))


@triton.jit
def dependent_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.extra.cuda.gdc_wait()
    tl.store(out_ptr, 1)
    tl.extra.cuda.gdc_launch_dependents()


def test_a_launch_that_waits_for_the_one_before_finds_it_complete() -> None:
    out = torch.zeros(1)
    dependent_kernel[(1,)](out)
    assert out.item() == 1
