"""Native code of kernels: launches that nothing watches leave the memory that they leave in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels import native
from statecheck.kernels.launch import in_turn, running
from tests.helpers.toy_kernels import tile_kernel

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit(do_not_specialize=["size", "step"])
def integers_kernel(x_ptr, y_ptr, out_ptr, size, step, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = lanes < size
    x, y = tl.load(x_ptr + lanes, inside), tl.load(y_ptr + lanes, inside, 1)
    out_ptr += lanes * 14
    tl.store(out_ptr, x + y, inside)
    tl.store(out_ptr + 1, x - y, inside)
    tl.store(out_ptr + 2, x * y, inside)
    tl.store(out_ptr + 3, x // y, inside)
    tl.store(out_ptr + 4, x % y, inside)
    tl.store(out_ptr + 5, (x & y) | (x ^ step), inside)
    tl.store(out_ptr + 6, tl.minimum(x, y), inside)
    tl.store(out_ptr + 7, tl.where(x > y, x, step), inside)
    tl.store(out_ptr + 8, (x.to(tl.uint32) < y.to(tl.uint32)).to(tl.int32), inside)
    tl.store(out_ptr + 9, x.to(tl.int8).to(tl.int32), inside)
    tl.store(out_ptr + 10, x.to(tl.int64) * y // 3, inside)
    # By zero, where both are the 64-bit integers of 32-bit ones.
    tl.store(out_ptr + 12, x.to(tl.int64) // y.to(tl.int64) % 1000, inside)
    tl.store(out_ptr + 13, x.to(tl.int64) % y.to(tl.int64) % 1000, inside)
    tl.store(out_ptr + 11, tl.maximum(x, tl.sum(y)), inside)


@triton.jit(do_not_specialize=["size"])
def control_kernel(x_ptr, out_ptr, size):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    if row >= size:
        return
    total = tl.load(x_ptr + row)
    tile = tl.full((2, 4), 1, tl.int32)
    for place in range(row, size, 2):
        before = total
        total = tl.load(x_ptr + place) - before
        if total > 0:
            tile += total
        else:
            tile = tl.where(tl.arange(0, 4)[None, :] < tl.arange(0, 2)[:, None], total, tile)
    places = tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(out_ptr + row * 8 + places, tile)


@triton.jit
def pointers_kernel(addresses_ptr, out_ptr, TYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    source = tl.load(addresses_ptr + tl.program_id(0)).to(tl.pointer_type(TYPE))
    taken = tl.load(source + tl.arange(0, 4), tl.arange(0, 4) != 2, 0)
    tl.store(out_ptr + tl.program_id(0) * 4 + tl.arange(0, 4), taken)


EXTREMES = (0, 1, -1, 2, -2, 7, -7, 100, 255, -256, 2**31 - 1, -(2**31))


def of_integers() -> list[torch.Tensor]:
    pairs = [(x, y) for x in EXTREMES for y in EXTREMES]
    x, y = (torch.tensor(each, dtype=torch.int32) for each in zip(*pairs, strict=True))
    out = torch.full((len(pairs) * 14,), 3, dtype=torch.int32)
    integers_kernel[(19,)](x, y, out, len(pairs) - 1, -5, SIZE=8)
    return [out]


def of_control() -> list[torch.Tensor]:
    x, out = torch.tensor([3, -1, 4, 1, -5], dtype=torch.int32), torch.zeros(6 * 8, dtype=torch.int32)
    control_kernel[(3, 2)](x, out, len(x))
    return [out]


def of_pointers(dtype: torch.dtype, kind: Any) -> list[torch.Tensor]:
    # Not a number among them, with a payload.
    bits = torch.tensor([-1, 5, 9, 1 << 30, -8, 77, 0, 1], dtype=torch.int32)
    raw = bits.view(torch.uint8).view(dtype)[:8].clone() if dtype.itemsize < 4 else bits.view(dtype)
    addresses = torch.tensor([raw.data_ptr(), raw.data_ptr() + 3 * dtype.itemsize])
    out = torch.zeros(8, dtype=dtype)
    pointers_kernel[(2,)](addresses, out, TYPE=kind)
    return [out.view(torch.uint8)]


def of_floats() -> list[torch.Tensor]:
    tile = torch.arange(16.0).reshape(4, 4)
    out = torch.zeros_like(tile)
    tile_kernel[(1,)](tile, out, OPERATION="all", SIZE=4)
    return [out]


def forget_variants() -> None:
    """As in a new process."""
    for kernel in (integers_kernel, control_kernel, pointers_kernel, tile_kernel):
        kernel.device_caches.clear()


@pytest.fixture(autouse=True)
def _compiled_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    if native.compiler() is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(native, "_WORTHWHILE", 1)
    # Nothing of an earlier run is taken.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    forget_variants()
    yield
    forget_variants()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each launch that nothing watches ran as native code."""
    found: list[bool] = []
    run = native.Native.run

    def noting(self: native.Native, *arguments: Any) -> bool:
        found.append(run(self, *arguments))
        return found[-1]

    monkeypatch.setattr(native.Native, "run", noting)
    return found


def made(launches: Callable[[], list[torch.Tensor]]) -> list[Any]:
    """What launches leave in memory."""
    return [tensor.tolist() for tensor in launches()]


NATIVE = {
    "integers": of_integers,
    "control flow": of_control,
    "truth values": lambda: of_pointers(torch.bool, tl.int1),
    "half": lambda: of_pointers(torch.float16, tl.float16),
    "bfloat16": lambda: of_pointers(torch.bfloat16, tl.bfloat16),
    "float": lambda: of_pointers(torch.float32, tl.float32),
}


@pytest.mark.parametrize("launches", NATIVE.values(), ids=NATIVE)
def test_native_code_does_what_generated_python_does(
    launches: Callable[[], list[torch.Tensor]], ran: list[bool]
) -> None:
    found = made(launches)
    assert ran == [True]
    with running(runner=partial(in_turn)):
        assert made(launches) == found
    assert ran == [True]


def test_a_kernel_that_computes_with_floats_stays_in_python(ran: list[bool]) -> None:
    assert made(of_floats) == [[[x + 120.0 for x in range(y, y + 4)] for y in range(0, 16, 4)]]
    assert ran == [False]


def test_a_kernel_is_compiled_when_that_is_worth_its_time(
    monkeypatch: pytest.MonkeyPatch, ran: list[bool]
) -> None:
    monkeypatch.setattr(native, "_WORTHWHILE", 3)
    forget_variants()
    found = [made(of_control) for _ in range(4)]
    assert ran == [False, False, True, True]
    assert found == [found[0]] * 4
    # Another process finds the library in Triton's cache folder.
    forget_variants()
    assert made(of_control) == found[0]
    assert ran[4:] == [True]


@pytest.mark.parametrize("name", ["false", "no-such-compiler"])
def test_launches_go_on_in_python_where_nothing_compiles(
    name: str, monkeypatch: pytest.MonkeyPatch, ran: list[bool], tmp_path: Path
) -> None:
    found = made(of_control)
    monkeypatch.setattr(native, "compiler", lambda: name)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "empty"))
    forget_variants()
    assert [made(of_control), made(of_control)] == [found] * 2
    assert ran == [True, False, False]
