"""Sequences that share a cache, row by row, from the forward that began them until their lengths part."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from transformers import DataCollatorWithFlattening

from subjects.sequences.transformers.forward import NO_CACHE, cache_name, forward, parameters, uncached
from subjects.sequences.transformers.trace import current


@dataclass
class CacheRows:
    """Rows of one cache.

    Args:
        names: the sequence of each row.
        cache: as the library made it.
        mask: int64 [B, P], 1 where a token of the cache is real.
        right: whether rows were padded behind their tokens, so that they cannot go on.
        recorded: tokens since the beginning or the last crop, which `crop` can remove.
        label: the name of the cache in a trace.
    """

    names: list[int]
    cache: Any
    mask: torch.Tensor
    right: bool = False
    recorded: int = field(default=0)
    label: str = ""

    def length(self, name: int) -> int:
        """Tokens of a sequence, as the mask counts them."""
        return int(self.mask[self.names.index(name)].sum())


def begin(
    model: Any,
    rows: Sequence[tuple[int, Sequence[int]]],
    cache: Any,
    padding: str,
    inputs: str,
    label: str = "",
    pads: int = 0,
) -> tuple[CacheRows, list[torch.Tensor]]:
    """Process new sequences in one forward, padded to the longest.

    Args:
        cache: empty, or None for that which the model makes.
        padding: "left" or "right".
        label: the name of the cache in a trace.
        pads: of the longest row.

    Returns: the batch, and for each row logits [T, V] behind each of its tokens.
    """
    ids, mask = padded([tokens for _, tokens in rows], padding, pads)
    width = ids.shape[1]
    last = [width - 1 if padding == "left" else len(tokens) - 1 for _, tokens in rows]
    observe = _traced(model, label, last, [tokens for _, tokens in rows])
    if cache == NO_CACHE:
        result = uncached(model, ids, mask, observe)
    else:
        result = forward(model, ids, mask, cache, inputs, observe)
    right = padding == "right" and not bool(mask.all())
    names = [name for name, _ in rows]
    batch = CacheRows(names, result.cache, mask, right, recorded=width, label=label)
    # Where the release broadcasts rows over each other, logits have an axis too many, and are wrong: no mask fits them, but indices do.
    return batch, [logits[real.nonzero()[:, 0]] for logits, real in zip(result.logits, mask, strict=True)]


def packed(model: Any, rows: Sequence[tuple[int, Sequence[int]]]) -> list[tuple[CacheRows, torch.Tensor]]:
    """Process whole sequences as one row with the boundaries that the library's own collator writes; no cache is left.

    Returns: for each row its batch, and logits [T, V] behind each of its tokens.

    Raises:
        NotImplementedError: the library refuses packed rows.
    """
    collate = DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_seq_idx=True, return_tensors="pt"
    )
    given = dict(collate([{"input_ids": list(tokens)} for _, tokens in rows]))
    del given["labels"]
    if "position_ids" not in parameters(type(model).forward):
        del given["position_ids"]
    ends = list(accumulate(len(tokens) for _, tokens in rows))
    trace = current()
    labels = [trace.begun(None) if trace else "" for _ in rows]
    observe = _traced(model, labels[0], [end - 1 for end in ends], [tokens for _, tokens in rows])
    observe(given | {"use_cache": False})
    try:
        with torch.no_grad():
            logits = model(**given, use_cache=False).logits[0]
    except (ValueError, NotImplementedError) as error:
        raise NotImplementedError(f"packed rows: {error}") from error
    ones = [torch.ones((1, len(tokens)), dtype=torch.int64) for _, tokens in rows]
    return [
        (CacheRows([name], NO_CACHE, mask, label=label), logits[end - len(tokens) : end])
        for (name, tokens), mask, label, end in zip(rows, ones, labels, ends, strict=True)
    ]


def padded(rows: Sequence[Sequence[int]], padding: str, pads: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and mask [B, T] of rows, padded on the "left" or "right" to the longest and as many pads more."""
    width = max(map(len, rows)) + pads
    ids = torch.zeros((len(rows), width), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, tokens in enumerate(rows):
        place = slice(width - len(tokens), width) if padding == "left" else slice(0, len(tokens))
        ids[row, place] = torch.tensor(list(tokens))
        mask[row, place] = 1
    return ids, mask


def extend(
    model: Any,
    batch: CacheRows,
    tokens: Sequence[Sequence[int]],
    whole: Sequence[Sequence[int]],
    inputs: str,
    padding: str,
) -> Sequence[torch.Tensor]:
    """Process as many tokens for each row; for each row logits [T, V] behind each of them.

    Args:
        whole: the tokens of each row from the first one on.
        padding: of whole rows that have no cache.

    Raises:
        NotImplementedError: the library has no such operation on these rows.
    """
    if batch.cache == NO_CACHE:
        rows = list(zip(batch.names, whole, strict=True))
        again, logits = begin(model, rows, NO_CACHE, padding, inputs, batch.label)
        batch.mask = again.mask
        return [row[-len(new) :] for row, new in zip(logits, tokens, strict=True)]
    if batch.right:
        raise NotImplementedError("the library continues behind padding on the left only")
    ids = torch.tensor([list(row) for row in tokens])
    mask = torch.cat([batch.mask, torch.ones_like(ids)], 1)
    observe = _traced(model, batch.label, [ids.shape[1] - 1] * len(ids), whole)
    result = forward(model, ids, mask, batch.cache, inputs, observe)
    batch.cache, batch.mask, batch.recorded = result.cache, mask, batch.recorded + ids.shape[1]
    return list(result.logits)


def select(batch: CacheRows, names: Sequence[int]) -> CacheRows:
    """A batch of some rows of this one, which stays as it is. A single row is a copy.

    Raises:
        NotImplementedError: the cache cannot select rows.
    """
    rows = [batch.names.index(name) for name in names]
    cache = copy.deepcopy(batch.cache)
    label = trace.copied(batch.label) if (trace := current()) else ""
    if rows != list(range(len(batch.names))):
        reordered(cache, rows, label)
    mask = batch.mask[rows]
    # Columns that are padding in all rows stay: they are in the cache.
    right = batch.right and not bool(mask.all())
    return CacheRows(list(names), cache, mask, right, batch.recorded, label)


def reordered(cache: Any, rows: Sequence[int], label: str) -> None:
    """Let the cache hold these of its rows, in place, as a beam search does it.

    Raises:
        NotImplementedError: it has no such operation.
    """
    if cache == NO_CACHE:
        return
    if not hasattr(cache, "reorder_cache"):
        raise NotImplementedError(f"{type(cache).__name__} does not reorder rows")
    if trace := current():
        trace.did(f"{label}.reorder_cache(torch.tensor({list(rows)}))")
    cache.reorder_cache(torch.tensor(rows))


def _traced(
    model: Any, label: str, last: Sequence[int], rows: Sequence[Sequence[int]]
) -> Callable[[dict[str, Any]], None]:
    """The recorder of a forward, if a trace is being written."""
    trace = current()
    if trace is None:
        return lambda given: None
    name = cache_name(model)
    return lambda given: trace.ran(
        label, {key: value for key, value in given.items() if key != name}, last, rows
    )
