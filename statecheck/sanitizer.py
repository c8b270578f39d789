"""A sanitizer for Triton kernels: it watches them run on a CPU and stops at the first access that a GPU would not forgive.

    import torch
    from statecheck.sanitizer import sanitize

    with sanitize() as watch:
        watch.register(state, "state")              # kernels reach it through a table of addresses
        watch.unwritten(state[3])                   # a block that has not been written
        watch.free(state[5], "request 7 ended")     # a block that no kernel may touch
        copy_kernel[(4,)](table, out, BLOCK=64)     # raises a Finding, or is as good as it looks

It works on any kernel with `@triton.jit`, on CPU tensors. From the first `sanitize()` on, the process executes its kernels
from Triton's IR (see `statecheck.kernels.launch`), which needs no GPU and no TRITON_INTERPRET. A launch whose IR has an operation that
the executor does not know is not made: it raises NotExecuted. What is found comes out of the launch as an exception:

    OutsideView           an access outside the tensor that the pointer came from, though inside another one. Every pointer
                          carries the view it was made from; views of raw addresses are those that were registered.
    OverflowedOffset      an access by an offset whose sums and products do not fit in the int32 in which the kernel computes them,
                          wherever the address that is left over lies.
    Misaligned            an element at an address that is no multiple of its size, which a CPU does not mind.
    RaceBetweenPrograms   two programs of a launch touch a byte, one of them writes, and no atomics order the two. Decided
                          when the launch ends, whatever the order in which its programs happened to run.
    RaceWithinProgram     two lanes of a program touch a byte, one of them writes, with no `tl.debug_barrier()` between.
    UnwrittenRead         a load of bytes declared `unwritten` that no kernel has stored since.
    FreedBlock            an access to bytes declared `free`.

An access outside is reported before it is made. Lanes that are masked out touch nothing. What is watched is the IR that a
GPU's code is made from, optimised: a load whose value is not used is not in it, and two equal loads with no store between
are one. Neither is made on a GPU. Lines are those of the kernel, or of a function that it calls; for what a function of Triton's
own library does, the line that calls it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from statecheck.case.findings import (
    Access,
    Finding,
    FreedBlock,
    Misaligned,
    NotExecuted,
    OutsideView,
    OverflowedOffset,
    RaceBetweenPrograms,
    RaceWithinProgram,
    UnwrittenRead,
)
from statecheck.kernels.sanitizer.watch import Sanitizer

__all__ = [
    "Access",
    "Finding",
    "FreedBlock",
    "Misaligned",
    "NotExecuted",
    "OutsideView",
    "OverflowedOffset",
    "RaceBetweenPrograms",
    "RaceWithinProgram",
    "Sanitizer",
    "UnwrittenRead",
    "sanitize",
]


@contextlib.contextmanager
def sanitize(*, record: bool = False) -> Iterator[Sanitizer]:
    """Watch every launch made in this context. With `record`, `last_writer` says which access wrote a byte last.

    Raises:
        ValueError: kernels are compiled, or interpreted, in this process, and cannot be watched.
        Finding: from the launch in which it was found.
    """
    from statecheck.kernels import triton_mode

    triton_mode.prepare("cpu")
    from statecheck.kernels.launch import watching

    watch = Sanitizer(record=record)
    with watching(lambda: watch):
        yield watch
