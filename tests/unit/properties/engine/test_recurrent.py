"""The tiny model is a real recurrence: it equals the whole-sequence formulas, and wrong states give other text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor
from torch.nn import functional

from properties.engine.layer_state import LayerState
from properties.engine.recurrent import (
    HEADS,
    HIDDEN,
    WINDOW,
    GatedDeltaNet,
    Layer,
    Mamba2,
    Recurrent,
)

SEEDS = range(16)
VOCABULARY = 24
SOON = 8
Part = Literal["windows", "temporal"]
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


# The whole sequence at once, in double precision.


def hidden_states(seed: int, length: int = 40) -> Tensor:
    return torch.randn(length, HIDDEN, generator=Generator().manual_seed(seed))


def doubled(layer: Layer, name: str) -> Tensor:
    weight = getattr(layer, name)
    assert isinstance(weight, Tensor)
    return weight.double()


def projected(layer: Layer, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Conv inputs [T, channels], output gates [T, HEADS × head_dim] and controls [T, number, HEADS]."""
    normed = functional.rms_norm(hidden.double(), (HIDDEN,), eps=1e-5)
    rows = normed @ doubled(layer, "projection").T
    inner = HEADS * layer.head_dim
    inputs, rest = rows[:, : layer.channels], rows[:, layer.channels :]
    return inputs, rest[:, :inner], rest[:, inner:].view(len(rows), -1, HEADS)


def convolved(layer: Layer, inputs: Tensor) -> Tensor:
    padded = functional.pad(inputs.T, (WINDOW, 0))
    taps = doubled(layer, "taps").T.unsqueeze(1)
    return functional.silu(functional.conv1d(padded, taps, doubled(layer, "bias"), groups=layer.channels)).T


def decays(layer: Layer, control: Tensor) -> tuple[Tensor, Tensor]:
    """The steps [T, HEADS], and the logarithms of the decays."""
    steps = functional.softplus(control + doubled(layer, "shift"))
    return steps, -steps * doubled(layer, "decay")


