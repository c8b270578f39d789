"""Block tables, and the lengths of the requests in their rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache

from hypothesis import strategies as st

from properties.strategies.batch import (
    _BLOCK_SIZES,
    _ID_BASES,
    _OFFSETS,
    _STRIDES,
    POISON,
    _mostly_filled_lists,
)
from properties.strategies.bounds import crowded, crowds, drafts, seldom
from properties.strategies.chunks import lengths_around
from properties.strategies.situations import NamedSituations, noted
from statecheck.case.values import Call, DType, Record, Tensor, call, int32, record


@dataclass(frozen=True)
class BlockTable(NamedSituations):
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

    def conditions(self) -> dict[str, bool]:
        ids, unit = [block for row in self.rows for block in row], self.block_size
        used = [len(row) for row in self.rows]
        return {
            "no row": not self.rows,
            "rows of different lengths": len(set(used)) > 1,
            "a padded row": 0 in self.seq_lens,
            "fewer lengths than rows": len(self.seq_lens) < len(self.rows),
            "null blocks before the running one": any(row[0] == 0 for row in self.rows),
            "wider than needed": bool(used) and self.width > max(used),
            "poisoned columns": bool(used) and self.width > min(used),
            "strided view": self.extra_stride > 0,
            "a view that starts inside its storage": self.offset > 0,
            "a length at k * block_size": unit > 1 and any(n and n % unit == 0 for n in self.seq_lens),
            "a length at k * block_size + 1": unit > 1
            and any(n > unit and n % unit == 1 for n in self.seq_lens),
            "a length at k * block_size - 1": unit > 1 and any(n % unit == unit - 1 for n in self.seq_lens),
            "speculative blocks": self.num_speculative_blocks > 0,
            "ids above 2^30": any(block > 2**30 for block in ids),
            "ids of 64 bits": self.dtype == "int64",
            "five speculative blocks or more": self.num_speculative_blocks >= 5,
            "more rows than 64": len(self.rows) > 64,
            "a length above 2^24": max(self.seq_lens, default=0) > 2**24,
            "a length above 2^30": max(self.seq_lens, default=0) > 2**30,
        }


def mamba_spec(block_size: int, num_speculative_blocks: int = 0) -> Record:
    """A specification with one small state."""
    return record(
        "MambaSpec",
        block_size=block_size,
        shapes=((2, 3),),
        dtypes=(DType("float32"),),
        num_speculative_blocks=num_speculative_blocks,
    )


MAX_ROWS = 4
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
def block_tables(draw: st.DrawFn, *, max_rows: int = MAX_ROWS, rows_per_length: bool = False) -> BlockTable:
    """Tables as the allocator leaves them in align mode.

    Columns before the running one are null but for the last of them, the running block and the speculative ones are
    physical and belong to no other row, the rest is poison.
    """
    block_size = draw(_WIDE_BLOCKS if draw(seldom(4)) else _BLOCK_SIZES)
    spec = draw(drafts(few=FEW_SPECULATIVE_BLOCKS, one_in=8))
    many = draw(crowds() if max_rows >= MAX_ROWS else st.just(0))
    seq_lens = tuple(crowded(draw(_seq_lens(block_size, max_rows)), many))
    base, dtype = draw(_ID_BASES)
    fresh = itertools.count(base)
    rows = tuple(row_of_blocks(length, block_size, spec, fresh) for length in seq_lens)
    dropped = 0 if rows_per_length else draw(_up_to(min(1, len(seq_lens))))
    widest = max((len(row) for row in rows), default=1 + spec)
    return noted(
        BlockTable(
            rows=rows,
            seq_lens=seq_lens[: len(seq_lens) - dropped],
            block_size=block_size,
            num_speculative_blocks=spec,
            width=widest + draw(_up_to(1 if block_size > 2**24 else MOST_SPARE_COLUMNS)),
            dtype=dtype,
            extra_stride=draw(_STRIDES),
            offset=draw(_OFFSETS),
        )
    )


@cache
def _up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


@cache
def _seq_lens(block_size: int, max_rows: int) -> st.SearchStrategy[list[int]]:
    return _mostly_filled_lists(lengths_around(block_size), max_rows)


def row_of_blocks(seq_len: int, block_size: int, spec: int, fresh: itertools.count[int]) -> tuple[int, ...]:
    """A row as the allocator leaves it; physical blocks are the next ones of `fresh`."""
    running = max((seq_len - 1) // block_size, 0)
    nulls = (0,) * max(running - 1, 0)
    previous = (next(fresh),) if running else ()
    return (*nulls, *previous, *(next(fresh) for _ in range(1 + spec)))
