"""Random weights under which a lost state shows in the logits."""

import copy
from typing import Any

import torch
from torch import nn

from subjects.sequences.transformers.forward import forward

STANDARD_DEVIATIONS = (0.25, 0.35, 0.5)
"""Of weights with two dimensions. The first one under which the state shows is taken."""
_STATES = ("conv_states", "recurrent_states", "conv_state", "recurrent_state", "linear_cache", "rnn_state")
_ROUNDING = 0.001
_PROMPT = ((1, 2, 3, 4, 5, 6, 7, 8, 9),)


def verified(model: nn.Module, seed: int, least: float) -> nn.Module:
    """The model with weights under which its states move the logits.

    Args:
        least: by how much of the largest logit.

    Raises:
        NotImplementedError: no weights that were tried show the states.
    """
    moved = 0.0
    for deviation in STANDARD_DEVIATIONS:
        randomise(model, seed, deviation)
        model._statecheck_deviation = deviation  # type: ignore[assignment]
        moved = state_moves(copy.deepcopy(model))
        if moved >= least:
            return model
    if loses_state(copy.deepcopy(model)):
        # That the logits do not depend on the states is for the properties to say.
        return model
    raise NotImplementedError(
        f"not verified: without its states the logits move by {moved:.2g} of their scale"
    )


def randomise(model: nn.Module, seed: int, deviation: float) -> None:
    """Draw all weights anew.

    Args:
        deviation: standard deviation of weights with two or more dimensions; those of convolutions over time have 1, decays are slow.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.dtype)
            last = name.rsplit(".", 1)[-1]
            if "A_log" in last:
                parameter.fill_(-3.0)
            elif "conv" in name and parameter.ndim >= 2:
                parameter.copy_(noise if parameter.ndim == 3 else noise * deviation)
            elif parameter.ndim >= 2:
                parameter.copy_(noise * deviation)
            elif last == "bias" or "dt" in last:
                parameter.add_(noise * 0.1)


def state_moves(model: Any) -> float:
    """By how much of the largest logit the next token's logits move if all states are zero; infinite where there is no known state."""
    tokens = torch.tensor(_PROMPT)
    mask = torch.ones_like(tokens)
    try:
        held = forward(model, tokens[:, :-1], mask[:, :-1]).cache
        emptied = copy.deepcopy(held)
        if not _empty(emptied):
            return float("inf")
        seen, without = (forward(model, tokens[:, -1:], mask, cache).logits for cache in (held, emptied))
    except Exception:
        # That the cache fails is for the properties to say.
        return float("inf")
    return float((seen - without).abs().max() / seen.abs().max())


def loses_state(model: Any) -> bool:
    """Whether the next token's logits behind a cache differ from those of a run over all tokens."""
    tokens = torch.tensor(_PROMPT)
    mask = torch.ones_like(tokens)
    held = forward(model, tokens[:, :-1], mask[:, :-1]).cache
    seen = forward(model, tokens[:, -1:], mask, held).logits[:, -1]
    whole = forward(model, tokens, mask).logits[:, -1]
    return float((seen - whole).abs().max() / whole.abs().max()) > _ROUNDING


def _empty(held: Any) -> bool:
    """Fill the states of a cache with zeros; whether there were any."""
    found = False
    for owner in (held, *getattr(held, "layers", ())):
        for name in _STATES:
            for tensor in _tensors(getattr(owner, name, None)):
                tensor.zero_()
                found = True
    return found


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [tensor for element in value for tensor in _tensors(element)]
        if isinstance(value, list | tuple)
        else []
    )
