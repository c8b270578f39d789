"""A tiny model of an architecture, from its configuration class alone."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from subjects.sequences.sizes import NotBuilt
from subjects.sequences.transformers.architectures import model_class
from subjects.sequences.transformers.configurations import configuration, default_kinds, named_kinds

_SECONDS = 60.0
_SCALES = (1, 2, 4)


@dataclass(frozen=True)
class ModelSizes:
    """Sizes with which an architecture can be built and runs."""

    kinds: tuple[str, ...]
    layers: int
    scale: int


@cache
def layer_kinds(architecture: str) -> tuple[str, ...]:
    """The kinds of layers that an architecture mixes; () where it has no list of them."""
    kinds = list(default_kinds(architecture))
    for kind in named_kinds(architecture):
        try:
            _plan(architecture, (*kinds, kind), None)
        except NotBuilt:
            continue
        kinds.append(kind)
    return tuple(kinds)


def plan(architecture: str, first: str | None = None) -> ModelSizes:
    """The smallest sizes that the architecture accepts.

    Raises:
        NotBuilt: none of those that were tried; the message has the first error.
    """
    return _plan(architecture, layer_kinds(architecture), first)


@cache
def _plan(architecture: str, kinds: tuple[str, ...], first: str | None) -> ModelSizes:
    errors: list[str] = []
    end = time.monotonic() + _SECONDS
    # A model that runs only without a cache is built, too: that its cache fails is for the properties to say.
    for with_cache in (True, False):
        for candidate in _candidates(kinds):
            if time.monotonic() > end:
                break
            try:
                _run_once(architecture, candidate, first, with_cache=with_cache)
            except Exception as error:
                errors.append(" ".join(f"{type(error).__name__}: {error}".split())[:300])
            else:
                return candidate
    raise NotBuilt(errors[0] if errors else "no time")


def build(architecture: str, seed: int, first: str | None = None) -> Any:
    """A model in evaluation mode, with the library's own initial weights of that seed."""
    sizes = plan(architecture, first)
    torch.manual_seed(seed)
    return _made(architecture, sizes, first)


def _candidates(kinds: tuple[str, ...]) -> Iterator[ModelSizes]:
    least = max(2, len(kinds))
    for scale in _SCALES:
        for layers in sorted({least, max(3, least), 2 * least}):
            yield ModelSizes(kinds, layers, scale)


def _made(architecture: str, sizes: ModelSizes, first: str | None) -> Any:
    return model_class(architecture)(
        configuration(architecture, sizes.kinds, sizes.layers, first, sizes.scale)
    ).eval()


def _run_once(architecture: str, sizes: ModelSizes, first: str | None, *, with_cache: bool) -> None:
    model = _made(architecture, sizes, first)
    tokens = torch.arange(1, 8)[None]
    with torch.no_grad():
        model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=with_cache)
