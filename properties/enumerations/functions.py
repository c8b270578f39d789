"""All inputs of functions up to a bound: tuples of numbers by their sum, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain, count, permutations, product
from typing import Any

from properties.strategies.align.batches import BatchAfterForward, BatchBeforeForward, BatchLayout
from properties.strategies.align.requests import RequestAfterStep, RequestBeforeStep
from properties.strategies.align.setup import Group, Kept, Setup
from properties.strategies.batch import Batch, BlockTable, RequestRow, Splitting, row_of_blocks
from properties.strategies.builders import BuildCall, BuilderSetup, Session, StepRequest
from properties.strategies.chunks import DENSE, Packed
from properties.strategies.layout import LAYOUTS, Copy, PaddedState
from statecheck.execution.enumerations import Enumeration


def sums(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All tuples of so many numbers with that sum."""
    if not parts:
        if not total:
            yield ()
        return
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in sums(total - first, parts - 1):
            yield (first, *rest)


def sequences(size: int) -> Iterator[tuple[int, ...]]:
    """All tuples whose sum and length add up to `size`, short ones first."""
    for length in range(1, size + 1):
        yield from sums(size - length, length)
    if not size:
        yield ()


def rising(size: int, least: int = 0) -> Iterator[tuple[int, ...]]:
    """The sequences of that size in which no number is less than the one before: one of each with the same numbers."""
    if not size:
        yield ()
    for first in range(least, size):
        for rest in rising(size - first - 1, first):
            yield (first, *rest)


_MOST_SLOTS = 3


def _setup(block_size: int, spec: int) -> Setup:
    """A layer with a conv and a temporal state of two bytes a row, so that a shifted row shows."""
    states = Kept("conv", (2 + spec, 1)), Kept("temporal", (2,))
    return Setup((Group(states),), ("conv", "temporal"), block_size, spec)


def sampled(bound: int) -> Iterator[Mapping[str, Any]]:
    """One request after a forward: computed tokens, tokens and drafts of the step and block size add up to the bound."""
    for drafts, longer, computed, more in sums(bound, 4):
        for accepted in range(1, 2 + drafts):
            request = RequestAfterStep(computed, 1 + drafts + more, drafts, accepted)
            # A block has room for the drafts of a step.
            yield {"batch": BatchAfterForward(_setup(1 + drafts + longer, drafts), (request,))}


def starting(bound: int) -> Iterator[Mapping[str, Any]]:
    """One request before a forward: tokens, accepted and rejected drafts and block size add up to the bound."""
    for request, block_size, spec in _starting(bound):
        yield {"batch": BatchBeforeForward(_setup(block_size, spec), (request,))}


