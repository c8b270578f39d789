"""Every interleaving of a small launch is run once up to equivalence: as many as brute force finds, and all that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from properties.harness.kernels import launch as launching
from properties.harness.kernels.courses import MayGoOn, Turns
from properties.harness.kernels.interleavings import Footprints, Walk, every_interleaving, search
from properties.harness.kernels.launch import Launched
from properties.harness.kernels.memory import Memory
from properties.harness.kernels.recording import RecordingMemory, raw_bytes
from properties.harness.kernels.schedule import program_schedule, run_interleaved
from properties.harness.kernels.tiles import AssertionFailedError

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def lost_update_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    tl.store(sum_ptr, tl.load(sum_ptr) * 2 + tl.program_id(0))


@triton.jit
def apart_kernel(out_ptr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, tl.load(out_ptr + program) + 1)


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


def launched(name: str, do: Callable[[Launched], Any]) -> Any:
    """What `do` says of the launch of a toy, in place of which it comes."""
    kernel, programs, arguments, constants = TOYS[name]
    found = []
    before = launching.STATE.runner
    launching.STATE.runner = lambda launch, _: found.append(do(launch))
    try:
        kernel[(programs,)](*arguments(), **constants)
    finally:
        launching.STATE.runner = before
    return found[0]


Class = frozenset[Any]


def brute(launch: Launched) -> tuple[set[Class], set[bytes], int]:
    """The classes of all interleavings, and what they leave: every choice that there is at every operation."""
    classes, left, runs = set[Class](), set[bytes](), 0
    waiting: list[list[int]] = [[]]
    footprints = Footprints()
    while waiting:
        prefix = waiting.pop()
        made: list[int] = []

        def course(running: int | None, ready: MayGoOn) -> int:  # noqa: ARG001
            at, able = len(made), list(ready.all())
            if at < len(prefix):
                made.append(prefix[at])
            else:
                waiting.extend([*made, other] for other in able[1:])
                made.append(able[0])
            return made[-1]

        memory = RecordingMemory()
        run_interleaved(launch, memory, Turns(course))
        runs += 1
        classes.add(dependencies(made, [footprints.of(one) for one in memory.operations], footprints))
        written = memory.written()
        now = raw_bytes(written)
        memory.take_back()
        changed = now != raw_bytes(written)
        left.add(written[changed].tobytes() + now[changed].tobytes())
    return classes, left, runs


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
        if programs[first] == programs[second] or footprints.conflict(touched[first], touched[second])
    )


def all_found(launch: Launched) -> list[tuple[tuple[int, ...], bytes]]:
    return [(one.choices, one.addresses.tobytes() + one.left.tobytes()) for one in Walk(launch, 999).runs()]


@pytest.mark.parametrize("name", TOYS)
def test_there_are_as_many_interleavings_as_brute_force_finds_and_they_leave_the_same(name: str) -> None:
    classes, left, runs = launched(name, brute)
    found = launched(name, all_found)
    print(f"{name}: {len(found)} of {runs} interleavings")
    assert len(found) == len(classes)
    assert len({data for _, data in found}) == len(left)
    assert len({choices for choices, _ in found}) == len(found)


def searched(name: str) -> Any:
    return launched(name, search)


def test_a_difference_is_told_with_the_schedule_that_shows_it() -> None:
    found = searched("lost update, 2")
    total = zeros()
    (again,) = every_interleaving(lambda: lost_update_kernel[(2,)](total))
    assert int(total[0]) == 1, "the launch itself is made in the plain order"
    assert again.different == found.different != ""
    assert again.address == total.data_ptr()
    other = zeros()
    with program_schedule(again.different):
        lost_update_kernel[(2,)](other)
    assert int(other[0]) != 1


def test_without_a_difference_all_classes_are_run() -> None:
    (found,) = every_interleaving(lambda: apart_kernel[(5,)](zeros()))
    assert (found.classes, found.complete, found.different, found.operations) == (1, True, "", 10)


def test_memory_is_afterwards_as_it_was() -> None:
    total = torch.arange(16, dtype=torch.int32)
    before = total.clone()
    launched_on = launching.STATE.runner
    launching.STATE.runner = lambda launch, _: search(launch)
    try:
        lost_update_kernel[(3,)](total)
    finally:
        launching.STATE.runner = launched_on
    assert torch.equal(total, before)


def test_limits_are_told() -> None:
    few = launched("atomic, 4", lambda launch: search(launch, most=1))
    assert (few.classes, few.complete) == (1, False)
    all_of_them = launched("apart, 4", lambda launch: search(launch, most=1))
    assert (all_of_them.classes, all_of_them.complete) == (1, True)
    short = launched("apart, 4", lambda launch: search(launch, most_operations=3))
    assert not short.complete


def test_a_program_that_waits_for_another_one_is_cut_short() -> None:
    found = []
    before = launching.STATE.runner
    launching.STATE.runner = lambda launch, _: found.append(search(launch, most_operations=50))
    try:
        waiting_kernel[(2,)](zeros())
    finally:
        launching.STATE.runner = before
    assert not found[0].complete


def test_an_interleaving_in_which_the_launch_fails_is_a_difference() -> None:
    (found,) = every_interleaving(lambda: asserting_kernel[(2,)](zeros()))
    assert found.different == "switches:0>1"
    with pytest.raises(AssertionFailedError), program_schedule(found.different):
        asserting_kernel[(2,)](zeros())
