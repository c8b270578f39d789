"""Batches and block tables up to a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, product
from typing import Any

from properties.enumerations.sizes import rising, sequences, sums
from properties.strategies.batch import Batch, RequestRow, Splitting
from properties.strategies.block_tables import BlockTable, row_of_blocks
from statecheck.execution.enumerations import Enumeration


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


ENUMERATIONS = (
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
)
