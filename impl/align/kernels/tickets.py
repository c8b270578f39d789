"""Tickets: which tile of a launch a program copies next. See `work`."""

import triton
import triton.language as tl


@triton.jit
def next_ticket(ticket, programs, tickets, counters_ptr):
    """The next ticket of this program, where the launch has `tickets` of them."""
    following = ticket + programs
    if ticket >= programs:
        drawn = tl.atomic_add(counters_ptr, 1, sem="relaxed")
        # Each ticket from `programs` on is followed by one draw, so that this is the number of the last one.
        if drawn == tickets - programs - 1:
            # Only an atomic access is ordered with the draws of the others without waiting for them.
            tl.atomic_xchg(counters_ptr, 0, sem="relaxed")
        following = 2 * programs + drawn
    return following
