"""For ports of sequences (docs/sequences.md): what every port of a library repeats that keeps a state object for each sequence, and damaged saves.

Such a port imports `StateContext`, `one_model` if it has one, and of `drop`, `fork`, `load` and `save` those that the library's states allow.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OPERATIONS = (
    "extend",
    "fork",
    "roll_back",
    "save",
    "load",
    "load_damaged",
    "drop",
    "reorder",
    "generate",
    "cancel",
)
"""What happens to a sequence: the functions of a port that are steps of a case."""
ANOTHER_MODEL, TOKENS_OF_ANOTHER = "another model", (1, 2, 3)
PARTS = ("no bytes", "one quarter", "half", "three quarters")
DAMAGES = (*PARTS, "first byte", "middle byte", "last byte", ANOTHER_MODEL)
"""Damages of a save: only a part of its bytes is there, from the beginning; one byte is another one; or another model has saved it."""


def damaged(data: bytes, damage: str) -> bytes:
    """The bytes of a save with one of DAMAGES; those of another model are as they are.

    Raises:
        ValueError: no such damage, or a byte is changed of a save without bytes.
    """
    if damage not in DAMAGES:
        raise ValueError(f"damage = {damage!r}, but should be one of {', '.join(DAMAGES)} [damaged]")
    if damage == ANOTHER_MODEL:
        return data
    if damage in PARTS:
        return data[: len(data) * PARTS.index(damage) // 4]
    if not data:
        raise ValueError(f"data = {data!r}, but should have a byte that changes [damaged]")
    at = {"first byte": 0, "middle byte": len(data) // 2, "last byte": len(data) - 1}[damage]
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@dataclass(eq=False)
class StateContext:
    """A context: the model, and by sequence a state that `copy.deepcopy` copies. A sequence without tokens has none.

    Args:
        model: whatever the port keeps here.
        states: of the sequences that have tokens; `extend` of the port puts them here.
    """

    model: Any
    states: dict[int, Any] = field(default_factory=dict)


def one_model(
    name: str, **values: Sequence[Any]
) -> tuple[Callable[[], Sequence[str]], Callable[[str], Mapping[str, Sequence[Any]]]]:
    """The functions `models` and `features` of a port with one model.

    >>> models, features = one_model("mamba", chunk=(512, 1, 3))
    >>> models(), features("mamba")
    (('mamba',), {'chunk': (512, 1, 3)})
    """
    return (lambda: (name,)), (lambda _: values)


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
