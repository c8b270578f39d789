"""Programs of a launch that touch the same bytes need atomics that order them, and those that have them are left alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import triton
import triton.language as tl

from tests.unit.kernels.order_toys import drawn_switches, lost_update_kernel
from tests.unit.kernels.watching import found, zeros

pytestmark = pytest.mark.usefixtures("executed")

SCHEDULES = ("", "reversed", "switches:0>2,3>0", *map(drawn_switches, range(6)))
BOTH = "nothing orders the two"


@triton.jit
def counting_kernel(sum_ptr, SEM: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.atomic_add(sum_ptr, 1, sem=SEM)


@triton.jit
def fill_kernel(out_ptr, stride, SIZE: tl.constexpr, EQUAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Programs store one value, or each its own; or the last one stores its own first."""
    value = 1 if EQUAL else 1 + tl.program_id(0)
    places = out_ptr + tl.program_id(0) * stride + tl.arange(0, SIZE)
    if EQUAL == 2 and tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(places, 7, mask=tl.arange(0, SIZE) > 0)
    tl.store(places, value)


@triton.jit
def last_block_kernel(parts_ptr, done_ptr, out_ptr, ATOMIC: tl.constexpr, SEM: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    """Every program writes a part; the last one to finish adds them up."""
    tl.store(parts_ptr + tl.program_id(0), tl.program_id(0))
    if ATOMIC:
        done = tl.atomic_add(done_ptr, 1, sem=SEM)
    else:
        done = tl.load(done_ptr)
        tl.store(done_ptr, done + 1)
        tl.debug_barrier()
    if done == tl.num_programs(0) - 1:
        parts = tl.load(parts_ptr + tl.arange(0, SIZE))
        tl.store(out_ptr, tl.sum(parts))
        tl.store(done_ptr, 0)


@triton.jit
def ticket_kernel(counter_ptr, out_ptr, tickets, SEM: tl.constexpr, DRAWN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Tickets from a counter; who draws the last of them clears it."""
    program = tl.program_id(0)
    ticket = program
    while ticket < tickets:
        tl.store(out_ptr + ticket, program)
        drawn = tl.atomic_add(counter_ptr, 1, sem=SEM)
        if drawn == DRAWN:
            tl.store(counter_ptr, 0)
        ticket = tl.num_programs(0) + drawn


@triton.jit
def lock_kernel(lock_ptr, sum_ptr, LOCKED: tl.constexpr):  # type: ignore[no-untyped-def]
    if LOCKED:
        while tl.atomic_cas(lock_ptr, 0, 1, sem="acquire") != 0:
            pass
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)
    if LOCKED:
        tl.atomic_xchg(lock_ptr, 0, sem="release")


@triton.jit
def message_kernel(flag_ptr, text_ptr, out_ptr, GIVE: tl.constexpr, TAKE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first program writes a message and raises a flag; the others read it once they see the flag."""
    if tl.program_id(0) == 0:
        tl.store(text_ptr, 7)
        tl.atomic_xchg(flag_ptr, 1, sem=GIVE)
    elif tl.atomic_add(flag_ptr, 0, sem=TAKE) == 1:
        tl.store(out_ptr + tl.program_id(0), tl.load(text_ptr))


@triton.jit
def flag_kernel(flag_ptr, text_ptr, out_ptr, GIVE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same as `message_kernel`, with atomics that only store and only load."""
    if tl.program_id(0) == 0:
        tl.store(text_ptr, 7)
        tl.atomic_store(flag_ptr, 1, sem=GIVE)
    elif tl.atomic_load(flag_ptr) == 1:
        tl.store(out_ptr + tl.program_id(0), tl.load(text_ptr))


@triton.jit
def after_the_reset_kernel(counter_ptr):  # type: ignore[no-untyped-def]
    """The first program resets a counter that the others go on drawing from: nothing orders the two."""
    if tl.program_id(0) == 0:
        tl.store(counter_ptr, 0)
    else:
        tl.atomic_add(counter_ptr, 1, sem="relaxed")


@triton.jit
def peek_kernel(flag_ptr, out_ptr, STORE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first program looks, or writes, atomically at what the others load."""
    program = tl.program_id(0)
    if program > 0:
        tl.store(out_ptr + program, tl.load(flag_ptr))
    elif STORE:
        tl.atomic_store(flag_ptr, 1)
    else:
        tl.store(out_ptr, tl.atomic_load(flag_ptr))


@triton.jit
def masked_kernel(flags_ptr, out_ptr, active, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    mask = lanes < active
    tl.atomic_store(flags_ptr + lanes, lanes + 1, mask=mask)
    tl.debug_barrier()
    tl.store(out_ptr + lanes, tl.atomic_load(flags_ptr + lanes, mask=mask), mask=mask)


@triton.jit
def wait_kernel(flag_ptr, text_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """The others wait for the flag, and need no more to read the message."""
    if tl.program_id(0) == 0:
        tl.store(text_ptr, 7)
        tl.atomic_store(flag_ptr, 1)
    else:
        tl.atomic_poll(flag_ptr, 1)
        tl.store(out_ptr + tl.program_id(0), tl.load(text_ptr))


@dataclass(frozen=True)
class Programs:
    """A launch of programs that share memory.

    Args:
        tensors: sizes of its arguments, all zeros.
        race: a part of what is found, "" where programs are ordered.
        leaves: what the tensors hold afterwards, by number.
    """

    kernel: Any
    programs: int
    tensors: tuple[int, ...]
    race: str = ""
    constants: dict[str, Any] | None = None
    scalars: tuple[int, ...] = ()
    leaves: dict[int, list[int]] | None = None

    def check(self, schedule: str) -> None:
        tensors = [zeros(size) for size in self.tensors]
        arguments = (*tensors, *self.scalars)
        race = found(self.kernel, self.programs, *arguments, schedule=schedule, **(self.constants or {}))
        assert (race.startswith("RaceBetweenPrograms") and self.race in race) if self.race else not race
        for number, left in (self.leaves or {}).items():
            assert tensors[number].tolist() == left


def last_block(sem: str, race: str = "", *, atomic: bool = True) -> Programs:
    leaves = None if race else {1: [0], 2: [28]}
    constants = {"ATOMIC": atomic, "SEM": sem, "SIZE": 8}
    return Programs(last_block_kernel, 8, (8, 1, 1), race, constants, leaves=leaves)


def ticket(sem: str, drawn: int, race: str = "") -> Programs:
    constants = {"SEM": sem, "DRAWN": drawn}
    return Programs(ticket_kernel, 3, (1, 12), race, constants, (9,), None if race else {0: [0]})


def message(give: str, take: str, race: str = "") -> Programs:
    return Programs(message_kernel, 3, (1, 1, 3), race, {"GIVE": give, "TAKE": take})


LAUNCHES = {
    "an update in two accesses": Programs(lost_update_kernel, 3, (1,), BOTH),
    "the same by a single program": Programs(lost_update_kernel, 1, (1,)),
    **{
        f"atomic updates, {sem}": Programs(counting_kernel, 5, (1,), "", {"SEM": sem})
        for sem in ("relaxed", "acquire", "release", "acq_rel")
    },
    "bytes of its own": Programs(fill_kernel, 4, (16,), "", {"SIZE": 4, "EQUAL": False}, (4,)),
    "equal values at the same bytes": Programs(fill_kernel, 2, (14,), "", {"SIZE": 8, "EQUAL": True}, (6,)),
    "equal values of five programs": Programs(fill_kernel, 5, (8,), "", {"SIZE": 8, "EQUAL": True}, (0,)),
    "another value before": Programs(fill_kernel, 3, (8,), "", {"SIZE": 8, "EQUAL": 2}, (0,)),
    "other values at the same bytes": Programs(
        fill_kernel, 2, (14,), "stores element [6] of `out_ptr`", {"SIZE": 8, "EQUAL": False}, (6,)
    ),
    "the last to finish reads what the others published": last_block("acq_rel"),
    **{
        f"the last to finish after {sem} atomics": last_block(sem, "of `parts_ptr`")
        for sem in ("relaxed", "acquire", "release")
    },
    "the last to finish by a plain count": last_block("acq_rel", BOTH, atomic=False),
    "the last ticket clears the counter": ticket("relaxed", 8),
    "the same, acq_rel": ticket("acq_rel", 8),
    "the last but one clears the counter": ticket("relaxed", 7, BOTH),
    "the same for that, acq_rel": ticket("acq_rel", 7, BOTH),
    "under a lock": Programs(lock_kernel, 4, (1, 1), "", {"LOCKED": True}, leaves={1: [4]}),
    "without the lock": Programs(lock_kernel, 4, (1, 1), BOTH, {"LOCKED": False}),
    "a plain store among atomics of others": Programs(after_the_reset_kernel, 3, (1,), BOTH),
}
IN_PLAIN_ORDER = {
    "a message with release and acquire": message("release", "acquire"),
    "a message with relaxed and acquire": message("relaxed", "acquire", BOTH),
    "a message with release and relaxed": message("release", "relaxed", BOTH),
    "a message with acq_rel": message("acq_rel", "acq_rel"),
}
if hasattr(tl, "atomic_load"):
    IN_PLAIN_ORDER |= {
        "an atomic store publishes, and an atomic load takes over": Programs(
            flag_kernel, 3, (1, 1, 3), "", {"GIVE": "release"}
        ),
        "a relaxed one does not": Programs(flag_kernel, 3, (1, 1, 3), BOTH, {"GIVE": "relaxed"}),
        "an atomic load writes nothing": Programs(peek_kernel, 3, (1, 3), "", {"STORE": False}),
        "an atomic store does": Programs(peek_kernel, 3, (1, 3), BOTH, {"STORE": True}),
    }


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", LAUNCHES)
def test_programs_race_unless_atomics_order_them_in_every_order(name: str, schedule: str) -> None:
    LAUNCHES[name].check(schedule)


@pytest.mark.parametrize("name", IN_PLAIN_ORDER)
def test_a_reader_of_a_flag_is_ordered_by_its_release_and_acquire(name: str) -> None:
    IN_PLAIN_ORDER[name].check("")


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="this version has no atomic loads and stores")
def test_masked_lanes_of_atomic_loads_and_stores_touch_nothing() -> None:
    flags, out = zeros(4), zeros(4)
    assert not found(masked_kernel, 1, flags[:3], out[:3], 3, SIZE=4)
    assert (flags.tolist(), out.tolist()) == ([1, 2, 3, 0], [1, 2, 3, 0])


@pytest.mark.skipif(not hasattr(tl, "atomic_poll"), reason="this version has no polls")
@pytest.mark.parametrize("schedule", ["", "switches:1>1,1>0,2>2", "switches:2>1,1>2,1>0"])
def test_a_program_that_waits_for_a_flag_has_what_was_published_with_it(schedule: str) -> None:
    Programs(wait_kernel, 3, (1, 1, 3), leaves={2: [0, 7, 7]}).check(schedule)
