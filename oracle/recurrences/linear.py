"""Linear attention with a decay: one for each token and head (simple GLA), or a constant of the head (RetNet, lightning attention).

Sources: Sun and others, Retentive network (2023); Qin and others, Lightning attention-2 (2024); Yang and others, Gated linear attention (2023).
"""

from __future__ import annotations

from collections.abc import Sequence

from oracle.recurrences.bounds import Matrix, dot


def linear_step(
    state: Matrix, q: Sequence[float], k: Sequence[float], v: Sequence[float], decay: float, scale: float
) -> tuple[Matrix, list[float]]:
    """State `[V][K]` and output `[V]` after a token: the state decays, and the outer product of value and key is added."""
    state = [
        [decay * kept + value * key for kept, key in zip(row, k, strict=True)]
        for row, value in zip(state, v, strict=True)
    ]
    return state, [scale * dot(row, q) for row in state]
