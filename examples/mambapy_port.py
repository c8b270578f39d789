"""mambapy (`pip install mambapy`) as a port of sequences: its parallel forward, and its step with caches.

python -m statecheck fuzz --subject examples.mambapy_port --only sequences --budget 1m
"""

from collections.abc import Sequence

import torch
from mambapy.mamba import Mamba, MambaConfig

from statecheck.sequences import StateContext, drop, fork, load, one_model, save

__all__ = ["drop", "fork", "load", "save"]
STATECHECK_SEQUENCES = 1
torch.set_num_threads(1)


models, features = one_model("mamba", pscan=(True, False))


@torch.no_grad()
def new(model: str, seed: int, *, pscan: bool = True) -> StateContext:  # noqa: ARG001 - there is one
    torch.manual_seed(seed)
    layers = Mamba(MambaConfig(d_model=16, n_layers=2, pscan=pscan))
    for name, weights in layers.named_parameters():
        if weights.dim() > 1 and not name.endswith("A_log"):
            weights.normal_(0, 0.5)  # or else the history hardly matters
    return StateContext((layers, torch.randn(16, 16)))


@torch.no_grad()
def extend(context: StateContext, rows: Sequence[tuple[int, Sequence[int]]]) -> list[list[float]]:
    layers, embedding = context.model
    empty = None, torch.zeros(1, layers.config.d_inner, layers.config.d_conv - 1)
    logits = []
    for sequence, tokens in rows:
        whole = sequence not in context.states
        caches = [empty for _ in layers.layers] if whole else context.states[sequence]
        for token in tokens:
            seen, caches = layers.step(embedding[token : token + 1], caches)
        context.states[sequence] = caches
        if whole:  # what the parallel forward makes of all tokens is compared, too
            seen = layers(embedding[list(tokens)][None])[:, -1]
        logits.append((seen @ embedding.T)[0].tolist())
    return logits
