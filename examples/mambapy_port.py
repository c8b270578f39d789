"""mambapy (`pip install mambapy`) as a port of sequences: its parallel forward, and its step with caches.

python -m statecheck fuzz --subject examples.mambapy_port --only sequences --budget 1m
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from mambapy.mamba import Mamba, MambaConfig

STATECHECK_SEQUENCES = 1
_LAYERS = 2
torch.set_num_threads(1)


@dataclass
class Model:
    """The layers, the embedding, and the caches of each sequence."""

    layers: Any
    embedding: torch.Tensor
    caches: dict[int, Any] = field(default_factory=dict)


def models() -> Sequence[str]:
    """The only one."""
    return ("mamba",)


def features(model: str) -> dict[str, tuple[bool, ...]]:  # noqa: ARG001
    """The parallel scan, or a loop."""
    return {"pscan": (True, False)}


def new(model: str, seed: int, *, pscan: bool = True) -> Model:  # noqa: ARG001
    """Random weights, large enough for the history to matter."""
    torch.manual_seed(seed)
    layers = Mamba(MambaConfig(d_model=16, n_layers=_LAYERS, pscan=pscan))
    with torch.no_grad():
        for name, weights in layers.named_parameters():
            if weights.dim() > 1 and not name.endswith("A_log"):
                weights.normal_(0, 0.5)
    return Model(layers, torch.randn(16, 16))


@torch.no_grad()
def extend(context: Model, rows: Sequence[tuple[int, Sequence[int]]]) -> list[list[float]]:
    """A sequence that is new goes through the parallel forward, too."""
    return [_row(context, sequence, tokens) for sequence, tokens in rows]


def _row(context: Model, sequence: int, tokens: Sequence[int]) -> list[float]:
    fresh = sequence not in context.caches
    config = context.layers.config
    empty = (None, torch.zeros(1, config.d_inner, config.d_conv - 1))
    caches = context.caches.get(sequence, [empty for _ in range(_LAYERS)])
    for token in tokens:
        seen, caches = context.layers.step(context.embedding[token : token + 1], caches)
    context.caches[sequence] = caches
    if fresh:
        seen = context.layers(context.embedding[list(tokens)][None])[:, -1]
    return [float(one) for one in (seen @ context.embedding.T)[0]]


def fork(context: Model, source: int, target: int) -> None:
    """Copy the caches."""
    context.caches[target] = copy.deepcopy(context.caches[source])


def save(context: Model, sequence: int) -> Any:
    """A copy of the caches."""
    return copy.deepcopy(context.caches[sequence])


def load(context: Model, sequence: int, saved: Any) -> None:
    """Take a copy of the saved caches."""
    context.caches[sequence] = copy.deepcopy(saved)


def drop(context: Model, sequence: int) -> None:
    """Forget the caches."""
    context.caches.pop(sequence, None)
