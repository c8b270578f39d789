"""A token of a head as a step of its recurrence: heads that share keys, gates as logarithms, norms, and what is counted as operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, isfinite, sqrt

from oracle.recurrences.bounds import SILU_SLOPE, Matrix, absolute, dot, length, silu, softplus
from oracle.recurrences.delta import delta_step
from oracle.recurrences.linear import linear_step
from oracle.recurrences.rows import HeadStep, Lengths
from oracle.recurrences.ssm import decays, ssm_step

Cube = Sequence[Sequence[Sequence[float]]]
"""Numbers by token, head and channel."""
Steps = Callable[[int, int], HeadStep]
EPSILON = 1e-6
"""Is added to the square of a norm."""


def normalised(vector: Sequence[float]) -> list[float]:
    """The vector of length 1 in its direction."""
    norm = sqrt(dot(vector, vector) + EPSILON)
    return [value / norm for value in vector]


def delta_heads(
    q: Cube,
    k: Cube,
    v: Cube,
    gates: Cube | None,
    beta: Sequence[Sequence[float]],
    scale: float,
    qk_l2norm: bool,
) -> Steps:
    """Steps of the delta rule. Several heads of values may share one of queries and keys.

    Args:
        gates: the logarithms of decays, of a head one, or one for each channel of the key; None without decay.
    """

    def step(token: int, head: int) -> HeadStep:
        shared = head // (len(v[token]) // len(k[token]))
        query, key, value = q[token][shared], k[token][shared], v[token][head]
        if qk_l2norm:
            query, key = normalised(query), normalised(key)
        logs = gates[token][head] if gates is not None else [0.0]
        decay = [exp(log) for log in logs] * (len(key) // len(logs))
        share, sizes = beta[token][head], (absolute(query), absolute(key))
        square, largest = dot(key, key), max(decay)

        def written(state: Matrix) -> list[float]:
            held = [dot([one * left for one, left in zip(row, decay, strict=True)], key) for row in state]
            return [
                abs(share) * sqrt(square) * (abs(one) + abs(old))
                for one, old in zip(value, held, strict=True)
            ]

        return HeadStep(
            lambda state: delta_step(state, query, key, value, decay, share, scale),
            lambda state: delta_step(state, *sizes, absolute(value), decay, abs(share), abs(scale), sign=1.0),
            lambda state: delta_step(
                state, *sizes, [0.0] * len(value), decay, abs(share), abs(scale), sign=1.0
            ),
            4.0 * len(key) + 8 + max(map(abs, logs)),
            # What a token takes away goes through five roundings in chunks of KDA, and with a norm through two more, since a norm stands in both factors.
            products=3.0 if qk_l2norm else 2.0,
            decay=decay,
            # A row loses the share of its part along the key: it gets no longer if that is at most twice the part.
            lengths=Lengths(
                left=largest * max(1.0, abs(1 - share * square)),
                decay=largest,
                mixed=largest * abs(share) * square,
                written=written,
                read=abs(scale) * length(query),
            ),
        )

    return step


def linear_heads(q: Cube, k: Cube, v: Cube, gates: Sequence[Sequence[float]] | None, scale: float) -> Steps:
    """Steps of linear attention; `gates` are the logarithms of decays, by token and head of values."""

    def step(token: int, head: int) -> HeadStep:
        shared = head // (len(v[token]) // len(k[token]))
        query, key, value = q[token][shared], k[token][shared], v[token][head]
        log = gates[token][head] if gates is not None else 0.0
        sizes = absolute(query), absolute(key)
        return HeadStep(
            lambda state: linear_step(state, query, key, value, exp(log), scale),
            lambda state: linear_step(state, *sizes, absolute(value), exp(log), abs(scale)),
            lambda state: linear_step(state, *sizes, [0.0] * len(value), exp(log), abs(scale)),
            2.0 * len(key) + 6 + abs(log),
        )

    return step


def ssm_heads(
    x: Cube,
    dt: Cube,
    a: Sequence[Matrix],
    b: Cube,
    c: Cube,
    d: Matrix | None,
    z: Cube | None,
    dt_bias: Matrix | None,
    dt_softplus: bool,
) -> Steps:
    """Steps of a selective state space. Several heads may share a group of `b` and `c`."""

    def step(token: int, head: int) -> HeadStep:
        group = head // (len(x[token]) // len(b[token]))
        inputs, channels = x[token][head], range(len(x[token][head]))
        bias = dt_bias[head] if dt_bias is not None else [0.0] * len(inputs)
        times = [time + offset for time, offset in zip(dt[token][head], bias, strict=True)]
        # The logarithm of 1 + exp(x) has an error of a rounding of the 1.
        sizes = [
            abs(time) + abs(offset) + (1.0 if dt_softplus else 0.0)
            for time, offset in zip(dt[token][head], bias, strict=True)
        ]
        if dt_softplus:
            times = [softplus(time) for time in times]
        left = decays(times, a[head])
        skip = d[head] if d is not None else [0.0] * len(inputs)
        gate, gates = [1.0] * len(inputs), [1.0] * len(inputs)
        if z is not None:
            gate = [silu(one) for one in z[token][head]]
            gates = [SILU_SLOPE * abs(one) for one in z[token][head]]
        keys = b[token][group], c[token][group]
        key_sizes = absolute(keys[0]), absolute(keys[1])
        rates = max(abs(rate) * sizes[channel] for channel in channels for rate in a[head][channel])
        return HeadStep(
            lambda state: ssm_step(state, inputs, times, left, *keys, skip, gate),
            lambda state: ssm_step(state, absolute(inputs), sizes, left, *key_sizes, absolute(skip), gates),
            lambda state: ssm_step(
                state, [0.0] * len(inputs), sizes, left, *key_sizes, absolute(skip), gates
            ),
            2.0 * len(keys[0]) + 12 + rates,
            exponents=rates,
        )

    return step


def in_chunks_of_batches(steps: Steps, starts: Sequence[int], chunk: int) -> Steps:
    """Steps of a kernel whose chunks go over all rows of a batch.

    A decay is the exponential of a difference of two sums over a chunk. For the first token of a row, exponents of the tokens before it in its chunk,
    which are those of other rows, are in both sums.
    """

    def step(token: int, head: int) -> HeadStep:
        found = steps(token, head)
        if token not in starts:
            return found
        before = (steps(other, head).exponents for other in range(token - token % chunk, token))
        return replace(found, operations=found.operations + sum(filter(isfinite, before)))

    return step
