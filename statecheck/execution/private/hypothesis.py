"""Everything of Hypothesis that is not its documented interface, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from hypothesis.stateful import run_state_machine_as_test

__all__ = ["ENDS_EXAMPLES", "MADE_FOR", "run_machine"]

MADE_FOR = ("6.100", "6.170")
"""The oldest and the newest version that this was made for, and is tested with."""

ENDS_EXAMPLES = (UnsatisfiedAssumption, StopTest)
"""What Hypothesis itself ends an example with, from inside of it."""


def run_machine(begin: Callable[[], Any], chosen: settings, seed: int | None = None) -> None:
    """Search the machine that `begin` makes; with a seed, by that one."""
    # Where Hypothesis looks for the seed of a machine; its decorator takes classes only.
    begin._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
    run_state_machine_as_test(begin, settings=chosen)  # type: ignore[arg-type]
