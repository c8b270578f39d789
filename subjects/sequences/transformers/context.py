"""The sequences of a model: which share a cache, and what happens to them."""

import copy
import io
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache, StaticCache

from subjects.sequences.conditions import DROPPED, RESET, UNCROPPABLE
from subjects.sequences.transformers import batches
from subjects.sequences.transformers.batches import CacheRows
from subjects.sequences.transformers.forward import DIRECT, NO_CACHE, forward
from subjects.sequences.transformers.trace import current

_Sequence = tuple[CacheRows, list[int], torch.Tensor]
"""A batch of one row, its tokens, and the logits behind the last of them."""
_MOST_TOKENS = 256
"""Columns of a static cache."""
CROP_REFUSED = "support `crop` method"
"""The message of a cache of its own kind, such as that of MiniMax, that has no `crop`."""


class _Cancelled(Exception):
    """The exception that ends a forward from outside."""


@dataclass
class TransformersContext:
    """A model and its sequences.

    Args:
        padding: where a batch of unequal new sequences is padded, "left" or "right".
        inputs: "prepared" or "direct".
        cache: "dynamic", "static", or "none" for whole sequences with `use_cache=False`.
        record: caches record the past from their first token on, so that tokens can be removed, as assisted generation has it.
        crop: "checked" asks the cache first whether it can be cropped.
        reset: a sequence that begins gets the cache of one that was dropped, which the library resets.
        effects: how often what `EFFECTS` of the port names has happened.
        dropped: caches of one row that were reset, with their names in a trace.
    """

    model: Any
    padding: str = "left"
    inputs: str = "prepared"
    cache: str = "dynamic"
    record: bool = False
    crop: str = "checked"
    reset: bool = False
    effects: Counter[str] = field(default_factory=Counter)
    dropped: list[tuple[Any, str]] = field(default_factory=list)
    batches: dict[int, CacheRows] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    last: dict[int, torch.Tensor] = field(default_factory=dict)
    """Logits behind the last token of a sequence."""

    def extend(
        self, rows: Sequence[tuple[int, Sequence[int]]], pads: int = 0, *, packed: bool = False
    ) -> list[torch.Tensor]:
        """New sequences are one batch; those that have tokens go on in the batches that they share. If packed, all go on without a cache.

        Args:
            pads: of the longest of the new sequences.

        Returns: for each row logits [T, V] behind each of its tokens.
        """
        logits: dict[int, torch.Tensor] = {}
        if packed:
            known = [(name, [*self.tokens.get(name, ()), *tokens]) for name, tokens in rows]
            found = batches.packed(self.model, known)
            self._move(
                [
                    (name, (batch, tokens, seen[-1]))
                    for (name, tokens), (batch, seen) in zip(known, found, strict=True)
                ]
            )
            return [seen[-len(tokens) :].float() for (_, tokens), (_, seen) in zip(rows, found, strict=True)]
        new = [(name, tokens) for name, tokens in rows if name not in self.batches]
        if new:
            logits |= self._begin(new, pads)
        old = {name: tokens for name, tokens in rows if name not in logits}
        while old:
            name = next(iter(old))
            batch = self._together(name, old)
            self.effects["extend: rows of one cache went on"] += len(batch.names) > 1
            self.effects["padding: rows went on behind padding"] += not bool(batch.mask.all())
            self.effects["inputs: a forward got the cache as it is"] += (
                self.inputs == DIRECT and batch.cache != NO_CACHE
            )
            self.effects["cache: tokens went on behind a static cache"] += isinstance(
                batch.cache, StaticCache
            )
            self.effects["cache: tokens before were processed again"] += batch.cache == NO_CACHE
            new_tokens = [old[member] for member in batch.names]
            whole = [[*self.tokens[member], *old[member]] for member in batch.names]
            result = batches.extend(self.model, batch, new_tokens, whole, self.inputs, self.padding)
            logits |= dict(zip(batch.names, result, strict=True))
            for member in batch.names:
                self.tokens[member] += old.pop(member)
        self.last |= {name: seen[-1] for name, seen in logits.items()}
        return [logits[name].float() for name, _ in rows]

    def fork(self, source: int, target: int) -> None:
        """A copy of the cache, as for a prompt that several requests share."""
        self._move([(target, self._copied(source))])

    def reorder(self, order: Sequence[int]) -> None:
        """Rows of one cache are reordered as in a beam search; other sequences are copied."""
        names = list(range(len(order)))
        batch = self.batches.get(order[0])
        if batch is not None and sorted(batch.names) == names and set(order) <= set(names):
            rows = [batch.names.index(name) for name in order]
            batches.reordered(batch.cache, rows, batch.label)
            self.effects["reorder: rows of a cache changed places"] += rows != list(range(len(rows)))
            batch.mask, batch.names = batch.mask[rows], names
            self.tokens |= dict(enumerate([list(self.tokens[source]) for source in order]))
            self.last |= dict(enumerate([self.last.get(source, torch.empty(0)) for source in order]))
            return
        self._move(
            [
                (name, self._copied(source) if source in self.batches else None)
                for name, source in enumerate(order)
            ]
        )

    def roll_back(self, name: int, count: int) -> None:
        """Remove the last tokens, as assisted generation does with candidates that were not accepted.

        Raises:
            NotImplementedError: the cache says that it cannot, or its last columns are padding.
        """
        batch, tokens, last = self._copied(name)
        if not hasattr(batch.cache, "crop"):
            raise NotImplementedError(f"{type(batch.cache).__name__} cannot be cropped")
        if count >= len(tokens):
            self.drop(name)
            return
        if batch.right:
            raise NotImplementedError("the last columns of the cache are padding, which crop would remove")
        croppable = getattr(batch.cache, "is_croppable", True)
        if self.crop == "checked" and not croppable:
            raise NotImplementedError("the cache says that it is not croppable")
        layers = getattr(batch.cache, "layers", ())
        recording = [layer.record_past for layer in layers if hasattr(layer, "record_past")]
        if recording and not (all(recording) and count <= batch.recorded):
            raise NotImplementedError("the cache has not recorded as many tokens")
        if trace := current():
            trace.did(f"{batch.label}.crop({-count})")
        try:
            batch.cache.crop(-count)
        except RuntimeError as error:
            if CROP_REFUSED in str(error):
                raise NotImplementedError(str(error)) from error
            raise
        self.effects["roll_back: a cache was cropped"] += 1
        self.effects["record: a recorded past was cropped"] += bool(recording)
        self.effects[UNCROPPABLE] += not croppable
        batch.mask = batch.mask[:, :-count]
        batch.recorded = 0
        self._move([(name, (batch, tokens[:-count], last))])
        self.last[name] = torch.empty(0)

    def save(self, name: int) -> bytes:
        """The cache of a sequence, pickled."""
        written = io.BytesIO()
        torch.save(self._copied(name), written)
        return written.getvalue()

    def load(self, name: int, saved: bytes) -> None:
        loaded: _Sequence = torch.load(io.BytesIO(saved), weights_only=False)
        if trace := current():
            loaded[0].label = trace.loaded(loaded[0].label)
        self._move([(name, loaded)])

    def drop(self, name: int) -> None:
        """Forget a sequence. The rows that shared its cache go on without it."""
        batch = self.batches.get(name)
        alone = batch is not None and batch.names == [name] and hasattr(batch.cache, "reset")
        self._move([(name, None)])
        if self.reset and alone and batch is not None:
            if trace := current():
                trace.did(f"{batch.label}.reset()")
            batch.cache.reset()
            self.effects[DROPPED] += 1
            self.dropped.append((batch.cache, batch.label))

    def cancel(self, name: int, tokens: Sequence[int], after: int) -> None:
        """An exception ends a forward of the tokens behind `after` layers, or behind all of them. Then the sequence is dropped, as by `drop`.

        A row leaves its batch before: a forward that ends in all rows would leave the batch with layers of different lengths, which the
        library does not undo. So a later call can meet a cache that was reset, what the model's modules hold, and neighbours whose rows
        were selected.

        Raises:
            NotImplementedError: as `extend`.
        """
        output = self.model.get_output_embeddings()
        if output is None:
            raise NotImplementedError("cancel: the model has no module behind its layers")
        layers = next(module for module in self.model.modules() if isinstance(module, torch.nn.ModuleList))

        def end(*_: Any) -> None:
            raise _Cancelled

        with [*layers, output][min(after, len(layers))].register_forward_pre_hook(end), suppress(_Cancelled):
            self.extend([(name, tokens)])
            raise AssertionError("the forward was not ended")
        self.effects["cancel: a forward was ended"] += 1
        self.drop(name)

    def length(self, name: int) -> int:
        """Tokens of a sequence, as its cache counts them, without padding.

        Raises:
            NotImplementedError: the cache counts none.
        """
        if name not in self.batches:
            return 0
        batch = self.batches[name]
        if not hasattr(batch.cache, "get_seq_length"):
            raise NotImplementedError(f"{type(batch.cache).__name__} reports no length")
        try:
            columns = batch.cache.get_seq_length()
        except ValueError as error:
            raise NotImplementedError(str(error)) from error
        return int(columns) - batch.mask.shape[1] + batch.length(name)

    def isolated(self, name: int) -> CacheRows:
        """A copy of the cache of one sequence."""
        return self._copied(name)[0]

    def replace(self, name: int, tokens: Sequence[int], cache: Any, label: str) -> None:
        """Let a sequence have tokens that `generate` has put into a cache of one row."""
        mask = torch.ones((1, len(tokens)), dtype=torch.int64)
        batch = CacheRows([name], cache, mask, label=label)
        self._move([(name, (batch, list(tokens), torch.empty(0)))])

    def _begin(self, rows: list[tuple[int, Sequence[int]]], pads: int) -> dict[int, torch.Tensor]:
        cache, label = self._empty(len(rows))
        batch, logits = batches.begin(self.model, rows, cache, self.padding, self.inputs, label, pads)
        if not bool(batch.mask.all()):
            self.effects[f"padding: rows were padded on the {self.padding}"] += 1
        for name, tokens in rows:
            self.batches[name], self.tokens[name] = batch, list(tokens)
        return dict(zip(batch.names, logits, strict=True))

    def _empty(self, rows: int) -> tuple[Any, str]:
        """A cache to begin with, and its name in a trace; None where the model makes its own."""
        if self.dropped and rows == 1:
            self.effects[RESET] += 1
            return self.dropped.pop()
        cache = empty_cache(self.model, self.cache)
        if self.record and cache is None and own_cache(self.model) == DynamicCache:
            cache = DynamicCache(config=self.model.config)
        label = trace.begun(cache) if (trace := current()) else ""
        if self.record and hasattr(cache, "activate_past_recording"):
            if trace:
                trace.recorded(label)
            cache.activate_past_recording()
        return cache, label

    def _together(self, name: int, rows: dict[int, Sequence[int]]) -> CacheRows:
        """The batch of the rows that can go on with `name`: as many tokens, and the same cache."""
        batch = self.batches[name]
        members = [
            member for member in batch.names if member in rows and len(rows[member]) == len(rows[name])
        ]
        if members == batch.names:
            return batch
        for names in (members, [member for member in batch.names if member not in members]):
            part = batches.select(batch, names)
            self.batches |= dict.fromkeys(names, part)
        return self.batches[name]

    def _copied(self, name: int) -> _Sequence:
        return (
            batches.select(self.batches[name], [name]),
            list(self.tokens[name]),
            self.last.get(name, torch.empty(0)),
        )

    def _move(self, changes: Sequence[tuple[int, _Sequence | None]]) -> None:
        """Give sequences what they have from now on; the caches that they leave go on with their other rows."""
        changed = {name for name, _ in changes}
        left = {id(self.batches[name]): self.batches[name] for name in changed if name in self.batches}
        for batch in left.values():
            rest = [member for member in batch.names if member not in changed]
            if rest:
                self.batches |= dict.fromkeys(rest, batches.select(batch, rest))
        for name, found in changes:
            for held in (self.batches, self.tokens, self.last):
                held.pop(name, None)
            if found is not None:
                batch, tokens, last = found
                batch.names = [name]
                self.batches[name], self.tokens[name], self.last[name] = batch, tokens, last


