"""rwkv (`pip install rwkv`) as a port of sequences: RWKV-7, whose `forward` takes one token by another path than several.

python -m statecheck fuzz --subject examples.rwkv_port --only sequences --budget 1m
"""

import copy
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from statecheck.sequences import StateContext, drop, fork, load, one_model, save

os.environ |= {"RWKV_V7_ON": "1", "RWKV_JIT_ON": "0", "RWKV_CUDA_ON": "0"}
from rwkv.model import RWKV

__all__ = ["drop", "fork", "load", "save"]
STATECHECK_SEQUENCES = 1
torch.set_num_threads(1)
WIDTH, HEADS, LAYERS, RANK, TOKENS = 16, 2, 2, 4, 16


models, features = one_model("rwkv7", full_output=(False, True), in_place=(True, False))


@cache
def _model(seed: int) -> Any:
    """A file of random weights, as the library reads it."""
    generator, weights = torch.Generator().manual_seed(seed), {}

    def add(name: str, *shape: int, spread: float = 0.5) -> None:
        weights[name] = torch.randn(shape, generator=generator) * spread

    for name in ("emb.weight", "head.weight"):
        add(name, TOKENS, WIDTH)
    for layer in range(LAYERS):
        block = f"blocks.{layer}"
        for name in ("ln0", "ln1", "ln2", "att.ln_x"):
            weights[f"{block}.{name}.weight"], weights[f"{block}.{name}.bias"] = (
                torch.ones(WIDTH),
                torch.zeros(WIDTH),
            )
        for name in ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g", "w0", "a0", "v0", "k_k", "k_a"):
            add(f"{block}.att.{name}", WIDTH)
        for name in "wavg":
            add(f"{block}.att.{name}1", WIDTH, RANK)
            add(f"{block}.att.{name}2", RANK, WIDTH)
        for name in ("receptance", "key", "value", "output"):
            add(f"{block}.att.{name}.weight", WIDTH, WIDTH)
        add(f"{block}.att.r_k", HEADS, WIDTH // HEADS)
        add(f"{block}.ffn.x_k", WIDTH)
        add(f"{block}.ffn.key.weight", 4 * WIDTH, WIDTH)
        add(f"{block}.ffn.value.weight", WIDTH, 4 * WIDTH)
    weights["ln_out.weight"], weights["ln_out.bias"] = torch.ones(WIDTH), torch.zeros(WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(weights, f"{folder}/model.pth")
        return RWKV(model=f"{folder}/model", strategy="cpu fp32")


def new(model: str, seed: int) -> StateContext:  # noqa: ARG001 - there is one
    return StateContext(_model(seed))


@torch.no_grad()
def extend(
    context: StateContext,
    rows: Sequence[tuple[int, Sequence[int]]],
    *,
    full_output: bool = False,
    in_place: bool = True,
) -> list[list[float]]:
    logits = []
    for sequence, tokens in rows:
        state = context.states.get(sequence)
        # `forward` writes into the list of states that it gets: a caller may go on with that list, or with the one that it returns.
        given = state if in_place else copy.copy(state)
        seen, context.states[sequence] = context.model.forward(list(tokens), given, full_output)
        logits.append((seen[-1] if full_output and len(tokens) > 1 else seen).tolist())
    return logits


def states(context: StateContext, sequence: int) -> list[tuple[str, list[float]]]:
    names = ("token before attention", "state", "token before the MLP")
    return [
        (f"layer {at // 3}, {names[at % 3]}", one.flatten().tolist())
        for at, one in enumerate(context.states[sequence])
    ]
