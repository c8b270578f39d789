"""For ports of sequences (docs/sequences.md) of libraries that keep a state object for each sequence: what every such port repeats.

It imports `StateContext`, and of `drop`, `fork`, `load` and `save` those that the library's states allow.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class StateContext:
    """A context: the model, and by sequence a state that `copy.deepcopy` copies. A sequence without tokens has none.

    Args:
        model: whatever the port keeps here.
        states: of the sequences that have tokens; `extend` of the port puts them here.
    """

    model: Any
    states: dict[int, Any] = field(default_factory=dict)


def fork(context: StateContext, source: int, target: int) -> None:
    """Copy a state."""
    context.states[target] = copy.deepcopy(context.states[source])


def save(context: StateContext, sequence: int) -> Any:
    """A copy of the state."""
    return copy.deepcopy(context.states[sequence])


def load(context: StateContext, sequence: int, saved: Any) -> None:
    """Put a copy in the place of the sequence's state."""
    context.states[sequence] = copy.deepcopy(saved)


def drop(context: StateContext, sequence: int) -> None:
    """Forget the state."""
    context.states.pop(sequence, None)
