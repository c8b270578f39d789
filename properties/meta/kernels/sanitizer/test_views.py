"""A pointer may touch the view that it came from, all of it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.kernels.orders.schedule import program_schedule
from properties.meta.toy_kernels import copy_kernel, poke_kernel
from properties.sanitizer import Misaligned, OutsideView, sanitize

pytestmark = pytest.mark.usefixtures("executed")

SCHEDULES = ("", "reversed", "shuffled:1", "interleaved:1", "interleaved:2")


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


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def found(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constexprs: Any) -> str:
    """What is found in a launch, "" if nothing."""
    return found_with({}, kernel, grid, *arguments, **constexprs)


def found_with(
    registered: dict[str, torch.Tensor],
    kernel: Any,
    grid: tuple[int, ...],
    *arguments: Any,
    **constexprs: Any,
) -> str:
    with sanitize() as watch:
        for name, tensor in registered.items():
            watch.register(tensor, name)
        try:
            kernel[grid](*arguments, **constexprs)
        except OutsideView as finding:
            return str(finding)
    return ""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("inside", [False, True])
def test_a_missing_mask_is_found_in_every_order_of_programs(schedule: str, inside: bool) -> None:
    first, second = (sanitize(), program_schedule(schedule))[:: 1 if inside else -1]
    with first, second, pytest.raises(OutsideView, match=r"loads 4 bytes at .*kernels\.py:\d+"):
        copy_kernel[(4,)](zeros(16)[:13], zeros(16)[:13], 13, SIZE=4, MASKED=False)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("inside", [False, True])
def test_a_mask_keeps_every_order_of_programs_inside(schedule: str, inside: bool) -> None:
    numbers, out = torch.arange(13, dtype=torch.int32), zeros(13)
    first, second = (sanitize(), program_schedule(schedule))[:: 1 if inside else -1]
    with first, second:
        copy_kernel[(4,)](numbers, out, 13, SIZE=4, MASKED=True)
    assert out.tolist() == numbers.tolist()


@pytest.mark.parametrize("place", [0, 3])
def test_every_element_of_a_view_is_inside(place: int) -> None:
    assert not found(poke_kernel, (1,), zeros(4), place)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (4, "right behind the end of `out_ptr`"),
        (6, "8 bytes behind the end of `out_ptr`"),
        (-1, "4 bytes before the start of `out_ptr`"),
    ],
)
def test_the_message_says_by_how_much_an_access_is_outside(place: int, words: str) -> None:
    assert words in found(poke_kernel, (1,), zeros(12)[4:8], place)


@pytest.mark.parametrize("place", [0, 8])
def test_an_aligned_element_may_be_touched(place: int) -> None:
    assert not found(words_kernel, (1,), zeros(4), place)


@pytest.mark.parametrize("place", [1, 2, 4])
def test_an_element_across_its_alignment_is_refused_before_it_is_written(place: int) -> None:
    memory = zeros(4)
    with (
        sanitize(),
        pytest.raises(Misaligned, match=r"at an address that is no multiple of 8: .* a GPU ends"),
    ):
        words_kernel[(1,)](memory, place)
    assert not memory.any()


def test_nothing_outside_is_written() -> None:
    memory = zeros(12)
    assert found(poke_kernel, (1,), memory[4:8], 4)
    assert not memory.any()


def test_a_neighbour_that_is_hit_is_named() -> None:
    memory = zeros(8)
    assert "in `state` instead" in found_with({"state": memory[4:]}, poke_kernel, (1,), memory[:4], 5)


def test_an_access_far_beyond_is_found_before_it_crashes() -> None:
    assert "behind the end" in found(poke_kernel, (1,), zeros(4), 1 << 40)


def test_an_offset_that_wraps_around_is_a_negative_one() -> None:
    assert not found(poke_tile_kernel, (1,), zeros(4, 4)[1:], 0, -4, SIZE=4)
    assert "before the start" in found(poke_tile_kernel, (1,), zeros(4, 4)[1:], 1, -4, SIZE=4)


def test_a_scalar_tensor_is_one_element() -> None:
    assert not found(poke_kernel, (1,), torch.tensor(0), 0)
    assert "behind the end" in found(poke_kernel, (1,), torch.tensor(0), 1)


def test_a_tensor_without_elements_has_no_inside() -> None:
    assert "which has no element" in found(poke_kernel, (1,), zeros(4)[2:2], 0)


def test_an_expanded_view_is_what_it_repeats() -> None:
    assert not found(poke_kernel, (1,), zeros(4).expand(8, 4), 3)
    assert "behind the end" in found(poke_kernel, (1,), zeros(4).expand(8, 4), 4)


def test_the_gap_between_pages_is_outside() -> None:
    pages = zeros(40).as_strided((4, 6), (10, 1))
    assert not found(poke_tile_kernel, (1,), pages, 3, 10, SIZE=4)
    assert "in the gap after row 2 of `out_ptr`" in found(poke_kernel, (1,), pages, 26)
    assert "in the gap after row 0 of `out_ptr`" in found(poke_tile_kernel, (1,), pages, 1, 3, SIZE=4)


def test_bytes_of_a_view_may_be_touched_as_another_type() -> None:
    assert not found(byte_kernel, (1,), zeros(4), 15)
    assert not found(words_kernel, (1,), zeros(4), 8)
    assert "right behind the end" in found(byte_kernel, (1,), zeros(4), 16)
    assert "reaching 4 bytes behind the end" in found(words_kernel, (1,), zeros(4), 12)
    assert "reaching 1 byte behind the end" in found(words_kernel, (1,), zeros(4), 9)


def table(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64)


def test_a_table_of_addresses_leads_into_registered_tensors() -> None:
    one, two = zeros(4), zeros(4)
    named = {"one": one, "two": two}
    assert not found_with(named, table_kernel, (1,), table(one, two), 1, 3)
    assert "behind the end of `two`" in found_with(named, table_kernel, (1,), table(one, two), 1, 4)
    assert two.tolist() == [0, 0, 0, 1]


def test_an_address_that_leads_into_the_next_tensor_is_outside() -> None:
    memory = zeros(8)
    named = {"one": memory[:4], "two": memory[4:]}
    words = found_with(named, table_kernel, (1,), table(memory[:4]), 0, 5)
    assert "behind the end of `one`, in `two` instead" in words
    assert found_with(named, table_tile_kernel, (1,), table(memory, memory[4:]), 4, SIZE=2)
    assert not found_with(named, table_tile_kernel, (1,), table(memory, memory[4:]), 3, SIZE=2)


def test_an_address_of_nobody_is_outside() -> None:
    words = found(table_kernel, (1,), table(zeros(4)), 0, 0)
    assert "an address that no known tensor contains" in words


def test_tensors_that_start_together_are_all_possible() -> None:
    memory = zeros(8)
    named = {"front": memory[:4], "all": memory}
    assert not found_with(named, table_kernel, (1,), table(memory), 0, 7)
    assert found_with(named, table_kernel, (1,), table(memory), 0, 8)


def test_an_address_in_the_middle_of_a_registered_tensor_leads_there() -> None:
    memory = zeros(8)
    assert not found_with({"all": memory}, table_kernel, (1,), table(memory[3:]), 0, 4)


def test_what_has_lost_its_origin_may_touch_any_known_tensor() -> None:
    memory = zeros(8)
    named = {"one": memory[:4], "two": memory[4:]}
    assert not found_with(named, loses_its_origin_kernel, (1,), table(memory), 5, 5, 5)
    assert found_with(named, loses_its_origin_kernel, (1,), table(memory), 8, 5, 5)


def test_a_choice_between_two_pointers_keeps_the_view_of_each() -> None:
    memory = zeros(16)
    one, two = memory[:8], memory[8:]
    assert not found(select_kernel, (1,), one, two, 4, 4, SIZE=8)
    assert "of `b_ptr`" in found(select_kernel, (1,), one, two, 4, 5, SIZE=8)
    assert "before the start of `b_ptr`, in `a_ptr` instead" in found(
        select_kernel, (1,), one, two, 4, -1, SIZE=8
    )


def test_a_pointer_keeps_its_view_through_every_change_of_shape() -> None:
    assert not found(turned_kernel, (1,), zeros(8), 0, ROWS=2, COLUMNS=4)
    assert "behind the end of `out_ptr`" in found(turned_kernel, (1,), zeros(9)[:8], 1, ROWS=2, COLUMNS=4)


def test_a_descriptor_that_claims_more_rows_than_there_are_is_found() -> None:
    memory = zeros(8, 16)
    assert not found(descriptor_kernel, (1,), memory[:3], zeros(4, 16), 3, COLUMNS=16)
    words = found(descriptor_kernel, (1,), memory[:3], zeros(4, 16), 4, COLUMNS=16)
    assert "as element [3, 0], right behind the end of `in_ptr`" in words


def test_a_tensor_in_a_tuple_is_named_by_its_place() -> None:
    assert not found(tuple_kernel, (1,), (zeros(4), zeros(4)), 3)
    assert "behind the end of `tensors[1]`" in found(tuple_kernel, (1,), (zeros(4), zeros(4)), 4)


def test_a_forgotten_tensor_is_unknown() -> None:
    one = zeros(4)
    with sanitize() as watch:
        watch.register(one, "one")
        watch.forget(one)
        with pytest.raises(OutsideView, match="no known tensor"):
            table_kernel[(1,)](table(one), 0, 0)
        with pytest.raises(ValueError, match=r"should be a registered one \[forget\]"):
            watch.forget(one)
