"""The tiny model is a recurrence: any chunking gives the same bits, and wrong states give other text."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties.engine.models import LayerState
from properties.engine.recurrent import Recurrent

VOCABULARY = 24
TOKENS = st.integers(0, VOCABULARY - 1)


def model(
    seed: int = 0, num_spec: int = 1, layout: str = "SD", gdn_layers: int = 1, mamba2_layers: int = 1
) -> Recurrent:
    return Recurrent(
        seed,
        num_spec=num_spec,
        block_size=4,
        layout=layout,
        gdn_layers=gdn_layers,
        mamba2_layers=mamba2_layers,
        vocabulary=VOCABULARY,
    )


def floats(*rows: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(rows), np.float32).astype(np.float64)


def text(seed: int, count: int) -> list[int]:
    random = Random(seed)
    return [random.randrange(VOCABULARY) for _ in range(count)]


def after(
    recurrent: Recurrent, tokens: Sequence[int], states: tuple[LayerState, ...] = ()
) -> tuple[tuple[LayerState, ...], int]:
    """The states after `tokens`, which follow `states`, and the token said then."""
    current, said = states or recurrent.initial(), -1
    for token in tokens:
        current, said = recurrent.advance(current, token)
    return current, said


# States are bytes.


@given(seed=st.integers(0, 3), tokens=st.lists(TOKENS, min_size=2, max_size=24), data=st.data())
def test_any_chunking_gives_the_same_bits(seed: int, tokens: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(tokens) - 1))
    middle, _ = after(model(seed), tokens[:cut])
    assert after(model(seed), tokens[cut:], middle) == after(model(seed), tokens)


def test_a_layer_reads_the_token_and_what_the_layers_before_it_added() -> None:
    recurrent = model(1)
    (first, second), hidden = recurrent.network.layers, recurrent.network.embedding[7]
    states, _ = recurrent.advance(recurrent.initial(), 7)
    left, added = first.step(first.initial(), hidden)
    assert states == (left, second.step(second.initial(), hidden + added)[0])


# Wrong states give other text.


@pytest.mark.parametrize("tokens", [text(5, 500), [5] * 500], ids=["random", "one token"])
@pytest.mark.parametrize("seed", range(3))
def test_states_stay_bounded(seed: int, tokens: list[int]) -> None:
    recurrent, largest = model(seed), 0.0
    states = recurrent.initial()
    for token in tokens:
        states, _ = recurrent.advance(states, token)
        rows = (row for state in states for row in (*state.windows[0], *state.temporal))
        largest = max(largest, float(np.abs(floats(*rows)).max()))
    assert 0.1 < largest < 1000
