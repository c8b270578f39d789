"""Bytes that nobody has written are not read, and bytes that were handed back are not touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.kernels.orders.schedule import program_schedule
from properties.sanitizer import Finding, FreedBlock, Sanitizer, UnwrittenRead, sanitize

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def copy_kernel(in_ptr, out_ptr, count, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    mask = places < count
    tl.store(out_ptr + places, tl.load(in_ptr + places, mask=mask), mask=mask)


@triton.jit
def add_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    tl.atomic_add(sum_ptr, 1)


@triton.jit
def byte_kernel(in_ptr, out_ptr, place):  # type: ignore[no-untyped-def]
    tl.store(out_ptr.to(tl.pointer_type(tl.uint8)) + place, tl.load(in_ptr))


def ints(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.int32)


def copy(source: torch.Tensor, target: torch.Tensor, count: int) -> None:
    copy_kernel[(-(-count // 4),)](source, target, count, SIZE=4)


def finding(
    tell: Callable[[Sanitizer], None], *launches: Callable[[], Any], schedule: str = ""
) -> Finding | None:
    with sanitize() as watch, program_schedule(schedule):
        tell(watch)
        try:
            for launch in launches:
                launch()
        except Finding as found:
            return found
    return None


@pytest.mark.parametrize("schedule", ["", "reversed", "shuffled:2", "interleaved:2"])
def test_a_read_of_what_nobody_has_written_is_found(schedule: str) -> None:
    memory = ints(8)
    found = finding(
        lambda watch: watch.unwritten(memory[6:]), lambda: copy(memory, ints(8), 8), schedule=schedule
    )
    assert isinstance(found, UnwrittenRead)
    assert "loads element [6] of `in_ptr`" in str(found)


def test_lanes_that_are_masked_out_read_nothing() -> None:
    memory = ints(8)
    assert not finding(lambda watch: watch.unwritten(memory[6:]), lambda: copy(memory, ints(8), 6))


def test_what_a_kernel_has_stored_is_written() -> None:
    memory = ints(8)
    launches = (
        lambda: copy(ints(8), memory, 6),
        lambda: copy(memory, ints(8), 6),
        lambda: copy(memory, ints(8), 7),
    )
    assert not finding(lambda watch: watch.unwritten(memory), *launches[:2])
    assert "element [6]" in str(finding(lambda watch: watch.unwritten(memory), *launches))


def test_what_the_host_has_written_is_written() -> None:
    memory = ints(8)

    def tell(watch: Sanitizer) -> None:
        watch.unwritten(memory)
        watch.written(memory[:4])

    assert not finding(tell, lambda: copy(memory, ints(8), 4))
    assert "element [4]" in str(finding(tell, lambda: copy(memory, ints(8), 5)))


def test_what_is_handed_out_anew_is_unwritten_again() -> None:
    memory = ints(8)
    with sanitize() as watch:
        watch.unwritten(memory)
        copy(ints(8), memory, 8)
        watch.unwritten(memory[::2])
        with pytest.raises(UnwrittenRead, match=r"element \[0\]"):
            copy(memory, ints(8), 8)
        watch.written(memory[0])
        with pytest.raises(UnwrittenRead, match=r"element \[2\]"):
            copy(memory, ints(8), 8)


def test_one_byte_of_an_element_is_not_the_element() -> None:
    memory, byte = ints(2), torch.zeros(1, dtype=torch.uint8)
    launches = [lambda place=place: byte_kernel[(1,)](byte, memory, place) for place in range(4)]
    assert finding(lambda watch: watch.unwritten(memory), *launches[:3], lambda: copy(memory, ints(2), 1))
    assert not finding(lambda watch: watch.unwritten(memory), *launches, lambda: copy(memory, ints(2), 1))


def test_an_atomic_reads_what_it_changes() -> None:
    memory = ints(1)
    found = finding(lambda watch: watch.unwritten(memory), lambda: add_kernel[(1,)](memory))
    assert isinstance(found, UnwrittenRead)
    assert found.access.kind == "atomic"


def test_a_view_of_gigabytes_costs_nothing_until_something_is_stored() -> None:
    huge = torch.empty(6 << 30, dtype=torch.uint8)
    tail = huge[-8:].view(torch.int32)
    with sanitize() as watch:
        watch.unwritten(huge)
        copy(ints(2), tail, 2)
        copy(tail, ints(2), 2)
        with pytest.raises(UnwrittenRead):
            copy(huge[:8].view(torch.int32), ints(2), 2)


def test_marked_memory_is_kept_alive() -> None:
    with sanitize() as watch:
        address = (memory := ints(1000)).data_ptr()
        watch.unwritten(memory)
        del memory
        assert address not in [ints(1000).data_ptr() for _ in range(20)]


@pytest.mark.parametrize("schedule", ["", "reversed", "shuffled:2", "interleaved:2"])
def test_a_freed_block_is_neither_read_nor_written(schedule: str) -> None:
    blocks = ints(8)
    for launch in (lambda: copy(blocks, ints(8), 8), lambda: copy(ints(8), blocks, 8)):
        found = finding(lambda watch: watch.free(blocks[4:]), launch, schedule=schedule)
        assert isinstance(found, FreedBlock)
        assert found.access.index == (4,)
    assert not finding(
        lambda watch: watch.free(blocks[4:]), lambda: copy(blocks, ints(8), 4), schedule=schedule
    )


def test_the_message_says_whose_block_it_was_and_why_it_is_free() -> None:
    blocks = ints(8)

    def tell(watch: Sanitizer) -> None:
        watch.own(blocks[4:], "request 7", "of its prefix")
        watch.free(blocks[4:], "request 7 has ended")

    words = str(finding(tell, lambda: copy(blocks, ints(8), 8)))
    assert "these bytes of request 7 were freed: request 7 has ended" in words


def test_a_block_with_a_new_owner_is_free_no_longer() -> None:
    blocks = ints(8)

    def tell(watch: Sanitizer) -> None:
        watch.free(blocks)
        watch.own(blocks[:4], "request 8")

    assert not finding(tell, lambda: copy(blocks, ints(8), 4))
    assert finding(tell, lambda: copy(blocks, ints(8), 5))


def test_a_message_about_unwritten_bytes_names_their_owner() -> None:
    blocks = ints(8)

    def tell(watch: Sanitizer) -> None:
        watch.unwritten(blocks)
        watch.own(blocks[:4], "block 1 of layer 0", "running state of request 3")

    words = str(finding(tell, lambda: copy(blocks, ints(8), 1)))
    assert words.endswith("nobody has written it yet (block 1 of layer 0, running state of request 3)")


def test_bytes_of_a_freed_page_leave_its_gaps_alone() -> None:
    memory = ints(40)
    pages = memory.as_strided((4, 6), (10, 1))
    assert not finding(lambda watch: watch.free(pages), lambda: copy(memory[6:10], ints(4), 4))
    assert finding(lambda watch: watch.free(pages), lambda: copy(memory[5:10], ints(4), 4))
