"""The states of a sequence in a cache of transformers: what layers with recurrent states hold, and keys and values."""

from collections.abc import Iterator
from typing import Any

import torch

from subjects.sequences.transformers.batches import CacheRows


def states(batch: CacheRows, name: int) -> list[tuple[str, list[float]]]:
    """The states of one sequence by name, in the order of the layers, without padding and without what was recorded besides.

    Keys and values of static caches, whose columns are reserved, are left out.
    """
    row = batch.names.index(name)
    found = [*_layers(batch, row), *_others(batch.cache, row)]
    return [(name, tensor.float().flatten().tolist()) for name, tensor in found]


def _layers(batch: CacheRows, row: int) -> Iterator[tuple[str, torch.Tensor]]:
    for number, layer in enumerate(getattr(batch.cache, "layers", ())):
        for kind in ("conv_states", "recurrent_states"):
            held = getattr(layer, kind, None)
            several = held if isinstance(held, dict) else {0: held}
            for index, tensor in several.items():
                if isinstance(tensor, torch.Tensor):
                    yield (
                        f"layer {number}, {kind}[{index}]",
                        _window(layer, index, tensor[row]) if kind == "conv_states" else tensor[row],
                    )
        for kind in ("keys", "values"):
            tensor = getattr(layer, kind, None)
            if isinstance(tensor, torch.Tensor) and tensor.numel() and "Static" not in type(layer).__name__:
                yield f"layer {number}, {kind}", _columns(layer, tensor[row], batch.mask[row])


def _window(layer: Any, index: int, tensor: torch.Tensor) -> torch.Tensor:
    """As many inputs as the convolution needs."""
    sizes = getattr(layer, "conv_kernel_size", None)
    width = (sizes[index] if isinstance(sizes, dict) else sizes) or tensor.shape[-1]
    missing = max(0, width - tensor.shape[-1])
    return torch.nn.functional.pad(tensor, (missing, 0))[..., -width:]


def _columns(layer: Any, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The columns of tokens, of a window of attention only those that it has."""
    count = tensor.shape[-2]
    kept = tensor[:, mask[-count:].bool()] if count <= len(mask) else tensor
    window = getattr(layer, "sliding_window", None)
    return kept[:, -(window - 1) :] if window else kept


def _others(cache: Any, row: int) -> Iterator[tuple[str, torch.Tensor]]:
    """States that a cache of the model's own has beside its layers."""
    for kind in ("linear_cache", "rnn_state"):
        held = getattr(cache, kind, None) or ()
        for number, tensors in held.items() if isinstance(held, dict) else enumerate(held):
            several = tensors if isinstance(tensors, list | tuple) else [tensors]
            for index, tensor in enumerate(several):
                yield f"layer {number}, {kind}[{index}]", tensor[row]
    if isinstance(cache, list):
        for number, tensor in enumerate(cache):
            yield f"state {number}", tensor[row]
