"""Packed sequences up to a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from properties.enumerations.sizes import sequences
from properties.strategies.chunks import DENSE, Packed
from statecheck.execution.enumerations import Enumeration

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
ENUMERATIONS = (
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
)
