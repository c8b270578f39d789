"""Runs the programs of a launch side by side, one operation of one of them after the other.

A program stops before every load, store and atomic operation, and a course chooses the program that makes the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from statecheck.kernels.orders.program_choice import Ready, Turns

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched
    from statecheck.kernels.memory import Memory


def run_interleaved(launch: Launched, memory: Memory, turns: Turns) -> None:
    """Run all programs, one operation of one of them after the other.

    Raises:
        Exception: what the first program to fail has raised; the others have been ended where they stood.
    """
    every = list(launch.programs())
    ready = Ready(len(every))
    begun: dict[int, Any] = {}
    running: int | None = None
    try:
        while ready:
            running = number = turns.next(running, ready)
            memory.switch(every[number])
            goes_on = True
            if number not in begun:
                ready.begin(number)
                begun[number] = launch.program(memory, every[number])
                goes_on = to_next_operation(begun[number])
            if not (goes_on and to_next_operation(begun[number])):
                del begun[number]
                ready.end(number)
                running = None
    finally:
        for program in begun.values():
            program.close()


def to_next_operation(program: Iterator[int]) -> bool:
    """Let it make the operation before which it stands, and go on to the next one; False where it ends instead."""
    return next(program, None) is not None
