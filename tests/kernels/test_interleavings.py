"""Every interleaving of a small launch is run once up to equivalence: as many as brute force finds, and all that they leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels import launch as launching
from statecheck.kernels.launch import Launched
from statecheck.kernels.memory import Memory
from statecheck.kernels.observed import ObservedMemory
from statecheck.kernels.orders.footprints import Footprints, LastFootprint
from statecheck.kernels.orders.interleavings import Walk, first_difference
from statecheck.kernels.orders.journal import Journal, WrittenBytes, read_bytes
from statecheck.kernels.orders.program_choice import Ready, Turns
from statecheck.kernels.orders.running import run_interleaved
from statecheck.kernels.orders.schedule import program_schedule
from statecheck.kernels.sanitizer.touches import Touch
from statecheck.kernels.source.tiles import AssertionFailedError

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def lost_update_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    tl.store(sum_ptr, tl.load(sum_ptr) * 2 + tl.program_id(0))


@triton.jit
def apart_kernel(out_ptr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, tl.load(out_ptr + program) + 1)


@triton.jit
def idle_kernel(out_ptr):  # type: ignore[no-untyped-def]
    """All programs but the first end without an operation."""
    if tl.program_id(0) == 0:
        tl.store(out_ptr, tl.load(out_ptr) + 1)


@triton.jit
def atomic_kernel(sum_ptr, order_ptr):  # type: ignore[no-untyped-def]
    tl.store(order_ptr + tl.program_id(0), tl.atomic_add(sum_ptr, 1))


@triton.jit
def ring_kernel(out_ptr):  # type: ignore[no-untyped-def]
    """Each program writes its element and reads that of the next one."""
    program, count = tl.program_id(0), tl.num_programs(0)
    tl.store(out_ptr + program, program + 1)
    tl.store(out_ptr + count + program, tl.load(out_ptr + (program + 1) % count))


@triton.jit
def turns_kernel(flag_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """What a program does next depends on what it has read."""
    program = tl.program_id(0)
    if tl.load(flag_ptr) == 0:
        tl.store(flag_ptr, program + 1)
        tl.store(out_ptr + program, tl.load(flag_ptr))
    else:
        tl.atomic_max(flag_ptr, 9)


@triton.jit
def tiles_kernel(out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Tiles of neighbours overlap in part."""
    lanes = tl.program_id(0) * 2 + tl.arange(0, SIZE)
    tl.store(out_ptr + lanes, tl.load(out_ptr + lanes) + lanes)


@triton.jit
def lock_kernel(lock_ptr, sum_ptr):  # type: ignore[no-untyped-def]
    """Who finds the lock taken leaves."""
    if tl.atomic_cas(lock_ptr, 0, 1) == 0:
        tl.store(sum_ptr, tl.load(sum_ptr) + 1)
        tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def waiting_kernel(flag_ptr):  # type: ignore[no-untyped-def]
    if tl.program_id(0) == 0:
        while tl.atomic_add(flag_ptr, 0) == 0:
            pass
    else:
        tl.store(flag_ptr, 1)


@triton.jit(debug=True)
def asserting_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    """The first program must not see what the second one leaves."""
    found = tl.load(sum_ptr)
    tl.device_assert((found == 0) | (tl.program_id(0) == 1), "late")
    if tl.program_id(0) == 1:
        tl.store(sum_ptr, 1)


def zeros(size: int = 16) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32)


