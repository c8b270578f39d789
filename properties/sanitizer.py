"""A sanitizer for Triton kernels: it watches the interpreter and stops at the first access that a GPU would not forgive.

    import torch
    from properties.sanitizer import sanitize

    with sanitize() as watch:
        watch.register(state, "state")              # kernels reach it through a table of addresses
        watch.unwritten(state[3])                   # a block that nobody has written
        watch.free(state[5], "request 7 ended")     # a block that nobody may touch
        copy_kernel[(4,)](table, out, BLOCK=64)     # raises a Finding, or is as good as it looks

It works on any kernel, in a process with TRITON_INTERPRET=1. What it finds comes out of the launch as an exception:

    OutsideView           an access outside the tensor that the pointer came from, though inside another one. Every pointer
                          carries the view it was made from; views of raw addresses are those that were registered.
    Misaligned            an element at an address that is no multiple of its size, which the interpreter does not mind.
    RaceBetweenPrograms   two programs of a launch touch a byte, one of them writes, and no atomics order the two. Decided
                          when the launch ends, whatever the order in which its programs happened to run.
    RaceWithinProgram     two lanes of a program touch a byte, one of them writes, with no `tl.debug_barrier()` between.
    UnwrittenRead         a load of bytes declared `unwritten` that no kernel has stored since.
    FreedBlock            an access to bytes declared `free`.
    Bfloat16Arithmetic    an operation on bfloat16 numbers that the interpreter computes wrongly.

An access outside is reported before it is made. Lanes that are masked out touch nothing. Afterwards the interpreter is as
it was. The context composes with `properties.harness.schedules.program_schedule`, inside or outside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from properties.harness.sanitizer.findings import (
    Access,
    Bfloat16Arithmetic,
    Finding,
    FreedBlock,
    Misaligned,
    OutsideView,
    RaceBetweenPrograms,
    RaceWithinProgram,
    UnwrittenRead,
)
from properties.harness.sanitizer.watch import Sanitizer

__all__ = [
    "Access",
    "Bfloat16Arithmetic",
    "Finding",
    "FreedBlock",
    "Misaligned",
    "OutsideView",
    "RaceBetweenPrograms",
    "RaceWithinProgram",
    "Sanitizer",
    "UnwrittenRead",
    "sanitize",
]


@contextlib.contextmanager
def sanitize(*, record: bool = False) -> Iterator[Sanitizer]:
    """Watch every launch made in this context. With `record`, `last_writer` tells who wrote a byte.

    Raises:
        ValueError: kernels are compiled in this process, where nothing can be watched.
        Finding: from the launch in which it was found.
    """
    from properties.harness.kernels.watched import listening

    if not _interprets():
        raise ValueError(
            "TRITON_INTERPRET is unset, but should be 1 where kernels are to be watched [sanitize]"
        )
    watch = Sanitizer(record=record)
    with listening(watch):
        yield watch


def _interprets() -> bool:
    import triton

    return bool(triton.knobs.runtime.interpret)
