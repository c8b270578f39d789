"""The tiny layer of an engine's kernels, against the port of the examples on all of its tokens at once."""

from __future__ import annotations

import pytest
import torch

from examples import recurrences_port as port
from oracle.recurrences.bounds import Near
from oracle.recurrences.layer import CHANNELS, HEADS, KEYS, VALUES, WIDTH, Layer

TOKENS = (5, 3, 3, 8, 1, 9, 2, 7)


def outputs(layer: Layer, tokens: tuple[int, ...]) -> list[tuple[Near, ...]]:
    prefix, found = layer.empty(), []
    for token in tokens:
        prefix = layer.advance(prefix, token)
        found.append(prefix.outputs)
    return found


def by_the_port(layer: Layer) -> list[list[float]]:
    values, count = VALUES[layer.kind], len(TOKENS)
    slots, starts = torch.zeros(1, dtype=torch.int32), torch.tensor([0, count], dtype=torch.int32)
    inputs, controls = (torch.tensor([f(token) for token in TOKENS]) for f in (layer.inputs, layer.controls))
    window, state = torch.zeros(1, CHANNELS[layer.kind], WIDTH - 1), torch.zeros(1, HEADS, values, KEYS)
    mixed = port.conv_update(inputs, torch.tensor(layer.taps), None, None, window, slots, starts, None)
    weights = {name: torch.tensor(numbers) for name, numbers in layer.heads.items()}
    rows = state, slots, starts, None
    if layer.kind == "gdn":
        q, k, v = (
            part.unflatten(1, (-1, size))
            for part, size in zip(
                mixed.split([KEYS, KEYS, HEADS * values], 1), (KEYS, KEYS, values), strict=True
            )
        )
        g = -weights["A"].exp() * torch.nn.functional.softplus(controls[:, :HEADS] + weights["dt_bias"])
        out = port.gdn_recurrent(q, k, v, g, controls[:, HEADS:].sigmoid(), KEYS**-0.5, True, *rows)
    else:
        x, b, c = (
            part.unflatten(1, (-1, size))
            for part, size in zip(
                mixed.split([HEADS * values, KEYS, KEYS], 1), (values, KEYS, KEYS), strict=True
            )
        )
        wide = (-1, -1, values)
        dt, bias, skip = (
            controls[..., None].expand(wide),
            weights["dt_bias"][:, None].expand(-1, values),
            weights["D"][:, None].expand(-1, values),
        )
        out = port.ssm_update(
            x, dt, weights["A"][:, None, None].expand(-1, values, KEYS), b, c, skip, None, bias, True, *rows
        )
    found: list[list[float]] = out.flatten(1).tolist()
    return found


def within(found: list[float], expected: tuple[Near, ...]) -> bool:
    return all(abs(seen - near.value) <= near.bound for seen, near in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", CHANNELS)
def test_outputs_of_the_tokens_so_far_lie_within_the_bound(kind: str) -> None:
    layer = Layer(kind)
    assert all(map(within, by_the_port(layer), outputs(layer, TOKENS)))


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize("others", [(4, *TOKENS[1:6]), TOKENS[1:6], (*TOKENS[:5], 4)])
def test_outputs_behind_other_tokens_lie_outside_of_the_bound(kind: str, others: tuple[int, ...]) -> None:
    layer = Layer(kind)
    expected = outputs(layer, (*others, *TOKENS[6:]))[-2]
    assert not within(by_the_port(layer)[-2], expected)
    assert not within(by_the_port(Layer(kind, weights=1))[-1], outputs(layer, TOKENS)[-1])
