"""A tiny model of an architecture of mlx-lm, with random weights under which a lost state shows in the logits."""

import copy
import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import ArraysCache, CacheList, make_prompt_cache

from subjects.sequences.mlx_lm.architectures import module
from subjects.sequences.mlx_lm.configurations import Layout, arguments, has_orders
from subjects.sequences.sizes import NotBuilt

STANDARD_DEVIATIONS = (0.25, 0.35, 0.5)
"""Of weights with two dimensions. The first one under which the state shows is taken."""
_PROMPT, _ROUNDING = [1, 2, 3, 4, 5, 6, 7, 8], 0.001


@cache
def layout(architecture: str, *, attention_first: bool = False) -> Layout:
    """The smallest layout that the architecture accepts.

    Raises:
        NotBuilt: none of those that were tried; the message has the first error.
    """
    errors: list[str] = []
    # A model that runs only without a cache is built, too: that its cache fails is for the properties to say.
    candidates = list(_candidates(attention_first=attention_first))
    for with_cache, candidate in itertools.product((True, False), candidates):
        try:
            _run_once(architecture, candidate, with_cache=with_cache)
        except Exception as error:
            errors.append(" ".join(f"{type(error).__name__}: {error}".split())[:300])
        else:
            return candidate
    raise NotBuilt(errors[0])


def orders(architecture: str) -> tuple[bool, ...]:
    """Whether attention is the first layer: both, where the configuration has a choice."""
    return (False, True) if has_orders(architecture) else (False,)


def build(architecture: str, seed: int, deviation: float, *, attention_first: bool = False) -> Any:
    """A model whose weights are drawn anew.

    Args:
        deviation: standard deviation of weights with two or more dimensions; those of convolutions over time have 1, decays are slow.
    """
    # Weights with one dimension keep the library's own initial values, which may be random.
    mx.random.seed(seed)
    model = module(architecture).Model(
        arguments(architecture, layout(architecture, attention_first=attention_first))
    )
    keys = mx.random.split(mx.random.key(seed), 1 + len(tree_flatten(model.parameters())))
    drawn = [
        (name, _drawn(name, weight, key, deviation))
        for (name, weight), key in zip(tree_flatten(model.parameters()), keys, strict=False)
    ]
    model.update(tree_unflatten(drawn))
    mx.eval(model.parameters())
    return model.eval() or model


def verified(architecture: str, seed: int, least: float, *, attention_first: bool) -> Any:
    """A model with weights under which its states move the logits.

    Args:
        least: by how much of the largest logit.

    Raises:
        NotImplementedError: no weights that were tried show the states.
        NotBuilt: there is no such model.
    """
    moved = 0.0
    for deviation in STANDARD_DEVIATIONS:
        model = build(architecture, seed, deviation, attention_first=attention_first)
        moved = state_moves(model)
        if moved >= least:
            model.statecheck_deviation = deviation
            return model
    if loses_state(model):
        # That the logits do not depend on the states is for the properties to say.
        return model
    raise NotImplementedError(
        f"not verified: without its states the logits move by {moved:.2g} of their scale"
    )


def state_moves(model: Any) -> float:
    """By how much of the largest logit the next token's logits move if all states of a fixed size are zero."""
    held = make_prompt_cache(model)
    mx.eval(model(mx.array([_PROMPT]), cache=held))
    emptied = copy.deepcopy(held)
    for layer in _flat(emptied):
        if isinstance(layer, ArraysCache):
            layer.cache = [None if state is None else mx.zeros_like(state) for state in layer.cache]
    seen, without = (model(mx.array([[9]]), cache=cache).astype(mx.float32) for cache in (held, emptied))
    return float(mx.abs(seen - without).max() / mx.abs(seen).max())


def loses_state(model: Any) -> bool:
    """Whether the next token's logits behind a cache differ from those of a run over all tokens."""
    held = make_prompt_cache(model)
    mx.eval(model(mx.array([_PROMPT]), cache=held))
    seen = model(mx.array([[9]]), cache=held).astype(mx.float32)[0, -1]
    whole = model(mx.array([[*_PROMPT, 9]]), cache=make_prompt_cache(model)).astype(mx.float32)[0, -1]
    return float(mx.abs(seen - whole).max() / mx.abs(whole).max()) > _ROUNDING


def _flat(layers: Any) -> Iterator[Any]:
    for layer in layers:
        if isinstance(layer, CacheList):
            yield from _flat(layer.caches)
        else:
            yield layer


def _drawn(name: str, weight: mx.array, key: mx.array, deviation: float) -> mx.array:
    if not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    noise = mx.random.normal(weight.shape, key=key).astype(weight.dtype)
    last = name.rsplit(".", 1)[-1]
    if "A_log" in last:
        return mx.full(weight.shape, -3.0, dtype=weight.dtype)
    if "conv" in name and weight.ndim >= 3:
        return noise
    if weight.ndim >= 2:
        return noise * deviation
    return weight + noise * 0.1 if last == "bias" or "dt" in last else weight


def _candidates(*, attention_first: bool) -> Iterator[Layout]:
    switches = (False, True)
    for scale, layers, optional, switch in itertools.product((1, 4), (2, 4), switches, switches):
        yield Layout(layers, attention_first=attention_first, optional=optional, switches=switch, scale=scale)


def _run_once(architecture: str, candidate: Layout, *, with_cache: bool) -> None:
    adapted = module(architecture)
    model = adapted.Model(arguments(architecture, candidate))
    mx.eval(model(mx.array([[1, 2, 3, 4, 5]]), cache=make_prompt_cache(model) if with_cache else None))
