"""A small recurrent model behind the protocol of sequences, in plain Python: what ports with planted defects are copies of.

Two layers, each with a state that decays and a window of two tokens, as a convolution has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

STATECHECK_SEQUENCES = 1
_WIDTH, _LAYERS, _VOCABULARY = 3, 2, 16
_PAD = 0
State = tuple[tuple[float, ...], ...]
"""For each layer: its state, and the inputs of its last two tokens."""
EMPTY: State = tuple((0.0,) * (3 * _WIDTH) for _ in range(_LAYERS))


@dataclass(eq=False)
class SmallContext:
    """The weights, and of each sequence its tokens and its state after each of them."""

    weights: list[list[list[float]]]
    micro_batch: int
    states: dict[int, list[State]] = field(default_factory=dict)


def models() -> Sequence[str]:
    """A model that depends on its history, and one that hides it."""
    return ("small", "forgetful")


def features(model: str) -> dict[str, tuple[Any, ...]]:  # noqa: ARG001
    """The features that may vary."""
    yes = (False, True)
    return {
        "micro_batch": (8, 1, 3),
        "pads": (0, 1, 4),
        "packed_rows": yes,
        "all_logits": yes,
        "shared_tokens": yes,
    }


def new(model: str, seed: int, *, micro_batch: int = 8) -> SmallContext:
    """A context of its own weights."""
    chance = random.Random(seed)
    size = 1.0 if model == "small" else 0.0
    shapes = [(_VOCABULARY, _WIDTH), *[(3 * _WIDTH, _WIDTH)] * _LAYERS, (_WIDTH, _VOCABULARY)]
    weights = [
        [[chance.gauss(0, 1) for _ in range(columns)] for _ in range(rows)] for rows, columns in shapes
    ]
    for layer in weights[1:-1]:
        layer[_WIDTH:] = [[size * weight for weight in row] for row in layer[_WIDTH:]]
    return SmallContext(weights, micro_batch)


def extend(
    context: SmallContext,
    rows: Sequence[tuple[int, Sequence[int]]],
    *,
    pads: int = 0,
    packed_rows: bool = False,
    all_logits: bool = False,
    shared_tokens: bool = False,
) -> list[Any]:
    """Process each row, in micro-batches of tokens; or all rows as one, or a row that all sequences have in common."""
    if all_logits:
        return [
            _row(context, sequence, list(tokens))
            and [_output(context, state) for state in context.states[sequence][-len(tokens) :]]
            for sequence, tokens in rows
        ]
    if packed_rows:
        return _packed(context, rows)
    if shared_tokens:
        first = _row(context, rows[0][0], list(rows[0][1]))
        for sequence, _ in rows[1:]:
            context.states[sequence] = list(context.states[rows[0][0]])
        return [first] * len(rows)
    rows = [(sequence, [*[_PAD] * pads, *tokens]) for sequence, tokens in rows]
    return [_row(context, sequence, list(tokens)) for sequence, tokens in rows]


def fork(context: SmallContext, source: int, target: int) -> None:
    """Copy the states."""
    context.states[target] = list(context.states[source])


def roll_back(context: SmallContext, sequence: int, n: int) -> None:
    """Forget the last states."""
    del context.states[sequence][-n:]


def save(context: SmallContext, sequence: int) -> list[State]:
    """The states."""
    return list(context.states[sequence])


def load(context: SmallContext, sequence: int, saved: list[State]) -> None:
    """Take the states."""
    context.states[sequence] = list(saved)


def load_damaged(context: SmallContext, sequence: int, damage: str, saved: list[State]) -> bool:  # noqa: ARG001
    """A damaged save is refused."""
    return False


def drop(context: SmallContext, sequence: int) -> None:
    """Forget the sequence."""
    context.states.pop(sequence, None)


def reorder(context: SmallContext, order: Sequence[int]) -> None:
    """Move states."""
    before = {number: list(states) for number, states in context.states.items()}
    for number, source in enumerate(order):
        context.states[number] = list(before.get(source, []))


def length(context: SmallContext, sequence: int) -> int:
    """Its tokens."""
    return len(context.states.get(sequence, []))


def states(context: SmallContext, sequence: int) -> list[tuple[str, Sequence[float]]]:
    """The state and the window of each layer."""
    return [(f"layer {number}", state) for number, state in enumerate(context.states[sequence][-1])]


def cancel(context: SmallContext, sequence: int, tokens: Sequence[int], after: int) -> None:
    """Process some tokens, and take them back."""
    before = length(context, sequence)
    if after:
        _row(context, sequence, list(tokens[:after]))
        del context.states[sequence][before:]


def generate(context: SmallContext, sequence: int, n: int, *, stop: int | None = None) -> list[int]:
    """Greedily; the last token is not processed."""
    chosen: list[int] = []
    logits = _output(context, context.states[sequence][-1])
    for number in range(n):
        chosen.append(max(range(len(logits)), key=logits.__getitem__))
        if chosen[-1] == stop:
            break
        if number + 1 < n:
            logits = extend(context, [(sequence, chosen[-1:])])[0]
    return chosen


def _row(context: SmallContext, sequence: int, tokens: list[int]) -> list[float]:
    for first in range(0, len(tokens), context.micro_batch):
        for token in tokens[first : first + context.micro_batch]:
            if token == _PAD:
                continue
            states = context.states.setdefault(sequence, [])
            states.append(step(context, states[-1] if states else EMPTY, token))
    return _output(context, context.states[sequence][-1])


def _packed(context: SmallContext, rows: Sequence[tuple[int, Sequence[int]]]) -> list[list[float]]:
    """A single row of all tokens; a state is that of another sequence where the next one begins."""
    entries = [(sequence, token, at) for sequence, tokens in rows for at, token in enumerate(tokens)]
    state, logits = EMPTY, {}
    for sequence, token, at in entries:
        states = context.states.setdefault(sequence, [])
        if at == 0:
            state = states[-1] if states else EMPTY
        state = step(context, state, token)
        states.append(state)
        logits[sequence] = _output(context, state)
    return [logits[sequence] for sequence, _ in rows]


def step(context: SmallContext, before: State, token: int) -> State:
    """The states after a token."""
    now = context.weights[0][token]
    after = []
    for layer, whole in zip(context.weights[1:-1], before, strict=True):
        state, window = whole[:_WIDTH], whole[_WIDTH:]
        given = [*now, *window[-_WIDTH:], *window[:_WIDTH]]
        mixed = [
            math.tanh(sum(a * row[i] for a, row in zip(given, layer, strict=True))) for i in range(_WIDTH)
        ]
        new_state = tuple(0.8 * old + mixed_value for old, mixed_value in zip(state, mixed, strict=True))
        decayed = new_state if any(map(any, layer[_WIDTH:])) else tuple(mixed)
        after.append((*decayed, *window[_WIDTH:], *now))
        now = list(decayed)
    return tuple(after)


def _output(context: SmallContext, state: State) -> list[float]:
    top = state[-1][:_WIDTH]
    last = context.weights[-1]
    return [sum(a * row[i] for a, row in zip(top, last, strict=True)) for i in range(_VOCABULARY)]