def delta_rule(layer: Layer, mixed: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
    """Unrolled: S_t is the sum of b_s v_s k_s^T (a_{s+1} (I - b k k^T)_{s+1}) ... (a_t (I - b k k^T)_t)."""
    length, keys = len(mixed), HEADS * GatedDeltaNet.key_dim
    q, k = (
        functional.normalize(part.view(length, HEADS, -1), dim=-1)
        for part in mixed[:, : 2 * keys].split(keys, 1)
    )
    v = mixed[:, 2 * keys :].view(length, HEADS, -1)
    factors, beta = decays(layer, controls[:, 0])[1].exp(), torch.sigmoid(controls[:, 1])
    eye = torch.eye(GatedDeltaNet.key_dim, dtype=torch.float64)
    read = torch.zeros(length, HEADS, layer.head_dim, dtype=torch.float64)
    state = torch.zeros(layer.temporal_shape, dtype=torch.float64)
    for head in range(HEADS):
        for t in range(length):
            total, tail = torch.zeros(layer.temporal_shape[1:], dtype=torch.float64), eye
            for s in range(t, -1, -1):
                total = total + beta[s, head] * torch.outer(v[s, head], k[s, head]) @ tail
                erased = eye - beta[s, head] * torch.outer(k[s, head], k[s, head])
                tail = factors[s, head] * erased @ tail
            read[t, head], state[head] = total @ q[t, head], total
    return state, read


def selective_sum(layer: Layer, mixed: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
    """Explicit: y_t is the sum over s <= t of exp(decays after s up to t) d_s (C_t · B_s) x_s."""
    length, inner = len(mixed), HEADS * Mamba2.head_dim
    x, b, c = mixed.split([inner, Mamba2.state_dim, Mamba2.state_dim], dim=1)
    x = x.view(length, HEADS, -1)
    steps, logarithms = decays(layer, controls[:, 0])
    until = logarithms.cumsum(0)
    between = (until.unsqueeze(1) - until.unsqueeze(0)).exp()
    weights = between * torch.ones(length, length, dtype=torch.float64).tril().unsqueeze(-1) * steps
    read = torch.einsum("tsh,tn,sn,shp->thp", weights, c, b, x)
    return torch.einsum("sh,shp,sn->hpn", weights[-1], x, b), read


Formula = Callable[[Layer, Tensor, Tensor], tuple[Tensor, Tensor]]
FORMULAS: dict[type[Layer], Formula] = {GatedDeltaNet: delta_rule, Mamba2: selective_sum}


def expected(layer: Layer, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The window and the temporal state after all tokens, and what the layer adds at each."""
    inputs, gates, controls = projected(layer, hidden)
    state, read = FORMULAS[type(layer)](layer, convolved(layer, inputs), controls)
    gated = read * functional.silu(gates).view(read.shape)
    normed = functional.rms_norm(gated, (layer.head_dim,), eps=1e-5).flatten(1)
    return inputs[-WINDOW:], state, normed @ doubled(layer, "output").T


def stepped(layer: Layer, hidden: Tensor) -> tuple[LayerState, Tensor]:
    state, added = layer.initial(), []
    for row in hidden:
        state, more = layer.step(state, row)
        added.append(more)
    return state, torch.stack(added)


def close(seen: Tensor | np.ndarray, formula: Tensor) -> None:
    np.testing.assert_allclose(np.asarray(seen).reshape(formula.shape), formula.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("sort", FORMULAS)
@pytest.mark.parametrize("seed", range(4))
def test_token_by_token_is_the_formula_of_the_whole_sequence(sort: type[Layer], seed: int) -> None:
    layer, hidden = sort.draw(Generator().manual_seed(seed)), hidden_states(seed + 100)
    window, temporal, added = expected(layer, hidden)
    state, seen = stepped(layer, hidden)
    close(floats(*state.windows[0]), window)
    close(floats(*state.temporal), temporal)
    close(seen, added)


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


def continued(recurrent: Recurrent, states: tuple[LayerState, ...], said: int, count: int) -> list[int]:
    """What follows when `said` is the next token to go on from `states`."""
    spoken = []
    for _ in range(count):
        states, said = recurrent.advance(states, said)
        spoken.append(said)
    return spoken


def swapped(
    right: Sequence[LayerState], wrong: Sequence[LayerState], layer: int, part: Part
) -> tuple[LayerState, ...]:
    """`right` states, but one kind of state of one layer is as in `wrong`."""
    states = list(right)
    if part == "windows":
        states[layer] = replace(states[layer], windows=wrong[layer].windows)
    else:
        states[layer] = replace(states[layer], temporal=wrong[layer].temporal)
    return tuple(states)


def other_prefix(prompt: list[int]) -> list[int]:
    """Another prompt that ends in the same tokens, as many as a window holds."""
    return text(sum(prompt) + 1000, len(prompt) - WINDOW) + prompt[-WINDOW:]


PREFIXES: dict[str, Callable[[list[int]], list[int]]] = {
    "another prefix": other_prefix,
    "one token early": lambda prompt: prompt[:-1],
    "a window early": lambda prompt: prompt[:-WINDOW],
    "nothing": lambda prompt: [],
}


def noticed(
    wrong: Callable[[list[int]], list[int]], layer: int | None = None, part: Part = "temporal"
) -> float:
    """The share of seeds for which wrong states, or one of them, soon change the text."""
    count = 0
    for seed in SEEDS:
        recurrent, prompt = model(seed), text(seed, 30)
        right, said = after(recurrent, prompt)
        false, _ = after(recurrent, wrong(prompt))
        states = false if layer is None else swapped(right, false, layer, part)
        count += continued(recurrent, states, said, SOON) != continued(recurrent, right, said, SOON)
    return count / len(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", PREFIXES)
def test_states_of_a_wrong_prefix_soon_give_other_text(wrong: str) -> None:
    assert noticed(PREFIXES[wrong]) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("layer", [0, 1])
def test_one_wrong_temporal_state_soon_gives_other_text(layer: int) -> None:
    assert noticed(PREFIXES["another prefix"], layer) >= 0.75


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


# What a model is made of.
