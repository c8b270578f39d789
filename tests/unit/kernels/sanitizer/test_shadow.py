"""Unwritten bytes are not read, and freed bytes are not touched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from statecheck.sanitizer import Finding, FreedBlock, Sanitizer, UnwrittenRead, sanitize
from tests.helpers.toy_kernels import copy_kernel
from tests.unit.kernels.watching import finding, numbers

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def add_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    tl.atomic_add(sum_ptr, 1)


@triton.jit
def byte_kernel(in_ptr, out_ptr, place):  # type: ignore[no-untyped-def]
    tl.store(out_ptr.to(tl.pointer_type(tl.uint8)) + place, tl.load(in_ptr))


def copy(source: torch.Tensor, target: torch.Tensor, count: int) -> None:
    copy_kernel[(-(-count // 4),)](source, target, count, SIZE=4, MASKED=True)


@pytest.mark.parametrize("schedule", ["", "reversed", "switches:0>1", "switches:2>1,1>2,1>0"])
def test_a_read_of_unwritten_memory_is_found(schedule: str) -> None:
    memory = numbers(8)
    caught = finding(lambda: copy(memory, numbers(8), 8), lambda watch: watch.unwritten(memory[6:]), schedule)
    assert isinstance(caught, UnwrittenRead)
    assert "loads element [6] of `in_ptr`" in str(caught)


def written_by_the_host(watch: Sanitizer, memory: torch.Tensor) -> None:
    watch.unwritten(memory)
    watch.written(memory[:4])


def written_by_a_kernel(watch: Sanitizer, memory: torch.Tensor) -> None:
    watch.unwritten(memory)
    copy(numbers(8), memory, 6)


def handed_out_again(watch: Sanitizer, memory: torch.Tensor) -> None:
    watch.unwritten(memory)
    copy(numbers(8), memory, 8)
    watch.unwritten(memory[::2])
    watch.written(memory[0])


def given_to_a_new_owner(watch: Sanitizer, memory: torch.Tensor) -> None:
    watch.free(memory)
    watch.own(memory[:4], "request 8")


def with_three_bytes_written(watch: Sanitizer, memory: torch.Tensor) -> None:
    watch.unwritten(memory)
    for place in range(7):
        byte_kernel[(1,)](torch.zeros(1, dtype=torch.uint8), memory, place)


DECLARED: dict[str, tuple[Callable[[Sanitizer, torch.Tensor], object], int]] = {
    "masked lanes read nothing": (lambda watch, memory: watch.unwritten(memory[6:]), 6),
    "a kernel has stored it": (written_by_a_kernel, 6),
    "the host has written it": (written_by_the_host, 4),
    "it is handed out again": (handed_out_again, 2),
    "one byte of an element is not the element": (with_three_bytes_written, 1),
    "a block is freed": (lambda watch, memory: watch.free(memory[4:]), 4),
    "a block has a new owner": (given_to_a_new_owner, 4),
}
"""What is declared of eight elements, and which is the first that a kernel must not read."""


@pytest.mark.parametrize("name", DECLARED)
def test_the_first_element_that_must_not_be_read_is_named(name: str) -> None:
    declare, first = DECLARED[name]
    memory = numbers(8)

    def reads(count: int) -> Finding | None:
        return finding(lambda: copy(memory, numbers(8), count), lambda watch: declare(watch, memory))

    assert reads(first) is None
    assert f"element [{first}]" in str(reads(8))


def test_an_atomic_reads_what_it_changes() -> None:
    memory = numbers(1)
    caught = finding(lambda: add_kernel[(1,)](memory), lambda watch: watch.unwritten(memory))
    assert isinstance(caught, UnwrittenRead)
    assert caught.access.kind == "atomic"


def test_a_view_of_gigabytes_costs_nothing_until_something_is_stored() -> None:
    huge = torch.empty(6 << 30, dtype=torch.uint8)
    tail = huge[-8:].view(torch.int32)
    with sanitize() as watch:
        watch.unwritten(huge)
        copy(numbers(2), tail, 2)
        copy(tail, numbers(2), 2)
        with pytest.raises(UnwrittenRead):
            copy(huge[:8].view(torch.int32), numbers(2), 2)


def test_marked_memory_is_kept_alive() -> None:
    with sanitize() as watch:
        address = (memory := numbers(1000)).data_ptr()
        watch.unwritten(memory)
        del memory
        assert address not in [numbers(1000).data_ptr() for _ in range(20)]


@pytest.mark.parametrize("schedule", ["", "reversed", "switches:0>1", "switches:2>1,1>2,1>0"])
@pytest.mark.parametrize("reads", [False, True])
def test_a_freed_block_is_neither_read_nor_written(reads: bool, schedule: str) -> None:
    blocks = numbers(8)
    pair = (blocks, numbers(8)) if reads else (numbers(8), blocks)
    caught = finding(lambda: copy(*pair, 8), lambda watch: watch.free(blocks[4:]), schedule)
    assert isinstance(caught, FreedBlock)
    assert caught.access.index == (4,)


def test_a_message_names_the_owner_of_the_bytes_and_why_they_are_free() -> None:
    blocks = numbers(8)

    def freed(watch: Sanitizer) -> None:
        watch.own(blocks[4:], "request 7", "of its prefix")
        watch.free(blocks[4:], "request 7 has ended")

    def unwritten(watch: Sanitizer) -> None:
        watch.unwritten(blocks)
        watch.own(blocks[:4], "block 1 of layer 0", "running state of request 3")

    words = [str(finding(lambda: copy(blocks, numbers(8), 8), prepare)) for prepare in (freed, unwritten)]
    assert "these bytes of request 7 were freed: request 7 has ended" in words[0]
    assert words[1].endswith("(block 1 of layer 0, running state of request 3)")


def test_bytes_of_a_freed_page_leave_its_gaps_alone() -> None:
    memory = numbers(40)
    pages = memory.as_strided((4, 6), (10, 1))
    assert not finding(lambda: copy(memory[6:10], numbers(4), 4), lambda watch: watch.free(pages))
    assert finding(lambda: copy(memory[5:10], numbers(4), 4), lambda watch: watch.free(pages))
