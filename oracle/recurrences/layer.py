"""A tiny layer, a short convolution and a recurrence behind it, over the tokens of a request: what an engine's kernels should make of them.

Inputs and weights are multiples of powers of two, so that the convolution is exact in every float type, and the bound is that of the recurrence alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp
from random import Random

from oracle.recurrences.bounds import Near, Roundoff, near, softplus
from oracle.recurrences.conv import convolved
from oracle.recurrences.heads import Steps, delta_heads, ssm_heads
from oracle.recurrences.rows import State

HEADS, KEYS, WIDTH = 2, 8, 3
"""Heads; keys of a head's state; and the width of the convolution."""


@dataclass(frozen=True)
class Kind:
    """The sizes and types of a kind of layer.

    Args:
        channels: of the convolution: x of Mamba-1 and of a short convolution; x, B and C of Mamba-2; queries, keys and values.
        controls: numbers of a token that do not go through the convolution.
        heads: of the recurrence; 0 of a short convolution, which has none.
        values: of a head's state. Kernels of GDN want as many as keys.
        stored: the type of inputs, outputs and windows. Kernels of the delta rule in chunks take no float32. States are float32.
        factors: the type that tensor cores round their factors to.
        inputs: the lowest and the highest input of the convolution, and what they are multiples of.
        taps: the same of its weights.
        activation: of the convolution.
    """

    channels: int
    controls: int
    heads: int = HEADS
    values: int = KEYS
    stored: str = "bfloat16"
    factors: str = "bfloat16"
    inputs: tuple[int, int, float] = (-4, 4, 0.5)
    taps: tuple[int, int, float] = (-2, 2, 0.5)
    activation: str | None = None


KINDS = {
    "gdn": Kind(2 * KEYS + HEADS * KEYS, 2 * HEADS),
    "mamba2": Kind(2 * KEYS + HEADS * 4, HEADS, values=4, stored="float32", factors="tfloat32"),
    # The layer has no other activation. `silu` of multiples of 128 rounds to the larger of them and 0.
    "kda": Kind(3 * HEADS * KEYS, HEADS * KEYS + HEADS, inputs=(-3, 3, 256.0), activation="silu"),
    # One head of a rate for each value and key; times, B and C are projections of x, here a quarter and halves of it.
    "mamba1": Kind(2 * KEYS, 2 * KEYS, heads=1, values=2 * KEYS, stored="float32", factors="float32"),
    "short_conv": Kind(KEYS, 2 * KEYS, heads=0, stored="float32", factors="float32"),
}


