"""Strategies for batches in align mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

from properties.strategies.align.batches import CROWDS, FEW_AHEAD, TILE, BatchLayout
from properties.strategies.align.batches_after_forward import BatchAfterForward
from properties.strategies.align.batches_before_forward import BatchBeforeForward
from properties.strategies.align.cache import far_fillings, fillings
from properties.strategies.align.requests import (
    decodes_crossing_a_boundary,
    ending_in_place,
    requests_leaving_their_block,
    sampled,
    starting,
)
from properties.strategies.align.setups import FEW_DRAFTS, setups
from properties.strategies.orders import schedules
from properties.strategies.situations import noted


def batches_after_forward(
    *,
    flawed: bool = False,
    in_place: bool = False,
    mapped: bool = True,
    crowded: bool = False,
    reordered: bool = False,
) -> st.SearchStrategy[BatchAfterForward]:
    """Batches after a forward.

    Args:
        crowded: dozens of idle requests come first, so that a kernel cannot look at all of them together.
        flawed: some requests have a flaw.
        in_place: every request's rows are shifted in their own block.
        mapped: requests are in slots, as the second runner keeps them.
        reordered: small ones, since they are run in every order.
    """
    most = _MOST_REORDERED if reordered else _MOST
    sizes = _SMALL if reordered else {}
    rows_shifted = setups(min_spec=1, kinds=(("conv",), ("conv", "temporal")), **sizes)
    staying = _batches(
        BatchAfterForward, rows_shifted, ending_in_place, mapped, _ahead(crowded, reordered), most=most
    )
    if in_place:
        return staying.map(noted)
    models = setups(**sizes)
    one = partial(sampled, flawed=flawed)
    any_requests = _batches(BatchAfterForward, models, one, mapped, _ahead(crowded, reordered), most=most)
    # Behind idle rows, requests that stay in their block are few among all, and counted apart.
    some_staying = st.sampled_from((any_requests, staying)).flatmap(lambda chosen: chosen)
    return (some_staying if crowded else any_requests).map(noted)


def batches_before_forward(
    *,
    flawed: bool = False,
    moving: bool = False,
    uncounted: bool = False,
    crowded: bool = False,
    reordered: bool = False,
    tiles: tuple[int, ...] = (256, 4, 1),
) -> st.SearchStrategy[BatchBeforeForward]:
    """Batches before a forward; the arguments as of `starting` and `batches_after_forward`.

    Args:
        tiles: how many requests one program of the preprocess kernel looks at.
    """
    requests = partial(starting, flawed=flawed, moving=moving, uncounted=uncounted)
    tiles = (256, 32) if crowded else tiles
    models = setups(**(_SMALL if reordered else {}))
    most = _MOST_REORDERED if reordered else _MOST
    return _batches(
        BatchBeforeForward, models, requests, True, _ahead(crowded, reordered), tiles, most=most
    ).map(noted)


_SMALL: dict[str, Any] = {"large": False, "most_spec": FEW_DRAFTS}
"""Models of which a launch is made in every order."""
_MOST, _MOST_REORDERED = 4, 2
"""Requests of a batch that are not idle: four can leave their columns in four ways, and two can race."""


def _ahead(crowded: bool, reordered: bool) -> tuple[int, ...]:
    """Idle requests before those of a batch; none where a launch is made in every order."""
    if crowded:
        return (*CROWDS * 6, TILE)
    return (0,) if reordered else (*(0,) * 15, FEW_AHEAD)


@st.composite
def _batches(draw, kind, models, one_of, mapped, ahead, tiles=(), most=_MOST):  # type: ignore[no-untyped-def]
    setup = draw(models)
    one = one_of(setup.block_size, setup.num_spec)
    parts = draw(_parts(one, mapped, ahead, tiles))
    requests = parts.pop("requests")[: setup.most_requests(most)]
    return _fitting(kind(setup, requests, **parts))


@cache
def _parts(one, mapped: bool, ahead: tuple[int, ...], tiles):  # type: ignore[no-untyped-def]
    """What a batch is made of beside its model, as keywords; made once, which takes longer than drawing."""
    some = st.lists(one, min_size=1, max_size=_MOST)
    rows = _standings(mapped, ahead)
    drawn_tiles = {"tile": st.sampled_from(tiles)} if tiles else {}

    @st.composite
    def parts(draw):  # type: ignore[no-untyped-def]
        return {
            "requests": () if draw(_NO_REQUESTS) else tuple(draw(some)),
            "rows": draw(rows),
            "filling": draw(fillings()),
            **{name: draw(tile) for name, tile in drawn_tiles.items()},
            "schedule": draw(schedules()),
        }

    return parts()


_NO_REQUESTS = st.sampled_from((False,) * 15 + (True,))


def _fitting(batch):  # type: ignore[no-untyped-def]
    """The batch with a smaller model, or no idle requests, where these would take much memory."""
    rows, count = batch.rows, len(batch.requests)
    skipped = tuple(request for request in rows.skipped if request < count)
    ahead = 0 if batch.setup.is_large or not count else rows.ahead
    batch = replace(batch, rows=replace(rows, ahead=ahead, skipped=skipped))
    if not ahead:
        return batch
    first = replace(batch.setup.groups[0], layers=1)
    return replace(batch, setup=replace(batch.setup, groups=(first,), shared=False))


@st.composite
def _standings(draw: st.DrawFn, mapped: bool, crowds: Sequence[int]) -> BatchLayout:
    """Where the rows of up to four requests are; it is the batch that knows how many these are."""
    ahead = draw(st.sampled_from(crowds))
    # What is wrong with rows of the second vector alone shows where no row before them does the same.
    order = draw(_ORDERS) if not ahead or draw(st.booleans()) else 0
    slots = draw(_SLOTS) if mapped else 0
    return BatchLayout(ahead, order, slots, draw(_SPARE), tuple(sorted(draw(_SKIPPED))) if mapped else ())


_ORDERS = st.integers(0, 2)


_SLOTS = st.integers(0, 3)


_SPARE = st.sampled_from((0, 0, 1, 3))


_SKIPPED = st.sets(st.integers(0, 3), max_size=3)


def far_batches_after_forward() -> st.SearchStrategy[BatchAfterForward]:
    """One request whose state is published by a copy across more than 2^31 bytes."""
    return _far(BatchAfterForward, decodes_crossing_a_boundary)


def far_batches_before_forward() -> st.SearchStrategy[BatchBeforeForward]:
    """One request whose state is brought to its new column by a copy across more than 2^31 bytes."""
    return _far(BatchBeforeForward, requests_leaving_their_block)


@st.composite
def _far(draw, kind, requests):  # type: ignore[no-untyped-def]
    setup = draw(_FAR)
    one = draw(_made(requests, setup.block_size, setup.num_spec))
    return noted(kind(setup, (one,), filling=draw(far_fillings())))


@cache
def _made(requests, size: int, spec: int):  # type: ignore[no-untyped-def]
    """Requests as of one of the functions of `align_requests`, made once."""
    return requests(size, spec)


_FAR = setups(plain=True, kinds=(("temporal",), ("conv",)), most_spec=FEW_DRAFTS)
