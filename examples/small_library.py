"""A library of sequences without torch: one recurrent layer in NumPy, behind the functions of docs/sequences.md.

statecheck fuzz --subject small_library --budget 20s
"""
# ruff: noqa: D103 - docs/sequences.md has a sentence about each function.

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

STATECHECK_SEQUENCES = 1
_WIDTH, _TOKENS = 8, 16


@dataclass(eq=False)
class Context:
    """The weights, and the state and the number of tokens of each sequence."""

    embed: np.ndarray
    carry: np.ndarray
    states: dict[int, tuple[np.ndarray, int]] = field(default_factory=dict)


def models() -> Sequence[str]:
    return ("small",)


def new(model: str, seed: int) -> Context:  # noqa: ARG001 - there is one
    draw = np.random.default_rng(seed)
    return Context(draw.normal(size=(_TOKENS, _WIDTH)), draw.normal(size=(_WIDTH, _WIDTH)) / _WIDTH**0.5)


def extend(context: Context, rows: Sequence[tuple[int, Sequence[int]]]) -> list[np.ndarray]:
    logits = []
    for sequence, tokens in rows:
        state, count = context.states.get(sequence, (np.zeros(_WIDTH), 0))
        for token in tokens:
            state = np.tanh(context.carry @ state + context.embed[token])
        context.states[sequence] = state, count + len(tokens)
        logits.append(context.embed @ state)
    return logits


def fork(context: Context, source: int, target: int) -> None:
    context.states[target] = context.states[source]


def save(context: Context, sequence: int) -> tuple[np.ndarray, int]:
    return context.states[sequence]


def load(context: Context, sequence: int, saved: tuple[np.ndarray, int]) -> None:
    context.states[sequence] = saved


def drop(context: Context, sequence: int) -> None:
    context.states.pop(sequence, None)


def length(context: Context, sequence: int) -> int:
    return context.states.get(sequence, (None, 0))[1]


def states(context: Context, sequence: int) -> list[tuple[str, np.ndarray]]:
    return [("hidden", context.states[sequence][0])] if sequence in context.states else []