TOYS: dict[str, tuple[Any, int, Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "lost update, 2": (lost_update_kernel, 2, lambda: (zeros(),), {}),
    "lost update, 3": (lost_update_kernel, 3, lambda: (zeros(),), {}),
    "lost update, 4": (lost_update_kernel, 4, lambda: (zeros(),), {}),
    "apart, 4": (apart_kernel, 4, lambda: (zeros(),), {}),
    "atomic, 3": (atomic_kernel, 3, lambda: (zeros(), zeros()), {}),
    "atomic, 4": (atomic_kernel, 4, lambda: (zeros(), zeros()), {}),
    "ring, 2": (ring_kernel, 2, lambda: (zeros(),), {}),
    "ring, 3": (ring_kernel, 3, lambda: (zeros(),), {}),
    "turns, 2": (turns_kernel, 2, lambda: (zeros(), zeros()), {}),
    "tiles, 3": (tiles_kernel, 3, lambda: (zeros(),), {"SIZE": 4}),
    "lock, 3": (lock_kernel, 3, lambda: (zeros(), zeros()), {}),
}


def in_place_of_launches(do: Callable[[Launched], Any], call: Callable[[], object]) -> list[Any]:
    """What `do` says of each launch that a call makes."""
    found: list[Any] = []

    def runner(launch: Launched, memory: Memory) -> None:  # noqa: ARG001
        found.append(do(launch))

    with launching.running(runner=runner):
        call()
    return found


def launched(name: str, do: Callable[[Launched], Any]) -> Any:
    """What `do` says of the launch of a toy."""
    kernel, programs, arguments, constants = TOYS[name]
    (found,) = in_place_of_launches(do, lambda: kernel[(programs,)](*arguments(), **constants))
    return found


Class = frozenset[Any]


def brute(launch: Launched) -> tuple[set[Class], set[bytes], int]:
    """The classes of all interleavings, and what they leave: every choice that there is at every operation."""
    classes, left, runs = set[Class](), set[bytes](), 0
    waiting: list[list[int]] = [[]]
    footprints = Footprints()
    while waiting:
        journal, last = Journal(), LastFootprint(footprints)
        course = Choosing(waiting.pop(), waiting, last)
        run_interleaved(launch, ObservedMemory(journal, last), Turns(course))
        runs += 1
        classes.add(dependencies(course.made, [*course.touched[1:], last.number], footprints))
        left.add(held(journal.take_back()))
    return classes, left, runs


class Choosing:
    """Goes on by a prefix of choices, then by the first program that can; the other choices are kept for later runs."""

    def __init__(self, prefix: list[int], waiting: list[list[int]], last: LastFootprint) -> None:
        self.prefix, self.waiting, self.last = prefix, waiting, last
        self.made: list[int] = []
        self.touched: list[int] = []

    def __call__(self, running: int | None, ready: Ready) -> int:  # noqa: ARG002
        self.touched.append(self.last.number)
        at, able = len(self.made), list(ready.all())
        if at >= len(self.prefix):
            self.waiting.extend([*self.made, other] for other in able[1:])
        self.made.append(self.prefix[at] if at < len(self.prefix) else able[0])
        return self.made[-1]


def dependencies(programs: list[int], touched: list[int], footprints: Footprints) -> Class:
    """Which operation comes before which other one, of all that conflict, or are of one program."""
    counts: dict[int, int] = {}
    names = []
    for program in programs:
        counts[program] = counts.get(program, 0) + 1
        names.append((program, counts[program]))
    return frozenset(
        (names[first], names[second], touched[first], touched[second])
        for second in range(len(names))
        for first in range(second)
        if programs[first] == programs[second] or touched[first] in footprints.conflicts[touched[second]]
    )


def held(left: WrittenBytes) -> bytes:
    """Where bytes are not as they were before, and what they hold: memory is as before."""
    changed = left.contents != read_bytes(left.addresses)
    return left.addresses[changed].tobytes() + left.contents[changed].tobytes()


def all_found(launch: Launched) -> list[tuple[tuple[int, ...], bytes]]:
    return [(one.choices, held(one.left)) for one in Walk(launch).runs()]


@pytest.mark.parametrize("name", TOYS)
def test_interleavings_are_as_many_as_brute_force_finds_and_leave_the_same(name: str) -> None:
    classes, left, runs = launched(name, brute)
    found = launched(name, all_found)
    print(f"{name}: {len(found)} of {runs} interleavings")
    assert len(found) == len(classes)
    assert len({data for _, data in found}) == len(left)
    assert len({choices for choices, _ in found}) == len(found)


def different(launch: Launched) -> str:
    return first_difference(launch, most=1_000)


def test_a_difference_is_told_with_the_schedule_that_shows_it() -> None:
    schedule = launched("lost update, 2", different)
    assert schedule != ""
    other = zeros()
    with program_schedule(schedule):
        lost_update_kernel[(2,)](other)
    assert int(other[0]) != 1


def test_programs_that_share_nothing_have_one_interleaving() -> None:
    (found,) = in_place_of_launches(all_found, lambda: apart_kernel[(5,)](zeros()))
    assert [len(choices) for choices, _ in found] == [10]


def test_memory_is_afterwards_as_it_was() -> None:
    total = torch.arange(16, dtype=torch.int32)
    before = total.clone()
    in_place_of_launches(different, lambda: lost_update_kernel[(3,)](total))
    assert torch.equal(total, before)


def test_no_more_interleavings_are_run_than_asked_for() -> None:
    assert launched("lost update, 2", lambda launch: first_difference(launch, most=1)) == ""
    assert launched("lost update, 2", lambda launch: first_difference(launch, 9, most_operations=5)) == ""


def test_a_program_that_waits_for_another_one_is_cut_short() -> None:
    (found,) = in_place_of_launches(
        lambda launch: list(Walk(launch, 50).runs()), lambda: waiting_kernel[(2,)](zeros())
    )
    assert found[0].cut_short


def test_a_launch_that_fails_in_every_interleaving_ends_the_search() -> None:
    assert in_place_of_launches(different, lambda: asserting_kernel[(2,)](zeros() + 1)) == [""]


def test_an_interleaving_in_which_the_launch_fails_is_a_difference() -> None:
    (schedule,) = in_place_of_launches(different, lambda: asserting_kernel[(2,)](zeros()))
    assert schedule == "switches:0>1"
    with pytest.raises(AssertionFailedError), program_schedule(schedule):
        asserting_kernel[(2,)](zeros())


@pytest.mark.parametrize("programs", [1, 2, 3])
def test_programs_that_touch_nothing_have_one_interleaving(programs: int) -> None:
    (found,) = in_place_of_launches(all_found, lambda: idle_kernel[(programs,)](zeros()))
    assert len(found) == 1


def test_a_schedule_may_be_all_of_them_and_then_leaves_what_another_order_does() -> None:
    total = zeros()
    with program_schedule("every:100"):
        lost_update_kernel[(2,)](total)
    plain = zeros()
    lost_update_kernel[(2,)](plain)
    assert int(total[0]) != int(plain[0])


@pytest.mark.parametrize("programs", [2, 20])
def test_without_a_difference_or_in_a_large_launch_the_plain_order_is_left(programs: int) -> None:
    counts, lost, plain = zeros(32), zeros(), zeros()
    with program_schedule("every:100"):
        apart_kernel[(programs,)](counts)
        if programs == 20:
            lost_update_kernel[(programs,)](lost)
            lost_update_kernel[(programs,)](plain)
    assert torch.equal(lost, plain)
    assert counts.tolist() == [1] * programs + [0] * (32 - programs)


def test_elements_of_several_bytes_are_taken_back_whole() -> None:
    memory = np.arange(1, 5, dtype=np.int32)
    addresses = memory.ctypes.data + 4 * np.array([0, 2], np.int64)
    first, last = int(addresses[0]), int(addresses[-1]) + 4
    journal = Journal()
    journal.before(
        Touch("store", (0, 0, 0), ("kernel", 1), 4, addresses, first, last, None, (2,), None, writes=True)
    )
    memory[[0, 2]] = 0x01020304
    journal.take_back()
    assert memory.tolist() == [1, 2, 3, 4]