def joined(first: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The requests of both batches in one, if they are of one model: each row is decided by itself."""
    batch, more = first["batch"], other["batch"]
    if batch.setup != more.setup:
        return None
    return {"batch": replace(batch, requests=(*batch.requests, *more.requests))}


def _starting(bound: int) -> Iterator[tuple[RequestBeforeStep, int, int]]:
    """Requests, each with the least block size and number of drafts that it may have in this layer."""
    for accepted, rejected, longer, first, more in sums(bound, 5):
        spec = accepted + rejected
        # A new request has not accepted anything.
        if first or not spec:
            yield RequestBeforeStep(first, 1 + more, 1 + accepted, rejected), 1 + spec + longer, spec


def in_slots(bound: int) -> Iterator[Mapping[str, Any]]:
    """Up to three requests in every choice of up to three slots; their number, tokens and drafts and block size add up to the bound."""
    for number in range(1, min(bound, _MOST_SLOTS) + 1):
        for longer, spare, *sizes in sums(bound - number, number + 2):
            if number + spare <= _MOST_SLOTS:
                for requests in _rising_requests(sizes):
                    spec = max(request.accepted for request in requests) - 1
                    for slots in _choices(number + spare, number):
                        rows = BatchLayout(slots=_seeds(number + spare)[slots], spare=spare)
                        yield {"batch": BatchBeforeForward(_setup(1 + spec + longer, spec), requests, rows)}


def _rising_requests(sizes: list[int]) -> Iterator[tuple[RequestBeforeStep, ...]]:
    """Requests of these sizes, of those in another order the rising one: rows may stand in any order, as their slots do."""
    if not sizes:
        yield ()
        return
    for first, more, accepted in sums(sizes[0], 3):
        request = RequestBeforeStep(first, 1 + more, 1 + accepted)
        for rest in _rising_requests(sizes[1:]) if first or not accepted else ():
            if not rest or _key(request) <= _key(rest[0]):
                yield (request, *rest)


def _key(request: RequestBeforeStep) -> tuple[int, int, int]:
    return request.first_state, request.length, request.accepted


def _choices(capacity: int, rows: int) -> Iterator[tuple[int, ...]]:
    """The slots of the rows, in every way; the slots behind them in order, which makes no difference."""
    for chosen in permutations(range(capacity), rows):
        yield (*chosen, *(slot for slot in range(capacity) if slot not in chosen))


@cache
def _seeds(capacity: int) -> dict[tuple[int, ...], int]:
    """By order of the slots, a seed that shuffles them so."""
    found: dict[tuple[int, ...], int] = {}
    wanted = set(permutations(range(capacity)))
    for seed in count():
        if found.keys() == wanted:
            return found
        layout = BatchBeforeForward(_setup(1, 0), (RequestBeforeStep(),) * capacity, BatchLayout(slots=seed))
        found.setdefault(layout.slots, seed)
    raise AssertionError


_TOKENS: dict[str, Any] = {
    "bound": "tokens, drafts and block size - 1",
    "symmetry": "blocks are numbered in order",
    "left_out": "several groups and layers, wide states, other dtypes, the layout DS; rows that decide together",
    "joined": joined,
}


def splittings(bound: int) -> Iterator[Mapping[str, Any]]:
    """Tokens, rows and tokens of padding, and what threshold and maximum are above the least add up to the bound."""
    for size in range(bound + 1):
        for rows in _rows(size):
            for padded, tokens, above, slack in sums(bound - size, 4):
                for uniform, extends in product((False, True), repeat=2):
                    batch = Batch(rows, padded, tokens)
                    yield {"splitting": Splitting(batch, 1 + above, uniform, extends, slack)}


def _rows(tokens: int) -> Iterator[tuple[RequestRow, ...]]:
    """Rows of so many tokens, in their prompts or not."""
    for more in sequences(tokens):
        for marks in product((False, True), repeat=len(more)):
            yield tuple(RequestRow(1 + n, 0, mark) for n, mark in zip(more, marks, strict=True))


def tables(bound: int) -> Iterator[Mapping[str, Any]]:
    """Rows, tokens, speculative and spare columns, and what a block has beyond a token add up to the bound."""
    for size in range(bound + 1):
        for seq_lens in rising(size):
            for longer, spec, spare in sums(bound - size, 3):
                yield {"table": _table(seq_lens, 1 + longer, spec, spare)}


def _table(seq_lens: tuple[int, ...], block_size: int, spec: int, spare: int) -> BlockTable:
    fresh = count(1)
    rows = tuple(row_of_blocks(length, block_size, spec, fresh) for length in seq_lens)
    widest = max((len(row) for row in rows), default=1 + spec)
    return BlockTable(rows, seq_lens, block_size, spec, widest + spare)


Rows = tuple[StepRequest, ...]
_BLOCK_SIZE = 2
# Lengths lie on the host, where the rules refuse wrong ones, which on other devices would keep them from being read beside tables.


def with_prefixes(bound: int) -> Iterator[Mapping[str, Any]]:
    """Rows of a builder of mode all; rows, tokens before and in the step and block size add up to the bound."""
    for size in range(bound + 1):
        block_size = 1 + bound - size
        for rows in _rows_with_prefixes(size):
            for kind in ("mamba2", "mamba1"):
                setup = BuilderSetup(kind, "all", block_size, chunk_size=block_size)
                yield {"session": Session(setup, (BuildCall(rows, host_lengths=True),))}


def _rows_with_prefixes(size: int) -> Iterator[Rows]:
    def decodes(size: int) -> Iterator[StepRequest]:
        return (replace(request, prefilling=False) for request in _started(size))

    return _in_order(size, decodes)


def _in_order(size: int, decodes: Callable[[int], Iterator[StepRequest]]) -> Iterator[Rows]:
    """Rows as a runner orders them: decodes, chunks of prompts that were begun, first chunks."""
    for parts in sums(size, 3):
        yield from map(_joined, product(*map(_rows_of, parts, (decodes, _started, _first))))


def _joined(parts: tuple[Rows, ...]) -> Rows:
    return tuple(chain.from_iterable(parts))


def _rows_of(size: int, kind: Callable[[int], Iterator[StepRequest]]) -> Iterator[Rows]:
    """Rows of a kind, each of which takes one more than what its tokens do."""
    for sizes in sequences(size):
        yield from product(*map(kind, sizes))


def _started(size: int) -> Iterator[StepRequest]:
    return (
        (StepRequest(1 + more, 1 + computed, True) for more, computed in sums(size - 1, 2))
        if size
        else iter(())
    )


def _first(size: int) -> Iterator[StepRequest]:
    yield StepRequest(1 + size, 0, True)


def with_drafts(bound: int) -> Iterator[Mapping[str, Any]]:
    """Rows of a builder of mode align; rows, tokens before and in the step, accepted drafts, drafts that there may be and rows of
    padding add up to the bound.
    """
    for size in range(bound + 1):
        for spec, padded in sums(bound - size, 2):
            for rows in _rows_with_drafts(size, spec):
                for kind, marks in product(("gdn", "mamba2"), (True, False)):
                    setup = BuilderSetup(kind, "align", _BLOCK_SIZE, spec)
                    yield {
                        "session": Session(setup, (BuildCall(rows, padded, marks=marks, host_lengths=True),))
                    }


def _rows_with_drafts(size: int, spec: int) -> Iterator[Rows]:
    def decodes(size: int) -> Iterator[StepRequest]:
        for more, computed, accepted in sums(size - 1, 3) if size else ():
            for drafts in (more, -1) if accepted <= spec else ():
                yield StepRequest(1 + more, 1 + computed, False, 1 + accepted, drafts)

    return _in_order(size, decodes)


_LONGEST_ROW = 17
"""Tokens: two full tiles of the prefill convolution, and one token more."""


def packed(bound: int) -> Iterator[Mapping[str, Any]]:
    """Sequences and tokens that add up to the bound, in chunks of each size up to one above all tokens."""
    for lens in sequences(bound):
        for chunk_size in range(1, sum(lens) + 2):
            yield {"packed": Packed(lens, chunk_size), "form": DENSE}


def tiled(bound: int) -> Iterator[Mapping[str, Any]]:
    """So many rows, each of 0 to 17 tokens."""
    for lens in product(range(_LONGEST_ROW + 1), repeat=bound):
        yield {"packed": Packed(lens, 8), "form": DENSE}


_PACKED: dict[str, Any] = {
    "inputs": packed,
    "bound": "sequences and tokens in all",
    "symmetry": "a chunk size above all tokens stands for all larger ones",
    "left_out": "starts of 64 bits, strided starts",
}


def conv_copies(bound: int) -> Iterator[Mapping[str, Any]]:
    """Accepted and rejected drafts, null blocks, page padding, an offset, and rows and channels add up to the bound."""
    for accepted, rejected, nulls, padding, offset, rows, channels in _sizes(bound):
        shape = 1 + rows + accepted + rejected, 1 + channels
        for layout in LAYOUTS:
            oriented = shape if layout == "SD" else shape[::-1]
            yield {"copy": _copy(oriented, accepted, rejected, nulls, padding, offset, layout)}


def temporal_copies(bound: int) -> Iterator[Mapping[str, Any]]:
    """As of conv states, with two dimensions within a block."""
    for accepted, rejected, nulls, padding, offset, rows, channels in _sizes(bound):
        shape = 1 + rows, 1 + channels
        yield {"copy": _copy(shape, accepted, rejected, nulls, padding, offset, "SD")}


def _sizes(bound: int) -> Iterator[tuple[int, ...]]:
    """Seven numbers with that sum; the offset, which is in the padding, is at most as large."""
    return (sizes for sizes in sums(bound, 7) if sizes[4] <= sizes[3])


def _copy(
    shape: tuple[int, int], accepted: int, rejected: int, nulls: int, padding: int, offset: int, layout: str
) -> Copy:
    spec = accepted + rejected
    state = PaddedState(2 + spec, shape, padding=padding, offset=offset)
    blocks = (*(0,) * nulls, *range(1, 2 + spec))
    return Copy(state, blocks, nulls, 1 + accepted, spec, layout)


_COPIES: dict[str, Any] = {
    "bound": "drafts, null blocks, page padding, offset, rows - 1 and channels - 1",
    "symmetry": "blocks are numbered in order",
    "left_out": "dtypes but float32, addresses above 2^31",
}
ENUMERATIONS = (
    Enumeration("boundary of V1", "v1-postprocess/boundary", sampled, **_TOKENS),
    Enumeration("boundary of V2", "v2-postprocess/boundary", sampled, **_TOKENS),
    Enumeration("copies", "precopy/running-column", starting, **_TOKENS),
    Enumeration("next columns", "preprocess-kernel/precopy", starting, **_TOKENS),
    Enumeration(
        "slots",
        "preprocess-kernel/columns",
        in_slots,
        bound="requests, tokens, accepted drafts and block size - 1",
        symmetry="of rows in another order the one with rising requests",
        left_out=f"more than {_MOST_SLOTS} slots, rejected drafts",
    ),
    Enumeration(
        "split",
        "split/short-prefills",
        splittings,
        bound="tokens, rows of padding, padded tokens, threshold - 1 and what the maximum exceeds the longest query by",
        left_out="rows without tokens before the last ones",
    ),
    Enumeration(
        "columns",
        "block-table/align-columns",
        tables,
        bound="rows, tokens, block size - 1, speculative and spare columns",
        symmetry="blocks are numbered in order; of rows in another order the one with rising lengths",
        left_out="ids of 64 bits, strided tables, more rows than lengths",
    ),
    Enumeration(
        "prefixes",
        "builder/fields",
        with_prefixes,
        bound="rows, tokens before the step, tokens behind the first of each row and block size - 1",
        symmetry="blocks are numbered in order",
        left_out="rows in another order than a runner's, full graphs, padding, steps without prompt marks or host lengths",
        device="cpu",
    ),
    Enumeration(
        "rows with drafts",
        "builder/fields",
        with_drafts,
        bound="rows, tokens before the step, tokens behind the first of each row, accepted and possible drafts, rows of padding",
        symmetry="blocks are numbered in order",
        left_out=f"rows in another order than a runner's, Mamba-1, full graphs, block sizes but {_BLOCK_SIZE}, padded tokens, modes all and none",
        device="cpu",
    ),
    Enumeration("chunks", "varlen-chunks/ends", **_PACKED),
    Enumeration("chunk indices", "fla-chunks/indices", **_PACKED),
    Enumeration("chunk offsets", "fla-chunks/offsets", **_PACKED),
    Enumeration(
        "conv programs",
        "conv1d-metadata/tiles",
        tiled,
        bound="rows",
        left_out=f"rows of more than {_LONGEST_ROW} tokens, starts of 64 bits, strided starts",
    ),
    Enumeration("conv copies", "conv-copy/start", conv_copies, **_COPIES),
    Enumeration("temporal copies", "temporal-copy/start", temporal_copies, **_COPIES),
)