def empty_cache(model: Any, kind: str) -> Any:
    """A cache to begin with; None where the model makes its own, NO_CACHE where there is to be none.

    Raises:
        NotImplementedError: the model has no static cache.
    """
    if kind == "none":
        return NO_CACHE
    made = own_cache(model)
    if kind == "dynamic":
        return DynamicCache(config=model.config) if made is None else None
    if made not in (None, DynamicCache):
        raise NotImplementedError(f"the model has a cache of its own, {made.__name__}")
    try:
        return StaticCache(config=model.config, max_cache_len=_MOST_TOKENS)
    except KeyError as error:
        raise NotImplementedError(f"no static cache for layers of kind {error}") from error


def own_cache(model: Any) -> type | None:
    """The class of the cache that the forward makes if it was given none; None where it returns no cache."""
    found: type | None = _traits(model)[0]
    return found


def keeps_states(model: Any) -> bool:
    """Whether a forward leaves tensors in the model's modules."""
    found: bool = _traits(model)[1]
    return found


def _traits(model: Any) -> tuple[type | None, bool]:
    if not hasattr(model, "_statecheck_traits"):
        tried = copy.deepcopy(model)
        before = _tensors_of_modules(tried)
        tokens = torch.ones((1, 2), dtype=torch.int64)
        made = forward(tried, tokens, tokens, None, "direct").cache
        model._statecheck_traits = (
            None if made is None else type(made),
            bool(_tensors_of_modules(tried) - before),
        )
    found: tuple[type | None, bool] = model._statecheck_traits
    return found


def _tensors_of_modules(model: Any) -> set[tuple[str, str]]:
    """Attributes of modules that hold tensors and are neither parameters nor buffers."""
    return {
        (path, name)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    }
