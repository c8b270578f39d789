"""Programs of a launch that touch the same bytes need atomics that order them, and those that have them are left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.kernels.orders.schedule import program_schedule
from properties.sanitizer import RaceBetweenPrograms, sanitize

pytestmark = pytest.mark.usefixtures("executed")

SCHEDULES = ("", "reversed", "shuffled:1", *(f"interleaved:{seed}" for seed in range(6)))


@triton.jit
def lost_update_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)


@triton.jit
def counting_kernel(sum_ptr, SEM: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.atomic_add(sum_ptr, 1, sem=SEM)


@triton.jit
def fill_kernel(out_ptr, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + tl.program_id(0) * stride + tl.arange(0, SIZE), 1)


@triton.jit
def read_while_reset_kernel(counts_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """Every program reads the count, which the first of them resets."""
    count = tl.load(counts_ptr)
    if tl.program_id(0) == 0:
        tl.store(counts_ptr, 1)
    tl.store(out_ptr + tl.program_id(0), count)


@triton.jit
def scatter_kernel(blocks_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copies to the block that a table names: twice to the same one is a race."""
    block = tl.load(blocks_ptr + tl.program_id(0))
    tl.store(out_ptr + block * SIZE + tl.arange(0, SIZE), tl.program_id(0))


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
    """As `message_kernel`, with atomics that only store and only load."""
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


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def found(schedule: str, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constexprs: Any) -> str:
    with sanitize(), program_schedule(schedule):
        try:
            kernel[grid](*arguments, **constexprs)
        except RaceBetweenPrograms as finding:
            return str(finding)
    return ""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_update_in_two_accesses_is_a_race_in_every_order(schedule: str) -> None:
    assert "nothing orders the two" in found(schedule, lost_update_kernel, (3,), zeros(1))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
def test_atomic_updates_are_no_race(schedule: str, sem: str) -> None:
    assert not found(schedule, counting_kernel, (5,), zeros(1), SEM=sem)


def test_a_single_program_races_with_nobody() -> None:
    assert not found("", lost_update_kernel, (1,), zeros(1))


def test_programs_that_share_no_byte_are_no_race() -> None:
    assert not found("", fill_kernel, (4,), zeros(16), 4, SIZE=4)