@dataclass(frozen=True)
class Prefix:
    """What is left of a prefix: the last inputs of the convolution, the state of each head, and the output of the last token."""

    window: tuple[tuple[float, ...], ...]
    states: tuple[State, ...]
    outputs: tuple[Near, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A layer of one of `KINDS`, with weights by number."""

    name: str
    weights: int = 0

    @property
    def kind(self) -> Kind:
        """Its sizes and types."""
        return KINDS[self.name]

    def _numbers(self, name: object, count: int, low: int, high: int, unit: float) -> list[float]:
        random = Random(f"{self.name} {self.weights} {name}")
        return [random.randint(low, high) * unit for _ in range(count)]

    @cached_property
    def taps(self) -> list[list[float]]:
        """By channel, the newest input's last."""
        return _by(WIDTH, self._numbers("taps", self.kind.channels * WIDTH, *self.kind.taps))

    @cached_property
    def heads(self) -> dict[str, list[float]]:
        """Exponents `A` of Mamba, for each head or each entry of a state, or the logarithms of the opposites; offsets of times; and what a token's input adds to its output."""
        rates, offsets = {
            "kda": (HEADS, HEADS * KEYS),
            "mamba1": (self.kind.values * KEYS, self.kind.values),
        }.get(self.name, (HEADS, HEADS))
        return {
            "A": self._numbers("A", rates, -4, -2, 0.25),
            "dt_bias": self._numbers("dt_bias", offsets, -4, 4, 0.25),
            "D": self._numbers("D", offsets, -2, 2, 0.25),
        }

    def inputs(self, token: int) -> list[float]:
        """Of the convolution, by channel; of a short convolution before the product with a gate."""
        return self._numbers(f"input {token}", self.kind.channels, *self.kind.inputs)

    def controls(self, token: int) -> list[float]:
        """A token's times, and of the delta rule what each head writes, before their functions; or gates."""
        writes = HEADS if self.name in ("gdn", "kda") else 0
        times = self._numbers(f"times {token}", self.kind.controls - writes, -4, 8, 0.25)
        return [*times, *self._numbers(f"writes {token}", writes, -8, -2, 0.25)]

    def empty(self) -> Prefix:
        """The empty prefix."""
        nothing = State.empty((self.kind.values, KEYS))
        return Prefix(((0.0,) * self.kind.channels,) * (WIDTH - 1), (nothing,) * self.kind.heads)

    def advance(self, prefix: Prefix, token: int) -> Prefix:
        """The prefix with one more token."""
        inputs, controls = self.inputs(token), self.controls(token)
        if not self.kind.heads:
            inputs = [x * gate for x, gate in zip(inputs, controls[:KEYS], strict=True)]
        seen = (*prefix.window, tuple(inputs))
        mixed = [
            convolved(list(column), taps, 0.0, self.kind.activation)
            for column, taps in zip(zip(*seen, strict=True), self.taps, strict=True)
        ]
        if not self.kind.heads:
            gated = zip(mixed, controls[KEYS:], strict=True)
            return Prefix(seen[1:], (), tuple(near(x * gate, 0.0, self.kind.stored) for x, gate in gated))
        steps, states, outputs = self._steps(mixed, controls), list[State](), list[Near]()
        roundoff = Roundoff.of_factors(self.kind.factors)
        for head, before in enumerate(prefix.states):
            after, made = steps(0, head).advance(before, roundoff)
            states.append(after)
            outputs += [near(value, error, self.kind.stored) for value, error in made]
        return Prefix(seen[1:], tuple(states), tuple(outputs))

    def _steps(self, mixed: list[float], controls: list[float]) -> Steps:
        weights, values = self.heads, self.kind.values
        if self.name == "mamba1":
            return ssm_heads(
                [[mixed]],
                [[[time / 4 for time in mixed]]],
                [_by(KEYS, weights["A"])],
                [[mixed[:KEYS]]],
                [[mixed[KEYS:]]],
                [weights["D"]],
                [[controls]],
                [weights["dt_bias"]],
                True,
            )
        if self.name == "mamba2":
            keys = mixed[HEADS * values :]
            return ssm_heads(
                [_by(values, mixed[: HEADS * values])],
                [[[time] * values for time in controls]],
                [[[rate] * KEYS] * values for rate in weights["A"]],
                [[keys[:KEYS]]],
                [[keys[KEYS:]]],
                [[skip] * values for skip in weights["D"]],
                None,
                [[offset] * values for offset in weights["dt_bias"]],
                True,
            )
        width = (len(mixed) - HEADS * values) // 2
        times = [time + offset for time, offset in zip(controls, weights["dt_bias"], strict=False)]
        logs = zip(weights["A"], _by(len(times) // HEADS, times), strict=True)
        return delta_heads(
            [_by(KEYS, mixed[:width])],
            [_by(KEYS, mixed[width : 2 * width])],
            [_by(values, mixed[2 * width :])],
            [[[-exp(rate) * softplus(time) for time in of_head] for rate, of_head in logs]],
            [[1 / (1 + exp(-one)) for one in controls[-HEADS:]]],
            KEYS**-0.5,
            True,
        )


def _by(size: int, flat: list[float]) -> list[list[float]]:
    return [flat[at : at + size] for at in range(0, len(flat), size)]
