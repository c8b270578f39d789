"""The sequences of a model of mlx-lm: a prompt cache each, which are merged for a batch, and the states in it."""

import copy
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache as library_caches
from mlx_lm.models import ssm
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    can_trim_prompt_cache,
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
    trim_prompt_cache,
)

BLOCK = 256
"""Tokens by which the library's caches of keys grow, and of a step of its scan: more than sequences of scenarios have."""


@contextmanager
def blocks(tokens: int) -> Iterator[None]:
    """While it is entered, the library's caches grow by as many tokens, and its scan makes steps of as many."""
    kinds = [kind for kind in vars(library_caches).values() if getattr(kind, "step", None) == BLOCK]
    defaults = ssm.ssm_attn.__defaults__
    try:
        for kind in kinds:
            kind.step = tokens
        ssm.ssm_attn.__defaults__ = (*defaults[:-1], tokens)
        yield
    finally:
        for kind in kinds:
            kind.step = BLOCK
        ssm.ssm_attn.__defaults__ = defaults


def states_of(cache: Sequence[Any]) -> list[tuple[str, list[float]]]:
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


@dataclass
class MlxContext:
    """A model and its sequences.

    Args:
        step: tokens of a chunk of the rows that are processed; 0 for one chunk.
        block: tokens of the library's own blocks, see `blocks`.
        effects: how often what `EFFECTS` of the port names has happened.
        reused: what the server's store held in the last generation, and the tokens of the prompt that were left to process.
    """

    model: Any
    step: int = 0
    block: int = BLOCK
    effects: Counter[str] = field(default_factory=Counter)
    caches: dict[int, list[Any]] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    reused: tuple[list[int], int] | None = None

    def extend(self, rows: Sequence[tuple[int, Sequence[int]]], pads: int = 0) -> list[Any]:
        """A single row with its own cache; more rows, or rows with pads, are merged, padded on the right and taken apart again, as the batch generator does it.

        Args:
            pads: behind the longest row.

        Returns: for each row logits [T, V] behind each of its tokens.

        Raises:
            NotImplementedError: the library refuses a chunk.
        """
        alone = len(rows) == 1 and not pads
        self.effects["extend: rows that have tokens were merged"] += len(rows) > 1 and any(
            name in self.caches for name, _ in rows
        )
        caches = [self.caches.get(name) or make_prompt_cache(self.model) for name, _ in rows]
        lengths = [len(tokens) for _, tokens in rows]
        cache = caches[0] if alone else merged(caches)
        width = max(lengths) + pads
        padding = [width - length for length in lengths]
        if any(padding):
            self.effects["extend: rows of a batch were padded"] += 1
            for layer in cache:
                layer.prepare(lengths=lengths, right_padding=padding)
        ids = mx.array([[*tokens, *[0] * (width - len(tokens))] for _, tokens in rows])
        self.effects["step: a row came in several chunks"] += 0 < self.step < width
        try:
            logits = self._chunks(ids, cache)
        except RuntimeError as error:
            # A chunk of one token beside padding, in layers with a window.
            if "finalize() should be called" in str(error):
                raise NotImplementedError(str(error)) from error
            raise
        if any(padding):
            for layer in cache:
                layer.finalize()
        for row, (name, _) in enumerate(rows):
            self.caches[name] = cache if alone else [layer.extract(row) for layer in cache]
            self.tokens[name] = [*self.tokens.get(name, []), *rows[row][1]]
            self.effects["block: a row was longer than a block"] += len(self.tokens[name]) > self.block
        return [logits[row, :length] for row, length in enumerate(lengths)]

    def fork(self, source: int, target: int) -> None:
        """A copy of the cache, as the server makes of a prompt that several requests share."""
        self.caches[target], self.tokens[target] = (
            copy.deepcopy(self.caches[source]),
            list(self.tokens[source]),
        )

    def reorder(self, order: Sequence[int]) -> None:
        """Merge all sequences, let the merged cache have these of its rows, as when requests leave a batch, and take it apart again.

        Raises:
            NotImplementedError: a cache cannot be merged.
        """
        tokens = {source: self.tokens[source] for source in sorted(self.caches)}
        batch = list(tokens)
        rows = [batch.index(source) for source in order if source in tokens]
        if rows:
            cache = merged([self.caches[source] for source in batch])
            self.effects["reorder: rows of a batch changed places"] += rows != sorted(set(rows))
            self.effects["reorder: rows left a batch"] += len(set(rows)) < len(batch)
            for layer in cache:
                layer.filter(mx.array(rows))
        row = 0
        for name, source in enumerate(order):
            self.drop(name)
            if source in tokens:
                self.caches[name] = [layer.extract(row) for layer in cache]
                self.tokens[name] = list(tokens[source])
                row += 1

    def roll_back(self, name: int, count: int) -> None:
        """Trim the cache.

        Raises:
            NotImplementedError: the library says that it cannot.
        """
        cache = self.caches[name]
        if not can_trim_prompt_cache(cache):
            raise NotImplementedError("the prompt cache cannot be trimmed")
        trimmed = trim_prompt_cache(cache, count)
        if trimmed != count:
            raise NotImplementedError(f"{trimmed} of {count} tokens were trimmed")
        self.effects["roll_back: a cache was trimmed"] += 1
        self.tokens[name] = self.tokens[name][:-count]
        if not self.tokens[name]:
            self.drop(name)

    def save(self, name: int) -> tuple[bytes, list[int]]:
        """The file that `save_prompt_cache` writes, and the tokens."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "cache.safetensors")
            save_prompt_cache(str(path), self.caches[name])
            return path.read_bytes(), list(self.tokens[name])

    def load(self, name: int, saved: tuple[bytes, list[int]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "cache.safetensors")
            path.write_bytes(saved[0])
            self.caches[name] = load_prompt_cache(str(path))
            mx.eval([layer.state for layer in self.caches[name]])
        self.tokens[name] = list(saved[1])

    def drop(self, name: int) -> None:
        self.caches.pop(name, None)
        self.tokens.pop(name, None)

    def replace(self, name: int, tokens: list[int], cache: list[Any] | None) -> None:
        """Let a sequence have tokens, with a cache of the library's that has them all or all but the last one; None for none."""
        self.drop(name)
        if cache is None:
            self.extend([(name, tokens[:-1])])
            return
        self.caches[name], self.tokens[name] = cache, tokens
        with suppress(NotImplementedError):
            self.tokens[name] = tokens[: self.length(name)]

    def length(self, name: int) -> int:
        """Tokens of the first layer that counts them.

        Raises:
            NotImplementedError: none does.
        """
        if name not in self.caches:
            return 0
        offsets = [layer.offset for layer in self.caches[name] if hasattr(layer, "offset")]
        if not offsets:
            raise NotImplementedError("no layer of the prompt cache counts tokens")
        return int(offsets[0])

    def _chunks(self, ids: mx.array, cache: list[Any]) -> Any:
        """Logits [B, T, V]."""
        width = ids.shape[1]
        step = self.step or width
        logits = []
        for start in range(0, width, step):
            output = self.model(ids[:, start : start + step], cache=cache)
            mx.eval(output, [layer.state for layer in cache])
            logits.append(np.array(output.astype(mx.float32)))
        return np.concatenate(logits, 1)


def merged(caches: Sequence[list[Any]]) -> list[Any]:
    """A cache of several rows.

    Raises:
        NotImplementedError: a layer's cache has no such operation.
    """
    layers = []
    for parts in zip(*caches, strict=True):
        if not hasattr(parts[0], "merge"):
            raise NotImplementedError(f"{type(parts[0]).__name__} does not merge rows")
        layers.append(parts[0].merge(list(parts)))
    return layers
