"""Batches of rows of decodes and prefills, and block tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TypeVar

from hypothesis import strategies as st

from properties.strategies.bounds import (
    MANY_DRAFTS,
    MOST_TOKENS,
    WIDE_NUMBERS,
    around,
    counts,
    crowded,
    crowds,
    drafts,
    mostly,
    seldom,
)
from properties.strategies.chunks import lengths_around
from statecheck.case.values import Call, DType, Record, Tensor, Value, boolean, call, int32, record

POISON = 0x7EADBEE
"""Fills memory that may not be read; no block has this id."""
SLOTS = 64
"""Entries of a slot mapping at most: it is no rule's argument."""
T = TypeVar("T")
_ID_BASES = st.sampled_from(((1, "int32"), (1, "int64"), (2**31 - 2**12, "int32"), (2**62, "int64")))


@dataclass(frozen=True)
class RequestRow:
    """A row of a step: tokens scheduled now, tokens computed before, whether it is still in its prompt."""

    query_len: int
    num_computed: int = 0
    prefilling: bool = False


@dataclass(frozen=True)
class Batch:
    """Rows of a step, then rows of padding for a full graph, which have no tokens, and padded tokens."""

    requests: tuple[RequestRow, ...]
    padded_rows: int = 0
    padded_tokens: int = 0

    @property
    def query_lens(self) -> tuple[int, ...]:
        return (*(request.query_len for request in self.requests), *(0,) * self.padded_rows)

    @property
    def query_start_loc(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(self.query_lens, initial=0))

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """Length after the step; 0 for padding."""
        return (
            *(request.num_computed + request.query_len for request in self.requests),
            *(0,) * self.padded_rows,
        )

    @property
    def is_prefilling(self) -> tuple[bool, ...]:
        return (*(request.prefilling for request in self.requests), *(False,) * self.padded_rows)

    @property
    def num_reqs(self) -> int:
        return len(self.query_lens)

    @property
    def num_actual_tokens(self) -> int:
        return self.query_start_loc[-1] + self.padded_tokens


def _requests(
    query_len: st.SearchStrategy[int], num_computed: st.SearchStrategy[int], *, prefilling: bool
) -> st.SearchStrategy[RequestRow]:
    @st.composite
    def requests(draw: st.DrawFn) -> RequestRow:
        return RequestRow(draw(query_len), draw(num_computed), prefilling)

    return requests()


FEW_COMPUTED = 20
"""Tokens that most requests have computed: some blocks of every size that is usual here."""
# One draw, so that a large number shrinks to a small one; one in 24 is large.
_COMPUTED = st.sampled_from(
    (*tuple(range(1, FEW_COMPUTED + 1)) * 8, *around(WIDE_NUMBERS), MOST_TOKENS - 2**17)
)
_SOME_COMPUTED = st.just(0) | _COMPUTED
MAX_ROWS = 5
"""Rows that are drawn: enough for each kind between two of another one."""


def decodes(*, num_spec: int = 0) -> st.SearchStrategy[RequestRow]:
    """Rows past their prompt: one token, and up to `num_spec` drafts."""
    return _requests(_query_lens(num_spec), _COMPUTED, prefilling=False)


@cache
def _query_lens(num_spec: int) -> st.SearchStrategy[int]:
    return st.integers(1, 1 + num_spec)


def prefills() -> st.SearchStrategy[RequestRow]:
    """Rows in their prompt: first chunks, later chunks, and single tokens of either."""
    return _requests(_CHUNKS, _SOME_COMPUTED, prefilling=True)


LONG_CHUNKS = (256, 2048, 65_536)
"""Tokens of a prompt in a step: where a number of 8 or 16 bits ends, and what a step usually has room for."""
_CHUNKS = st.just(1) | mostly(
    lengths_around(4).map(lambda n: max(1, n)), st.sampled_from(around(LONG_CHUNKS)), one_in=16
)


def batches(*, padding: bool = True) -> st.SearchStrategy[Batch]:
    """Batches in the runner's order: decodes, chunks of started prompts (short ones first), first chunks, padding.

    Uniform speculative batches, in which every row is as long as the first, are drawn on purpose. Some batches repeat
    their rows many times.
    """
    return _batches(lambda rows: sorted(rows, key=_place), padding=padding)


def _batches(
    order: Callable[[list[RequestRow]], list[RequestRow]], *, padding: bool = True
) -> st.SearchStrategy[Batch]:
    # One draw: a choice between none and some would take another draw with it where it shrinks.
    few = st.sampled_from((0, 0, 0, 1, 2, 3) if padding else (0,))
    many = crowds(one_in=6)

    @st.composite
    def found(draw: st.DrawFn) -> Batch:
        count = draw(many)
        some = draw(_rows(draw(_DRAFTS)))
        rows, tokens = draw(few), draw(few)
        # Drawn without a crowd, too, so that a crowd that is not needed goes away in shrinking.
        last = draw(_LAST)
        if count:
            # Of a crowd of short decodes, and often with a prefill, so that the first row that is too long for a decode is behind a bound.
            some = sorted(some, key=lambda row: (row.prefilling, row.query_len))
        if count or len(some) < MAX_ROWS:
            some = [*some, *last]
        return Batch(tuple(order(crowded(some, count))), rows, tokens)

    return found()


