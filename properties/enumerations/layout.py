"""Copies that align mode asks for, up to a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from properties.enumerations.sizes import sums
from properties.strategies.layout import LAYOUTS, Copy, PaddedState
from statecheck.execution.enumerations import Enumeration


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
    Enumeration("conv copies", "conv-copy/start", conv_copies, **_COPIES),
    Enumeration("temporal copies", "temporal-copy/start", temporal_copies, **_COPIES),
)
