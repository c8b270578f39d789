"""The states of a sequence in a prompt cache of mlx-lm: arrays of a fixed size, and keys and values of plain attention."""

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache


def states(cache: Sequence[Any]) -> list[tuple[str, list[float]]]:
    """By name, in the order of the layers."""
    found = [pair for number, layer in enumerate(cache) for pair in _layer(f"layer {number}", layer)]
    return [(name, np.array(array.astype(mx.float32)).ravel().tolist()) for name, array in found]


def _layer(name: str, layer: Any) -> Iterator[tuple[str, mx.array]]:
    if isinstance(layer, CacheList):
        for index, part in enumerate(layer.caches):
            yield from _layer(f"{name}, part {index}", part)
    elif isinstance(layer, ArraysCache):
        for index, array in enumerate(layer.cache):
            if array is not None:
                yield f"{name}, state {index}", array
    elif type(layer) is KVCache and layer.offset:
        yield f"{name}, keys", layer.keys[..., : layer.offset, :]
        yield f"{name}, values", layer.values[..., : layer.offset, :]
