"""The selective state space models Mamba-1, whose decay has an entry for each channel and state, and Mamba-2, with one for each head.

Sources: Gu and Dao, Mamba (2023); Dao and Gu, Transformers are SSMs (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from oracle.recurrences.bounds import Matrix, dot


def decays(dt: Sequence[float], a: Matrix) -> Matrix:
    """What is left of each entry of a state after a time `dt`: `a` has the exponents, `[P][N]`, none of them positive; of Mamba-2 all the same."""
    return [[exp(rate * time) for rate in row] for row, time in zip(a, dt, strict=True)]


def ssm_step(
    state: Matrix,
    x: Sequence[float],
    dt: Sequence[float],
    decay: Matrix,
    b: Sequence[float],
    c: Sequence[float],
    d: Sequence[float],
    gate: Sequence[float],
) -> tuple[Matrix, list[float]]:
    """State `[P][N]` and output `[P]` after a token; `gate` is what the output is multiplied by, `silu(z)` or ones."""
    state = [
        [left * kept + dt_ * b_ * x_ for kept, left, b_ in zip(row, lefts, b, strict=True)]
        for row, lefts, dt_, x_ in zip(state, decay, dt, x, strict=True)
    ]
    outputs = zip(state, d, x, gate, strict=True)
    return state, [gate_ * (dot(row, c) + d_ * x_) for row, d_, x_, gate_ in outputs]
