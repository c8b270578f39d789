"""Tickets: which tile of a launch a program copies next. See `work`."""

import triton
import triton.language as tl


@triton.jit
def next_ticket(ticket, programs, tickets, counters_ptr):
    """The next ticket of this program, where the launch has `tickets` of them."""
    if counters_ptr is None:
        return ticket + programs
    else:
        drawn = tl.atomic_add(counters_ptr, 1, sem="relaxed")
        if drawn == tickets - 1:
            tl.store(counters_ptr, 0)
        return programs + drawn