_PROMPT = _requests(st.sampled_from((*range(1, 13), *range(5, 13))), _SOME_COMPUTED, prefilling=True)
"""A chunk, which mostly is longer than most decodes may be."""
_LAST = st.one_of(st.just(()), st.tuples(decodes()), st.tuples(_PROMPT))
_DRAFTS = st.sampled_from((*(2,) * 30, *around(MANY_DRAFTS)))


@cache
def _rows(num_spec: int) -> st.SearchStrategy[list[RequestRow]]:
    mixed = _mostly_filled_lists(decodes(num_spec=num_spec) | prefills(), MAX_ROWS)
    uniform = st.builds(
        lambda drafts, found: [replace(request, query_len=1 + drafts) for request in found],
        st.integers(0, num_spec),
        st.lists(decodes(), min_size=1, max_size=MAX_ROWS),
    )
    return mixed | uniform


def _mostly_filled_lists(elements: st.SearchStrategy[T], max_size: int) -> st.SearchStrategy[list[T]]:
    """Lists as `st.lists` makes them, the empty one half as often."""
    return st.lists(elements, max_size=max_size) | st.lists(elements, min_size=1, max_size=max_size)


def _place(request: RequestRow) -> tuple[int, int]:
    """Sorts as the runner does; which chunks are short is the builder's threshold, so shorter ones come first."""
    if not request.prefilling:
        return 0, 0
    return (1, request.query_len) if request.num_computed else (2, 0)


def shuffled_batches() -> st.SearchStrategy[Batch]:
    """Batches whose rows are in any order; the split documents what it makes of them."""
    return _batches(lambda rows: rows)


def metadata(batch: Batch, **changes: Value) -> Record:
    """The `CommonAttentionMetadata` of a batch."""
    starts = int32(batch.query_start_loc)
    # Nothing reads it, so that it need not be as long as thousands of tokens.
    slots = min(batch.num_actual_tokens, SLOTS)
    fields: dict[str, Value] = {
        "query_start_loc": starts,
        "query_start_loc_cpu": starts.on_host(),
        "seq_lens": int32(batch.seq_lens),
        "num_reqs": batch.num_reqs,
        "num_actual_tokens": batch.num_actual_tokens,
        "max_query_len": max(batch.query_lens, default=0),
        "max_seq_len": max(batch.seq_lens, default=0),
        "block_table_tensor": Tensor("int32", (batch.num_reqs, 1), (1,) * batch.num_reqs),
        "slot_mapping": Tensor("int64", (slots,), (0,) * slots),
        "is_prefilling": boolean(batch.is_prefilling).on_host(),
    }
    return record("CommonAttentionMetadata", **fields | changes)


@dataclass(frozen=True)
class Splitting:
    """A batch and the options of `split_decodes_and_prefills`; `slack` makes the maximum an upper bound."""

    batch: Batch
    decode_threshold: int = 1
    require_uniform: bool = False
    treat_short_extends_as_decodes: bool = True
    slack: int = 0

    def call(self) -> Call:
        longest = max(self.batch.query_lens, default=0) + self.slack
        options = (
            ("decode_threshold", self.decode_threshold),
            ("require_uniform", self.require_uniform),
            ("treat_short_extends_as_decodes", self.treat_short_extends_as_decodes),
        )
        arguments = (("common_attn_metadata", metadata(self.batch, max_query_len=longest)),)
        return Call("split_decodes_and_prefills", arguments, options)


def splittings(drawn: st.SearchStrategy[Batch] | None = None) -> st.SearchStrategy[Splitting]:
    """Batches with every combination of options, thresholds for drafts or as long as one of the rows."""
    return _splittings(batches() if drawn is None else drawn)


@st.composite
def _splittings(draw: st.DrawFn, drawn: st.SearchStrategy[Batch]) -> Splitting:
    batch = draw(drawn)
    lens = tuple(sorted({length for length in batch.query_lens if length} or {1}))
    # Between the first row, of which a crowd has many, and the others.
    first = next((length for length in batch.query_lens if length), 1)
    options = draw(_thresholds((first, *lens))), draw(_UNIFORM), draw(_SHORT_EXTENDS), draw(_SLACKS)
    return Splitting(batch, *options)


# Strategies are made once: making them takes longer than drawing from them.
_THRESHOLDS = counts(4, tuple(1 + bound for bound in MANY_DRAFTS), min_value=1)
"""Tokens of a decode at most: one and up to three drafts, or as many as engines draft."""
_UNIFORM = st.booleans()
_SHORT_EXTENDS = st.sampled_from((True, False))
_SLACKS = st.sampled_from((0, 0, 1, 5))


