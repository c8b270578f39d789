"""The tiny layer of an engine's kernels, against the port of the examples on all of its tokens at once."""

from __future__ import annotations

import pytest
import torch

from examples import recurrences_port as port
from oracle.recurrences.bounds import Near
from oracle.recurrences.layer import HEADS, KEYS, KINDS, WIDTH, Layer

TOKENS = (5, 3, 3, 8, 1, 9, 2, 7)


def outputs(layer: Layer, tokens: tuple[int, ...]) -> list[tuple[Near, ...]]:
    prefix, found = layer.empty(), []
    for token in tokens:
        prefix = layer.advance(prefix, token)
        found.append(prefix.outputs)
    return found


def by_the_port(layer: Layer) -> list[list[float]]:
    kind, count = layer.kind, len(TOKENS)
    slots, starts = torch.zeros(1, dtype=torch.int32), torch.tensor([0, count], dtype=torch.int32)
    inputs, controls = (torch.tensor([f(token) for token in TOKENS]) for f in (layer.inputs, layer.controls))
    if layer.name == "short_conv":
        inputs = inputs * controls[:, :KEYS]
    window, state = torch.zeros(1, kind.channels, WIDTH - 1), torch.zeros(1, kind.heads, kind.values, KEYS)
    rows = slots, starts, None
    mixed = port.conv_update(inputs, torch.tensor(layer.taps), None, kind.activation, window, *rows)
    weights = {name: torch.tensor(numbers) for name, numbers in layer.heads.items()}

    def heads(part: torch.Tensor, size: int) -> torch.Tensor:
        return part.unflatten(1, (-1, size))

    if layer.name == "short_conv":
        out = mixed * controls[:, KEYS:]
    elif layer.name in ("gdn", "kda"):
        keys = (kind.channels - HEADS * kind.values) // 2
        q, k, v = (heads(part, KEYS) for part in mixed.split([keys, keys, HEADS * kind.values], 1))
        times, writes = controls.split([kind.controls - HEADS, HEADS], 1)
        g = torch.nn.functional.softplus(times + weights["dt_bias"])
        g = -weights["A"].exp()[:, None] * g.unflatten(1, (HEADS, -1))
        step, g = (port.gdn_recurrent, g[..., 0]) if layer.name == "gdn" else (port.kda_recurrent, g)
        out = step(q, k, v, g, writes.sigmoid(), KEYS**-0.5, True, state, *rows)
    else:
        wide = (kind.heads, kind.values)
        parts = (mixed,) * 3 if layer.name == "mamba1" else mixed.split([HEADS * kind.values, KEYS, KEYS], 1)
        b, c = (mixed[:, :KEYS], mixed[:, KEYS:]) if layer.name == "mamba1" else parts[1:]
        dt, gate = (mixed / 4, heads(controls, kind.values)) if layer.name == "mamba1" else (controls, None)
        rate, offset, skip = (
            weight.reshape(*wide[:1], -1, 1 if name != "A" else KEYS if layer.name == "mamba1" else 1)
            for name, weight in weights.items()
        )
        out = port.ssm_update(
            heads(parts[0], kind.values),
            heads(dt, kind.values if layer.name == "mamba1" else 1).expand(-1, *wide),
            rate.expand(*wide, KEYS),
            heads(b, KEYS),
            heads(c, KEYS),
            skip[..., 0].expand(wide),
            gate,
            offset[..., 0].expand(wide),
            True,
            state,
            *rows,
        )
    found: list[list[float]] = out.flatten(1).tolist()
    return found


def within(found: list[float], expected: tuple[Near, ...]) -> bool:
    return all(abs(seen - near.value) <= near.bound for seen, near in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_of_the_tokens_so_far_lie_within_the_bound(kind: str) -> None:
    layer = Layer(kind)
    assert all(map(within, by_the_port(layer), outputs(layer, TOKENS)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", [(4, *TOKENS[1:6]), TOKENS[1:6], (*TOKENS[:5], 4)])
def test_outputs_behind_other_tokens_lie_outside_of_the_bound(kind: str, others: tuple[int, ...]) -> None:
    layer = Layer(kind)
    expected = outputs(layer, (*others, *TOKENS[6:]))[-2]
    # A short convolution sees its window alone.
    assert within(by_the_port(layer)[-2], expected) == (kind == "short_conv" and others[-1] == TOKENS[5])
    assert not within(by_the_port(Layer(kind, weights=1))[-1], outputs(layer, TOKENS)[-1])
