"""A pointer may touch the view that it came from, all of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.case.values import KernelAccess
from statecheck.kernels.orders import program_schedule
from statecheck.sanitizer import OutsideView, sanitize
from tests.helpers.toy_kernels import copy_kernel, poke_kernel
from tests.unit.kernels.watching import found, numbers, zeros

pytestmark = pytest.mark.usefixtures("executed")

SCHEDULES = ("", "reversed", "switches:0>2,3>0", "switches:1>1,1>0,2>2", "switches:2>1,1>2,1>0")
Launch = tuple[Any, tuple[Any, ...], dict[str, torch.Tensor], dict[str, Any]]
"""A kernel, its arguments, the tensors that are registered, and constants."""


@triton.jit
def poke_tile_kernel(out_ptr, row, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + row * stride + tl.arange(0, SIZE), 1)


@triton.jit
def byte_kernel(out_ptr, place):  # type: ignore[no-untyped-def]
    tl.store(out_ptr.to(tl.pointer_type(tl.uint8)) + place, 1)


@triton.jit
def words_kernel(out_ptr, place):  # type: ignore[no-untyped-def]
    pointer = (out_ptr.to(tl.pointer_type(tl.uint8)) + place).to(tl.pointer_type(tl.int64))
    tl.store(pointer, 1)


@triton.jit
def table_kernel(table_ptr, entry, distance):  # type: ignore[no-untyped-def]
    address = tl.load(table_ptr + entry)
    tl.store((address + distance * 4).to(tl.pointer_type(tl.int32)), 1)


@triton.jit
def table_tile_kernel(table_ptr, distance, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    addresses = tl.load(table_ptr + tl.arange(0, SIZE))
    tl.store(addresses.to(tl.pointer_type(tl.int32)) + distance, 1)


@triton.jit
def loses_its_origin_kernel(table_ptr, distance, bits, same_bits):  # type: ignore[no-untyped-def]
    """Through arithmetic that makes of an address something else, and back, as no compiler can know."""
    address = tl.load(table_ptr) + distance * 4
    tl.store(((address ^ bits) ^ same_bits).to(tl.pointer_type(tl.int32)), 1)


@triton.jit
def select_kernel(a_ptr, b_ptr, first, distance, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    pointers = tl.where(lanes < first, a_ptr + lanes, b_ptr + lanes - first + distance)
    tl.store(pointers, 1)


@triton.jit
def turned_kernel(out_ptr, distance, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    pointers = tl.trans(out_ptr + rows[:, None] * COLUMNS + columns[None, :])
    pointers = tl.reshape(tl.broadcast_to(pointers, (COLUMNS, ROWS)), (ROWS * COLUMNS,))
    tl.store(pointers + distance, 1)


@triton.jit
def descriptor_kernel(in_ptr, out_ptr, rows, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    source = tl.make_tensor_descriptor(in_ptr, [rows, COLUMNS], [COLUMNS, 1], [4, COLUMNS])
    target = tl.make_tensor_descriptor(out_ptr, [rows, COLUMNS], [COLUMNS, 1], [4, COLUMNS])
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def tuple_kernel(tensors, place):  # type: ignore[no-untyped-def]
    tl.store(tensors[1] + place, 1)


def table(*tensors: torch.Tensor) -> torch.Tensor:
    """Their addresses."""
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_missing_mask_is_found_in_every_order_of_programs(
    masked: bool, inside: bool, schedule: str
) -> None:
    out = zeros(16)[:13]
    first, second = (sanitize(), program_schedule(schedule))[:: 1 if inside else -1]
    with first, second:
        if masked:
            copy_kernel[(4,)](numbers(13), out, 13, SIZE=4, MASKED=True)
            assert out.tolist() == list(range(13))
        else:
            with pytest.raises(OutsideView, match=r"loads 4 bytes at .*kernels\.py:\d+"):
                copy_kernel[(4,)](zeros(16)[:13], out, 13, SIZE=4, MASKED=False)


def pages() -> torch.Tensor:
    return zeros(40).as_strided((4, 6), (10, 1))


def halves() -> tuple[torch.Tensor, torch.Tensor]:
    memory = zeros(16)
    return memory[:8], memory[8:]


def of_two_tables(entry: int, distance: int) -> Launch:
    first, two = zeros(4), zeros(4)
    return table_kernel, (table(first, two), entry, distance), {"one": first, "two": two}, {}


def into_the_next(kernel: Any, distance: int, **constants: Any) -> Launch:
    memory = zeros(8)
    first, two = memory[:4], memory[4:]
    given = (table(first), 0, distance) if kernel is table_kernel else (table(first, two), distance)
    return kernel, given, {"one": first, "two": two}, constants


def from_the_start(distance: int) -> Launch:
    memory = zeros(8)
    return table_kernel, (table(memory), 0, distance), {"front": memory[:4], "all": memory}, {}


def from_the_middle(distance: int) -> Launch:
    memory = zeros(8)
    return table_kernel, (table(memory[3:]), 0, distance), {"all": memory}, {}


def without_origin(distance: int) -> Launch:
    memory = zeros(8)
    named = {"one": memory[:4], "two": memory[4:]}
    return loses_its_origin_kernel, (table(memory), distance, 5, 5), named, {}


def of(kernel: Any, *arguments: Any, **constants: Any) -> Launch:
    return kernel, arguments, {}, constants


def _word_at(place: int) -> Launch:
    return of(words_kernel, zeros(4), place)


INSIDE = ""
LAUNCHES: dict[str, tuple[Callable[[], Launch], str]] = {
    "the first element": (lambda: of(poke_kernel, zeros(4), 0), INSIDE),
    "the last element": (lambda: of(poke_kernel, zeros(4), 3), INSIDE),
    "the next element": (lambda: of(poke_kernel, zeros(12)[4:8], 4), "right behind the end of `out_ptr`"),
    "two elements further": (lambda: of(poke_kernel, zeros(12)[4:8], 6), "8 bytes behind the end of `out_ptr`"),
    "the element before": (lambda: of(poke_kernel, zeros(12)[4:8], -1), "4 bytes before the start of `out_ptr`"),
    "far beyond": (lambda: of(poke_kernel, zeros(4), 1 << 40), "behind the end"),
    "an aligned word": (lambda: of(words_kernel, zeros(4), 8), INSIDE),
    **{
        f"a word {place} bytes from the start": (
            partial(_word_at, place), "Misaligned: program (0, 0, 0)",
        )
        for place in (1, 2, 4)
    },
    "an offset that wraps around to row 0": (lambda: of(poke_tile_kernel, zeros(4, 4)[1:], 0, -4, SIZE=4), INSIDE),
    "an offset that wraps around": (
        lambda: of(poke_tile_kernel, zeros(4, 4)[1:], 1, -4, SIZE=4), "before the start",
    ),
    "a scalar tensor": (lambda: of(poke_kernel, torch.tensor(0), 0), INSIDE),
    "behind a scalar tensor": (lambda: of(poke_kernel, torch.tensor(0), 1), "behind the end"),
    "a tensor without elements": (lambda: of(poke_kernel, zeros(4)[2:2], 0), "which has no element"),
    "an expanded view": (lambda: of(poke_kernel, zeros(4).expand(8, 4), 3), INSIDE),
    "behind an expanded view": (lambda: of(poke_kernel, zeros(4).expand(8, 4), 4), "behind the end"),
    "the last page": (lambda: of(poke_tile_kernel, pages(), 3, 10, SIZE=4), INSIDE),
    "between pages": (lambda: of(poke_kernel, pages(), 26), "in the gap after row 2 of `out_ptr`"),
    "a tile between pages": (
        lambda: of(poke_tile_kernel, pages(), 1, 3, SIZE=4), "in the gap after row 0 of `out_ptr`",
    ),
    "the last byte": (lambda: of(byte_kernel, zeros(4), 15), INSIDE),
    "the byte behind": (lambda: of(byte_kernel, zeros(4), 16), "right behind the end"),
    "a word across the end": (lambda: of(words_kernel, zeros(4), 12), "reaching 4 bytes behind the end"),
    "a word of which one byte is outside": (lambda: of(words_kernel, zeros(4), 9), "reaching 1 byte behind the end"),
    "by a table": (lambda: of_two_tables(1, 3), INSIDE),
    "behind a tensor of the table": (lambda: of_two_tables(1, 4), "behind the end of `two`"),
    "into the next tensor": (
        lambda: into_the_next(table_kernel, 5), "behind the end of `one`, in `two` instead",
    ),
    "a tile of addresses": (lambda: into_the_next(table_tile_kernel, 3, SIZE=2), INSIDE),
    "a tile of addresses into the next tensor": (lambda: into_the_next(table_tile_kernel, 4, SIZE=2), "OutsideView"),
    "an unknown address": (
        lambda: of(table_kernel, table(zeros(4)), 0, 0), "an address that no known tensor contains",
    ),
    "the longer of two that start together": (lambda: from_the_start(7), INSIDE),
    "behind both": (lambda: from_the_start(8), "OutsideView"),
    "an address in the middle of a tensor": (lambda: from_the_middle(4), INSIDE),
    "a lost origin": (lambda: without_origin(5), INSIDE),
    "a lost origin outside of all": (lambda: without_origin(8), "OutsideView"),
    "one of two pointers": (lambda: of(select_kernel, *halves(), 4, 4, SIZE=8), INSIDE),
    "behind one of two": (lambda: of(select_kernel, *halves(), 4, 5, SIZE=8), "of `b_ptr`"),
    "before one of two": (
        lambda: of(select_kernel, *halves(), 4, -1, SIZE=8), "before the start of `b_ptr`, in `a_ptr` instead",
    ),
    "through changes of shape": (lambda: of(turned_kernel, zeros(8), 0, ROWS=2, COLUMNS=4), INSIDE),
    "outside through changes of shape": (
        lambda: of(turned_kernel, zeros(9)[:8], 1, ROWS=2, COLUMNS=4), "behind the end of `out_ptr`",
    ),
    "a descriptor": (lambda: of(descriptor_kernel, zeros(8, 16)[:3], zeros(4, 16), 3, COLUMNS=16), INSIDE),
    "a descriptor of more rows than there are": (
        lambda: of(descriptor_kernel, zeros(8, 16)[:3], zeros(4, 16), 4, COLUMNS=16),
        "as element [3, 0], right behind the end of `in_ptr`",
    ),
    "a tensor in a tuple": (lambda: of(tuple_kernel, (zeros(4), zeros(4)), 3), INSIDE),
    "behind a tensor in a tuple": (
        lambda: of(tuple_kernel, (zeros(4), zeros(4)), 4), "behind the end of `tensors[1]`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_an_access_outside_of_its_view_is_found_and_described(name: str) -> None:
    make, words = LAUNCHES[name]
    kernel, arguments, registered, constants = make()
    outside = found(kernel, 1, *arguments, registered=registered, **constants)
    assert words in outside if words else not outside


def test_the_fields_of_a_finding_name_the_nearest_of_several_tensors() -> None:
    memory = zeros(8)
    with sanitize() as watch:
        watch.register(memory[:4], "front")
        watch.register(memory, "all")
        with pytest.raises(OutsideView, match="behind the end of `all`") as outside:
            table_kernel[(1,)](table(memory), 0, 8)
    assert outside.value.access.fields == KernelAccess("table_kernel", "stores", "all", (8,))


@pytest.mark.parametrize(("kernel", "place"), [(poke_kernel, 4), (words_kernel, 2)])
def test_nothing_outside_or_misaligned_is_written(kernel: Any, place: int) -> None:
    memory = zeros(12)
    assert found(kernel, 1, memory[4:8], place)
    assert not memory.any()


def test_a_neighbour_that_is_hit_is_named() -> None:
    memory = zeros(8)
    words = found(poke_kernel, 1, memory[:4], 5, registered={"state": memory[4:]})
    assert "in `state` instead" in words


def test_a_forgotten_tensor_is_unknown() -> None:
    tensor = zeros(4)
    with sanitize() as watch:
        watch.register(tensor, "one")
        watch.forget(tensor)
        with pytest.raises(OutsideView, match="no known tensor"):
            table_kernel[(1,)](table(tensor), 0, 0)
        with pytest.raises(ValueError, match=r"should be a registered one \[forget\]"):
            watch.forget(tensor)