@lru_cache(1024)
def _thresholds(lens: tuple[int, ...]) -> st.SearchStrategy[int]:
    return st.sampled_from(lens) | _THRESHOLDS


_BLOCK_SIZES = st.sampled_from((1, 2, 3, 4, 8))
_STRIDES = st.sampled_from((0, 0, 1, 5))
_OFFSETS = st.sampled_from((0, 0, 3))


@dataclass(frozen=True)
class BlockTable:
    """Rows of physical block ids, and the sequence lengths to look up.

    Columns behind a row's ids are poisoned: nothing may read them. `extra_stride` and `offset` place the table inside
    a larger storage, poisoned too.
    """

    rows: tuple[tuple[int, ...], ...]
    seq_lens: tuple[int, ...]
    block_size: int
    num_speculative_blocks: int = 0
    width: int = 1
    dtype: str = "int32"
    extra_stride: int = 0
    offset: int = 0

    def tensor(self) -> Tensor:
        stride = self.width + self.extra_stride
        storage = [POISON] * (self.offset + len(self.rows) * stride)
        for r, row in enumerate(self.rows):
            storage[self.offset + r * stride : self.offset + r * stride + len(row)] = row
        shape, dense = (len(self.rows), self.width), self.extra_stride == self.offset == 0
        return Tensor(self.dtype, shape, tuple(storage), None if dense else (stride, 1), self.offset)

    def spec(self) -> Record:
        return mamba_spec(self.block_size, self.num_speculative_blocks)

    def call(self, mode: str = "align", **keywords: int) -> Call:
        found = call(
            "mamba_get_block_table_tensor",
            block_table=self.tensor(),
            seq_lens=int32(self.seq_lens),
            kv_cache_spec=self.spec(),
            mamba_cache_mode=mode,
        )
        return replace(found, keywords=tuple(keywords.items()))


def mamba_spec(block_size: int, num_speculative_blocks: int = 0) -> Record:
    """A specification with one small state."""
    return record(
        "MambaSpec",
        block_size=block_size,
        shapes=((2, 3),),
        dtypes=(DType("float32"),),
        num_speculative_blocks=num_speculative_blocks,
    )


MAX_TABLE_ROWS = 4
"""Rows that are drawn: shorter and longer ones, and one of padding."""
FEW_SPECULATIVE_BLOCKS = 3
"""One more than `FEW_DRAFTS`, as a group may have a spare block."""
WIDE_BLOCKS = (1600, 7168, 2**23, 2**28 + 2**27)
"""Tokens of a block: as attention's pages make them in the field, and so many that three columns hold more tokens than 2^24, or
than 2^30, and five columns fewer than an int32 can count."""
MOST_SPARE_COLUMNS = 3
"""Columns behind those of the longest row, to be poisoned."""
_WIDE_BLOCKS = st.sampled_from((*WIDE_BLOCKS, *WIDE_BLOCKS[2:]))


@st.composite
def block_tables(draw: st.DrawFn, *, rows_per_length: bool = False) -> BlockTable:
    """Tables as the allocator leaves them in align mode.

    Columns before the running one are null but for the last of them, the running block and the speculative ones are
    physical and belong to no other row, the rest is poison.
    """
    block_size = draw(_WIDE_BLOCKS if draw(seldom(4)) else _BLOCK_SIZES)
    spec = draw(drafts(few=FEW_SPECULATIVE_BLOCKS, one_in=8))
    many = draw(crowds())
    seq_lens = tuple(crowded(draw(_seq_lens(block_size)), many))
    base, dtype = draw(_ID_BASES)
    fresh = itertools.count(base)
    rows = tuple(row_of_blocks(length, block_size, spec, fresh) for length in seq_lens)
    dropped = 0 if rows_per_length else draw(_up_to(min(1, len(seq_lens))))
    widest = max((len(row) for row in rows), default=1 + spec)
    return BlockTable(
        rows=rows,
        seq_lens=seq_lens[: len(seq_lens) - dropped],
        block_size=block_size,
        num_speculative_blocks=spec,
        width=widest + draw(_up_to(1 if block_size > 2**24 else MOST_SPARE_COLUMNS)),
        dtype=dtype,
        extra_stride=draw(_STRIDES),
        offset=draw(_OFFSETS),
    )


@cache
def _up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


@cache
def _seq_lens(block_size: int) -> st.SearchStrategy[list[int]]:
    return _mostly_filled_lists(lengths_around(block_size), MAX_TABLE_ROWS)


def row_of_blocks(seq_len: int, block_size: int, spec: int, fresh: itertools.count[int]) -> tuple[int, ...]:
    """A row as the allocator leaves it; physical blocks are the next ones of `fresh`."""
    running = max((seq_len - 1) // block_size, 0)
    nulls = (0,) * max(running - 1, 0)
    previous = (next(fresh),) if running else ()
    return (*nulls, *previous, *(next(fresh) for _ in range(1 + spec)))
