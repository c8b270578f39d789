"""The forward of a model, whatever its argument for the cache is called in the release."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

_CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")
"""Newest name first: releases rename the argument, and some models swallow an unknown name."""
_OUTPUT_NAMES = _CACHE_NAMES
NO_CACHE = "no cache"
"""Stands for the cache of sequences that are processed as a whole each time."""
PREPARED, DIRECT = "prepared", "direct"
"""Inputs as the model's own `prepare_inputs_for_generation` makes them, or tokens, whole mask and cache as they are."""


@cache
def parameters(function: Any) -> frozenset[str]:
    """The names of a function's parameters, behind the decorators that rename them."""
    return frozenset(inspect.signature(inspect.unwrap(function)).parameters)


def cache_name(model: Any) -> str:
    """The name of a model's argument for the cache.

    Raises:
        NotImplementedError: it has none.
    """
    for name in _CACHE_NAMES:
        if name in parameters(type(model).forward):
            return name
    raise NotImplementedError(f"the forward of {type(model).__name__} takes no cache")


def cache_of(output: Any) -> Any:
    """The cache in the result of a forward or of `generate`; None where there is none."""
    return next((output[name] for name in _OUTPUT_NAMES if output.get(name) is not None), None)


@dataclass(frozen=True)
class Result:
    """The result of a forward.

    Args:
        logits: [B, T, V].
        cache: the one that was passed in where the model returns none.
    """

    logits: torch.Tensor
    cache: Any


def forward(
    model: Any,
    tokens: torch.Tensor,
    mask: torch.Tensor,
    held: Any = None,
    inputs: str = PREPARED,
    observe: Callable[[dict[str, Any]], None] = lambda given: None,
) -> Result:
    """Process `tokens` behind what the cache `held` has.

    Args:
        tokens: int64 [B, T].
        mask: int64 [B, P + T], 1 where a token is real, for the P tokens of the cache, too.
        inputs: PREPARED or DIRECT.
        observe: gets the arguments of the forward before it runs.
    """
    given = _prepared(model, tokens, mask, held) if inputs == PREPARED else _direct(model, tokens, mask, held)
    observe(given)
    with torch.no_grad():
        output = model(**given)
    found = cache_of(output)
    return Result(output.logits, held if found is None else found)


def uncached(
    model: Any,
    tokens: torch.Tensor,
    mask: torch.Tensor,
    observe: Callable[[dict[str, Any]], None] = lambda given: None,
) -> Result:
    """Process whole sequences with `use_cache=False`.

    Args:
        tokens: int64 [B, T].
        mask: int64 [B, T], 1 where a token is real.
        observe: gets the arguments of the forward before it runs.
    """
    given = {"input_ids": tokens, "attention_mask": mask, "use_cache": False, **_positions(model, mask)}
    observe(given)
    with torch.no_grad():
        return Result(model(**given).logits, NO_CACHE)


def _direct(model: Any, tokens: torch.Tensor, mask: torch.Tensor, held: Any) -> dict[str, Any]:
    given = {} if held is None else {cache_name(model): held}
    if model.dtype != torch.float32:
        # Without positions a model counts padding, too, and rotates keys by other angles: with 16 bits roundings go beyond the tolerance.
        given |= _latest_positions(model, tokens, mask)
    return {"input_ids": tokens, "attention_mask": mask, "use_cache": True, **given}


def _positions(model: Any, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Positions count real tokens; none for a model that takes none."""
    if "position_ids" not in parameters(type(model).forward):
        return {}
    return {"position_ids": (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)}


def _latest_positions(model: Any, tokens: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of the tokens of a forward; `mask` covers those before them, too."""
    return {name: positions[:, -tokens.shape[1] :] for name, positions in _positions(model, mask).items()}


def _prepared(model: Any, tokens: torch.Tensor, mask: torch.Tensor, held: Any) -> dict[str, Any]:
    """Positions as `generate` makes them: they count real tokens."""
    width = tokens.shape[1]
    first = mask.shape[1] == width
    given = {"attention_mask": mask, "use_cache": True, cache_name(model): held}
    given |= _latest_positions(model, tokens, mask)
    taken = parameters(type(model).prepare_inputs_for_generation)
    if "cache_position" in taken:
        given["cache_position"] = torch.arange(mask.shape[1] - width, mask.shape[1])
    if "is_first_iteration" in taken:
        given["is_first_iteration"] = first
    prepared: dict[str, Any] = model.prepare_inputs_for_generation(tokens, **given)
    if "logits_to_keep" in prepared:
        # Rows that are padded behind their tokens end earlier.
        prepared["logits_to_keep"] = 0
    if prepared["input_ids"].shape != tokens.shape:
        raise NotImplementedError("prepare_inputs_for_generation keeps the last token only behind a state")
    return prepared
