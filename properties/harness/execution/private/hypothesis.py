"""Everything of Hypothesis that is not its documented interface, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import settings
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.stateful import run_state_machine_as_test

__all__ = ["ENDS_EXAMPLES", "MADE_FOR", "NEEDED", "run_machine", "shrinking_again"]

MADE_FOR = ("6.100", "6.170")
"""The oldest and the newest version that this was made for, and is tested with."""
NEEDED = (
    "hypothesis.errors.StopTest",
    "hypothesis.internal.conjecture.engine.ConjectureRunner",
    "hypothesis.stateful.run_state_machine_as_test",
)

ENDS_EXAMPLES = (UnsatisfiedAssumption, StopTest)
"""What Hypothesis itself ends an example with, from inside of it."""


def run_machine(begin: Callable[[], Any], chosen: settings, seed: int | None = None) -> None:
    """Search the machine that `begin` makes; with a seed, by that one."""
    # Where Hypothesis looks for the seed of a machine; its decorator takes classes only.
    begin._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
    run_state_machine_as_test(begin, settings=chosen)  # type: ignore[arg-type]


@contextmanager
def shrinking_again() -> Iterator[None]:
    """Have a failing input that comes from the database shrunk as any other.

    Hypothesis takes it for the smallest and ends, but a worker saves what it finds before it has shrunk it, and another
    one may look meanwhile, or when the first was ended in the middle.
    """
    name = "reused_previously_shrunk_test_case"
    setattr(ConjectureRunner, name, property(lambda runner: False, lambda runner, value: None))
    try:
        yield
    finally:
        delattr(ConjectureRunner, name)
