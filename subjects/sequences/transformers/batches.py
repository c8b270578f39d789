"""Sequences that share a cache, row by row, from the forward that began them until their lengths part."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from subjects.sequences.transformers.forward import forward


@dataclass
class CacheRows:
    """Rows of one cache.

    Args:
        names: the sequence of each row.
        cache: as the library made it.
        mask: int64 [B, P], 1 where a token of the cache is real.
        right: whether rows were padded behind their tokens, so that they cannot go on.
        recorded: tokens since the prompt or the last crop, which `crop` can remove.
    """

    names: list[int]
    cache: Any
    mask: torch.Tensor
    right: bool = False
    recorded: int = field(default=0)

    def length(self, name: int) -> int:
        """Tokens of a sequence, as the mask counts them."""
        return int(self.mask[self.names.index(name)].sum())


def begin(
    model: Any, rows: Sequence[tuple[int, Sequence[int]]], cache: Any, padding: str, inputs: str
) -> tuple[CacheRows, torch.Tensor]:
    """Process new sequences in one forward, padded to the longest.

    Args:
        cache: empty, or None for that which the model makes.
        padding: "left" or "right".

    Returns: the batch, and logits [B, V] behind the last token of each row.
    """
    width = max(len(tokens) for _, tokens in rows)
    ids = torch.zeros((len(rows), width), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, (_, tokens) in enumerate(rows):
        place = slice(width - len(tokens), width) if padding == "left" else slice(0, len(tokens))
        ids[row, place] = torch.tensor(list(tokens))
        mask[row, place] = 1
    result = forward(model, ids, mask, cache, inputs)
    last = [width - 1 if padding == "left" else len(tokens) - 1 for _, tokens in rows]
    right = padding == "right" and not bool(mask.all())
    batch = CacheRows([name for name, _ in rows], result.cache, mask, right)
    return batch, result.logits[torch.arange(len(rows)), last]


def extend(model: Any, batch: CacheRows, tokens: Sequence[Sequence[int]], inputs: str) -> torch.Tensor:
    """Process as many tokens for each row; logits [B, V] behind the last of them.

    Raises:
        NotImplementedError: the library has no such operation on these rows.
    """
    if batch.right:
        raise NotImplementedError("the library continues behind padding on the left only")
    ids = torch.tensor([list(row) for row in tokens])
    mask = torch.cat([batch.mask, torch.ones_like(ids)], 1)
    result = forward(model, ids, mask, batch.cache, inputs)
    batch.cache, batch.mask, batch.recorded = result.cache, mask, batch.recorded + ids.shape[1]
    return result.logits[:, -1]


def select(batch: CacheRows, names: Sequence[int]) -> CacheRows:
    """A batch of some rows of this one, which stays as it is. A single row is a copy.

    Raises:
        NotImplementedError: the cache cannot select rows.
    """
    rows = [batch.names.index(name) for name in names]
    cache = copy.deepcopy(batch.cache)
    if rows != list(range(len(batch.names))):
        reordered(cache, rows)
    mask = batch.mask[rows]
    # Columns that are padding in all rows stay: they are in the cache.
    return CacheRows(list(names), cache, mask, batch.right and not bool(mask.all()), batch.recorded)


def reordered(cache: Any, rows: Sequence[int]) -> None:
    """Let the cache hold these of its rows, in place, as a beam search does it.

    Raises:
        NotImplementedError: it has no such operation.
    """
    if not hasattr(cache, "reorder_cache"):
        raise NotImplementedError(f"{type(cache).__name__} does not reorder rows")
    cache.reorder_cache(torch.tensor(rows))
