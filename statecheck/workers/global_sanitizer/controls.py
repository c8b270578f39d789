"""Small kernels of which it is known whether they race, for a sanitizer whose word is to be trusted.

`python -m statecheck.workers.global_sanitizer.controls NAME` launches one of them, under whatever watches this process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from statecheck.workers.global_sanitizer.memory import own_memory

PROGRAMS = 64
"""So many that not all of them run on the same multiprocessor, whose programs count as one."""


@triton.jit
def write_write_control(out_ptr):  # type: ignore[no-untyped-def]
    """Every program stores to the same element."""
    tl.store(out_ptr, tl.program_id(0))


@triton.jit
def read_write_control(in_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """Every program loads an element that the first one stores."""
    at = tl.program_id(0)
    tl.store(out_ptr + at, tl.load(in_ptr))
    if at == 0:
        tl.store(in_ptr, 1)


@triton.jit
def separate_control(out_ptr):  # type: ignore[no-untyped-def]
    """Every program stores to elements of its own."""
    lanes = tl.arange(0, 4)
    tl.store(out_ptr + tl.program_id(0) * 4 + lanes, lanes)


@triton.jit
def ordered_control(parts_ptr, arrived_ptr, out_ptr, PROGRAMS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The last program to arrive adds up what the others have stored, ordered by an atomic."""
    at = tl.program_id(0)
    tl.store(parts_ptr + at, at)
    tl.debug_barrier()
    if tl.atomic_add(arrived_ptr, 1, sem="acq_rel") == PROGRAMS - 1:
        tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, PROGRAMS))))


@triton.jit
def shared_word_control(out_ptr):  # type: ignore[no-untyped-def]
    """Every program stores one byte of its own, four of them to a word of 4 bytes."""
    tl.store(out_ptr + tl.program_id(0), 1)


def _launch(kernel: Any, *arguments: Any, **constants: Any) -> None:
    kernel[(PROGRAMS,)](*arguments, **constants)


def _zeros(elements: int, device: str, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(elements, dtype=dtype, device=device)


def write_write(device: str) -> None:
    _launch(write_write_control, _zeros(1, device))


def read_write(device: str) -> None:
    _launch(read_write_control, _zeros(1, device), _zeros(PROGRAMS, device))


def right(device: str) -> None:
    """Two kernels without a race, the second one with atomics."""
    _launch(separate_control, _zeros(4 * PROGRAMS, device))
    parts, arrived, out = _zeros(PROGRAMS, device), _zeros(1, device), _zeros(1, device)
    _launch(ordered_control, parts, arrived, out, PROGRAMS=PROGRAMS)


def shared_word(device: str) -> None:
    _launch(shared_word_control, _zeros(PROGRAMS, device, torch.int8))


CONTROLS: dict[str, Callable[[str], None]] = {
    one.__name__: one for one in (write_write, read_write, right, shared_word)
}


def main(arguments: Sequence[str]) -> None:
    """Launch the control that is named, and say so once it has ended."""
    (name,) = arguments
    with own_memory():
        CONTROLS[name]("cuda")
        torch.cuda.synchronize()
    print(f"ENDED {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