def test_the_same_bytes_written_by_two_programs_are_a_race_even_if_the_values_are_equal() -> None:
    assert "stores element [6] of `out_ptr`" in found("", fill_kernel, (2,), zeros(16)[:14], 6, SIZE=8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_count_that_siblings_still_read_must_not_be_reset(schedule: str) -> None:
    words = found(schedule, read_while_reset_kernel, (4,), zeros(1), zeros(4))
    assert "program (0, 0, 0) of read_while_reset_kernel stores element [0] of `counts_ptr`" in words
    assert "loads it at test_races.py:" in words


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_copies_to_one_block_are_a_race(schedule: str) -> None:
    blocks = torch.tensor([2, 0, 2], dtype=torch.int32)
    assert found(schedule, scatter_kernel, (3,), blocks, zeros(12), SIZE=4)
    assert not found(
        schedule, scatter_kernel, (3,), torch.tensor([2, 0, 1], dtype=torch.int32), zeros(12), SIZE=4
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_last_to_finish_may_read_what_all_others_published(schedule: str) -> None:
    parts = zeros(8), zeros(1), zeros(1)
    assert not found(schedule, last_block_kernel, (8,), *parts, ATOMIC=True, SEM="acq_rel", SIZE=8)
    assert parts[2].tolist() == [28]
    assert parts[1].tolist() == [0]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release"])
def test_an_atomic_that_does_not_both_publish_and_take_over_orders_nothing(schedule: str, sem: str) -> None:
    parts = zeros(8), zeros(1), zeros(1)
    words = found(schedule, last_block_kernel, (8,), *parts, ATOMIC=True, SEM=sem, SIZE=8)
    assert "of `parts_ptr`" in words


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_plain_count_of_those_that_are_done_is_a_race(schedule: str) -> None:
    assert found(
        schedule, last_block_kernel, (8,), zeros(8), zeros(1), zeros(1), ATOMIC=False, SEM="acq_rel", SIZE=8
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sem", ["relaxed", "acq_rel"])
def test_who_draws_the_last_ticket_may_clear_the_counter(schedule: str, sem: str) -> None:
    counter, out = zeros(1), zeros(9)
    assert not found(schedule, ticket_kernel, (3,), counter, out, 9, SEM=sem, DRAWN=8)
    assert counter.tolist() == [0]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sem", ["relaxed", "acq_rel"])
def test_who_clears_the_counter_before_the_last_draw_races(schedule: str, sem: str) -> None:
    assert found(schedule, ticket_kernel, (3,), zeros(1), zeros(12), 9, SEM=sem, DRAWN=7)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_lock_orders_what_is_done_under_it(schedule: str) -> None:
    total = zeros(1)
    assert not found(schedule, lock_kernel, (4,), zeros(1), total, LOCKED=True)
    assert total.tolist() == [4]
    assert found(schedule, lock_kernel, (4,), zeros(1), zeros(1), LOCKED=False)


@pytest.mark.parametrize(
    ("give", "take", "races"),
    [
        ("release", "acquire", False),
        ("relaxed", "acquire", True),
        ("release", "relaxed", True),
        ("acq_rel", "acq_rel", False),
    ],
)
def test_a_message_needs_a_release_and_an_acquire(give: str, take: str, races: bool) -> None:
    assert bool(found("", message_kernel, (3,), zeros(1), zeros(1), zeros(3), GIVE=give, TAKE=take)) is races


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_plain_store_races_with_the_atomics_of_others(schedule: str) -> None:
    assert found(schedule, after_the_reset_kernel, (3,), zeros(1))


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="this version has no atomic loads and stores")
@pytest.mark.parametrize(("give", "races"), [("release", False), ("relaxed", True)])
def test_atomic_stores_publish_and_atomic_loads_take_over(give: str, races: bool) -> None:
    assert bool(found("", flag_kernel, (3,), zeros(1), zeros(1), zeros(3), GIVE=give)) is races


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


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="this version has no atomic loads and stores")
@pytest.mark.parametrize("store", [False, True])
def test_an_atomic_load_writes_nothing_and_an_atomic_store_does(store: bool) -> None:
    flag = zeros(1)
    assert bool(found("", peek_kernel, (3,), flag, zeros(3), STORE=store)) is store


@triton.jit
def masked_kernel(flags_ptr, out_ptr, active, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    mask = lanes < active
    tl.atomic_store(flags_ptr + lanes, lanes + 1, mask=mask)
    tl.debug_barrier()
    tl.store(out_ptr + lanes, tl.atomic_load(flags_ptr + lanes, mask=mask), mask=mask)


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="this version has no atomic loads and stores")
def test_masked_lanes_of_atomic_loads_and_stores_touch_nothing() -> None:
    flags, out = zeros(4), zeros(4)
    assert not found("", masked_kernel, (1,), flags[:3], out[:3], 3, SIZE=4)
    assert (flags.tolist(), out.tolist()) == ([1, 2, 3, 0], [1, 2, 3, 0])


@triton.jit
def wait_kernel(flag_ptr, text_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """The others wait for the flag, and need no more to read the message."""
    if tl.program_id(0) == 0:
        tl.store(text_ptr, 7)
        tl.atomic_store(flag_ptr, 1)
    else:
        tl.atomic_poll(flag_ptr, 1)
        tl.store(out_ptr + tl.program_id(0), tl.load(text_ptr))


@pytest.mark.skipif(not hasattr(tl, "atomic_poll"), reason="this version has no polls")
@pytest.mark.parametrize("schedule", ["", "interleaved:1", "interleaved:2"])
def test_who_waits_for_a_flag_has_what_was_published_with_it(schedule: str) -> None:
    out = zeros(3)
    assert not found(schedule, wait_kernel, (3,), zeros(1), zeros(1), out)
    assert out.tolist() == [0, 7, 7]
