"""A tiny layer, a short convolution and a recurrence behind it, over the tokens of a request: what an engine's kernels should make of them.

Inputs and weights are multiples of powers of two, so that the convolution is exact in every float type, and the bound is that of the recurrence alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp
from random import Random

from oracle.recurrences.bounds import UNIT_ROUNDOFF, Near, Roundoff, near, softplus
from oracle.recurrences.conv import convolved
from oracle.recurrences.heads import Steps, delta_heads, ssm_heads
from oracle.recurrences.rows import State

HEADS, KEYS, WIDTH = 2, 8, 3
"""Heads of values, which share one of keys; keys of a head's state; and the width of the convolution."""
VALUES = {"mamba2": 4, "gdn": 8}
"""Of a head's state. Kernels of GDN want as many as keys."""
CHANNELS = {kind: 2 * KEYS + HEADS * values for kind, values in VALUES.items()}
"""Of the convolution: x, B and C, or q, k and v."""
TYPES = {"mamba2": ("float32", "float32"), "gdn": ("bfloat16", "float32")}
"""Of inputs, outputs and windows, and of the recurrence's state. Kernels of GDN in chunks take no float32."""
_ROUNDOFF = {
    kind: Roundoff(UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[products])
    for kind, products in (("mamba2", "tfloat32"), ("gdn", "bfloat16"))
}
"""The second is of what tensor cores round their factors to."""


@dataclass(frozen=True)
class Prefix:
    """What is left of a prefix: the last inputs of the convolution, the state of each head, and the output of the last token."""

    window: tuple[tuple[float, ...], ...]
    states: tuple[State, ...]
    outputs: tuple[Near, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A layer of a kind, `mamba2` or `gdn`, with weights by number."""

    kind: str
    weights: int = 0

    def _numbers(self, name: object, count: int, low: int, high: int, unit: float) -> list[float]:
        random = Random(f"{self.kind} {self.weights} {name}")
        return [random.randint(low, high) * unit for _ in range(count)]

    @cached_property
    def taps(self) -> list[list[float]]:
        """By channel, the newest input's last."""
        flat = self._numbers("taps", CHANNELS[self.kind] * WIDTH, -2, 2, 0.5)
        return [flat[at : at + WIDTH] for at in range(0, len(flat), WIDTH)]

    @cached_property
    def heads(self) -> dict[str, list[float]]:
        """Of each head, of Mamba-2 the exponent `A`, and of GDN the logarithm of its opposite; the offset of its time; and what a token's input adds to its output."""
        rates = self._numbers("A", HEADS, -4, -2, 0.25)
        return {
            "A": rates if self.kind == "mamba2" else [1 + rate for rate in rates],
            "dt_bias": self._numbers("dt_bias", HEADS, -4, 4, 0.25),
            "D": self._numbers("D", HEADS, -2, 2, 0.25),
        }

    def inputs(self, token: int) -> list[float]:
        """Of the convolution, by channel."""
        return self._numbers(f"input {token}", CHANNELS[self.kind], -4, 4, 0.5)

    def controls(self, token: int) -> list[float]:
        """A token's times by head, and of GDN what it writes, before their functions."""
        times = self._numbers(f"times {token}", HEADS, -4, 8, 0.25)
        return (
            times
            if self.kind == "mamba2"
            else [*times, *self._numbers(f"writes {token}", HEADS, -8, -2, 0.25)]
        )

    def empty(self) -> Prefix:
        """The empty prefix."""
        nothing = State.empty((VALUES[self.kind], KEYS))
        return Prefix(((0.0,) * CHANNELS[self.kind],) * (WIDTH - 1), (nothing,) * HEADS)

    def advance(self, prefix: Prefix, token: int) -> Prefix:
        """The prefix with one more token."""
        seen = (*prefix.window, tuple(self.inputs(token)))
        mixed = [
            convolved(list(column), taps, 0.0, None)
            for column, taps in zip(zip(*seen, strict=True), self.taps, strict=True)
        ]
        steps, states, outputs = self._steps(mixed, self.controls(token)), list[State](), list[Near]()
        for head, before in enumerate(prefix.states):
            after, made = steps(0, head).advance(before, _ROUNDOFF[self.kind])
            states.append(after)
            outputs += [near(value, error, TYPES[self.kind][0]) for value, error in made]
        return Prefix(seen[1:], tuple(states), tuple(outputs))

    def _steps(self, mixed: list[float], controls: list[float]) -> Steps:
        weights, values = self.heads, VALUES[self.kind]

        def by_head(flat: list[float]) -> list[list[float]]:
            return [flat[at : at + values] for at in range(0, HEADS * values, values)]

        if self.kind == "mamba2":
            keys = mixed[HEADS * values :]
            return ssm_heads(
                [by_head(mixed)],
                [[[time] * values for time in controls]],
                [[[rate] * KEYS] * values for rate in weights["A"]],
                [[keys[:KEYS]]],
                [[keys[KEYS:]]],
                [[skip] * values for skip in weights["D"]],
                None,
                [[offset] * values for offset in weights["dt_bias"]],
                True,
            )
        times = zip(controls[:HEADS], weights["dt_bias"], weights["A"], strict=True)
        return delta_heads(
            [[mixed[:KEYS]]],
            [[mixed[KEYS : 2 * KEYS]]],
            [by_head(mixed[2 * KEYS :])],
            [[[-exp(rate) * softplus(time + offset)] for time, offset, rate in times]],
            [[1 / (1 + exp(-one)) for one in controls[HEADS:]]],
            KEYS**-0.5,
            True,
        )
