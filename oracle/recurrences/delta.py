"""The delta rule, without a gate, with one for each head (GDN) and with one for each channel of the key (KDA).

Sources: Yang and others, Parallelizing linear transformers with the delta rule over sequence length (2024); Gated delta networks (2024);
Kimi Linear (2025).
"""

from __future__ import annotations

from collections.abc import Sequence

from oracle.recurrences.bounds import Matrix, dot


def delta_step(
    state: Matrix,
    q: Sequence[float],
    k: Sequence[float],
    v: Sequence[float],
    decay: Sequence[float],
    beta: float,
    scale: float,
    sign: float = -1.0,
) -> tuple[Matrix, list[float]]:
    """State `[V][K]` and output `[V]` after a token.

    The state decays, for each channel of the key by itself. What it then holds for the key moves towards the value by the share `beta`.

    Args:
        sign: 1.0 in the run on absolute values.
    """
    state = [[kept * part for kept, part in zip(row, decay, strict=True)] for row in state]
    moves = [beta * (wanted + sign * dot(row, k)) for row, wanted in zip(state, v, strict=True)]
    state = [
        [kept + move * part for kept, part in zip(row, k, strict=True)]
        for row, move in zip(state, moves, strict=True)
    ]
    return state, [scale * dot(row, q) for row in state]
