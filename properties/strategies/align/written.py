"""Batches of align mode that drawn examples seldom are: dozens of requests that move, every flaw at every place, the smallest launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, cycle, islice
from typing import TypeVar

from properties.strategies.align.batches import BatchAfterForward, BatchBeforeForward, BatchLayout
from properties.strategies.align.requests import FLAWS, RequestAfterStep, RequestBeforeStep
from properties.strategies.align.setup import Group, Kept, Setup
from properties.strategies.refusals import CHANNELS_FIRST, SETUP

_Request = TypeVar("_Request", RequestAfterStep, RequestBeforeStep)
AFTER = (
    RequestAfterStep(3, 3, 2, 3),
    RequestAfterStep(10, 1),
    RequestAfterStep(6, 3, 2, 2),
    RequestAfterStep(0, 4),
    RequestAfterStep(2, 3, 2, 3),
    RequestAfterStep(5, 3, 2, 3),
    RequestAfterStep(1, 3, 2, 2),
)
BEFORE = (
    RequestBeforeStep(3, 4, 2),
    RequestBeforeStep(10, 1),
    RequestBeforeStep(3, 12, 2),
    RequestBeforeStep(4, 4),
    RequestBeforeStep(0, 5),
    RequestBeforeStep(7, 2, 3),
)
AFTER_WITHOUT_DRAFTS = (
    RequestAfterStep(10, 1),
    RequestAfterStep(0, 4),
    RequestAfterStep(3, 1),
    RequestAfterStep(2, 7),
)
BEFORE_WITHOUT_DRAFTS = (
    RequestBeforeStep(10, 1),
    RequestBeforeStep(4, 4),
    RequestBeforeStep(0, 5),
    RequestBeforeStep(8, 1),
)
LAYOUTS = (BatchLayout(order=1, slots=2, spare=2), BatchLayout(ahead=2, slots=3, skipped=(1,)))


def _by_channel(shape: tuple[int, int], dtype: str) -> Setup:
    conv = Kept("conv", shape, dtype)
    return replace(CHANNELS_FIRST, groups=(Group((conv, Kept("temporal", (2, 2)))),))


def _by_row(conv: tuple[int, int], temporal: tuple[int, int]) -> Setup:
    return replace(SETUP, groups=(Group((Kept("conv", conv), Kept("temporal", temporal))),))


SEVERAL_TILES = _by_row((5, 40), (6, 50))
TWO_STRIDES = replace(SETUP, groups=(*SETUP.groups, replace(SETUP.groups[0], padding=7)))
"""Two distances between blocks."""
ONE_STATE = replace(SETUP, groups=(Group((Kept("temporal", (4, 2)),)),), kinds=("temporal",))
OTHER_STATES = (
    _by_channel((40, 5), "bfloat16"),
    _by_channel((20, 5), "float32"),
    _by_channel((20, 5), "float64"),
    _by_row((17, 40), (2, 2)),
    TWO_STRIDES,
)
WITHOUT_DRAFTS = (
    replace(_by_row((1, 6), (2, 2)), num_spec=0),
    replace(_by_channel((6, 1), "uint8"), num_spec=0),
)
"""Conv states of one row, and channels of one element."""


def _crowds(requests: tuple[_Request, ...]) -> Iterator[tuple[Setup, tuple[_Request, ...]]]:
    """As many requests as a kernel looks at together, or twice as many, and one more, all of which move."""
    for setup, count in ((SETUP, 32), (SETUP, 65), (CHANNELS_FIRST, 33), (SEVERAL_TILES, 33)):
        yield setup, tuple(islice(cycle(requests), count))


def _flawed(requests: tuple[_Request, ...]) -> Iterator[tuple[Setup, tuple[_Request, ...]]]:
    """For each flaw and each place the requests, of which the request at the place has the flaw: in one batch, if others may have it, too."""
    for setup in (SETUP, CHANNELS_FIRST):
        for flaw in FLAWS[1:]:
            copies = [
                tuple(
                    replace(request, flaw=flaw if number == place else "")
                    for number, request in enumerate(requests)
                )
                for place in range(len(requests))
            ]
            # The shortest row decides how wide the block table is.
            for several in copies if flaw == "short row" else [tuple(chain.from_iterable(copies))]:
                yield setup, several


# Requests of all kinds, in crowds, in other rows and slots, and beside states of other forms.
BATCHES_AFTER = (
    *(BatchAfterForward(setup, requests) for setup, requests in _crowds(AFTER)),
    *(BatchAfterForward(setup, AFTER) for setup in OTHER_STATES),
    *(BatchAfterForward(TWO_STRIDES, AFTER, layout) for layout in LAYOUTS),
    *(BatchAfterForward(setup, AFTER_WITHOUT_DRAFTS) for setup in WITHOUT_DRAFTS),
)
BATCHES_BEFORE = (
    *(BatchBeforeForward(setup, requests) for setup, requests in _crowds(BEFORE)),
    *(BatchBeforeForward(setup, BEFORE) for setup in OTHER_STATES),
    *(BatchBeforeForward(TWO_STRIDES, BEFORE, layout) for layout in LAYOUTS),
    *(BatchBeforeForward(setup, BEFORE_WITHOUT_DRAFTS) for setup in WITHOUT_DRAFTS),
    # With several programs of the preprocess kernel.
    *(BatchBeforeForward(SETUP, BEFORE * 3, tile=tile) for tile in (1, 8)),
)
# Behind 32 idle rows; the last batch has a request that moves nothing.
_IDLE = (RequestAfterStep(1, 1),) * 32
IDLE_AFTER = (
    *(BatchAfterForward(setup, _IDLE + AFTER) for setup in (SETUP, CHANNELS_FIRST, SEVERAL_TILES)),
    BatchAfterForward(SETUP, (*_IDLE, replace(AFTER[-1], flaw="no source column"))),
)
IDLE_BEFORE = tuple(
    BatchBeforeForward(setup, (RequestBeforeStep(1, 1),) * 32 + BEFORE)
    for setup in (SETUP, CHANNELS_FIRST, SEVERAL_TILES)
)
# Each flaw of each request.
FLAWED_AFTER = tuple(BatchAfterForward(setup, requests) for setup, requests in _flawed(AFTER))
FLAWED_BEFORE = tuple(BatchBeforeForward(setup, requests) for setup, requests in _flawed(BEFORE))
# One request with one state: launched as documented, the grid has one program.
SINGLE_AFTER = tuple(BatchAfterForward(ONE_STATE, (request,)) for request in reversed(AFTER))
SINGLE_BEFORE = tuple(BatchBeforeForward(ONE_STATE, (request,)) for request in BEFORE)
