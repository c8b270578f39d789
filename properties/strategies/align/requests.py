"""Requests in align mode: before a forward, and after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

from properties.strategies.align.setup import Setup, column_of

FLAWS = ("", "null source", "null destination", "no source column", "short row")


@dataclass(frozen=True)
class RequestAfterStep:
    """A request after a forward over `length` tokens, the last `drafts` of them drafts, of which it accepted some.

    `accepted` counts the sampled token too. `flaw` is what its table row or its column has wrong, one of FLAWS.
    """

    computed: int = 0
    length: int = 1
    drafts: int = 0
    accepted: int = 1
    flaw: str = ""

    @property
    def first_state(self) -> int:
        """Tokens behind the state in the running block."""
        return self.computed + self.length - self.drafts

    @property
    def computed_after(self) -> int:
        return self.first_state + self.accepted - 1

    def running(self, block_size: int) -> int:
        return column_of(self.computed + self.length, block_size)

    def boundary(self, block_size: int) -> int:
        """The last block boundary that accepted tokens reach."""
        return self.computed_after // block_size * block_size

    def bias(self, block_size: int) -> int:
        """Tokens from the state in the running block to the boundary; negative where no boundary is passed."""
        return self.boundary(block_size) - self.first_state

    def published(self, block_size: int) -> int:
        return self.boundary(block_size) // block_size - 1

    def columns(self, setup: Setup) -> tuple[int, ...]:
        run = self.running(setup.block_size)
        return tuple(range(max(run - 1, 0), run + 1 + setup.num_spec))

    def null_columns(self, setup: Setup) -> set[int]:
        run, bias = self.running(setup.block_size), max(self.bias(setup.block_size), 0)
        if self.flaw == "null source":
            return {run, run + bias}
        return {self.published(setup.block_size)} if self.flaw == "null destination" else set()

    def width(self, setup: Setup) -> int | None:
        """Columns of a table that has not all of the request's, or None."""
        run, bias = self.running(setup.block_size), max(self.bias(setup.block_size), 0)
        return max(run + bias, 1) if self.flaw == "short row" else None


@dataclass(frozen=True)
class RequestBeforeStep:
    """A request before a forward over `length` tokens.

    Its last step left the state after `first_state` tokens in the running block and accepted `accepted` tokens, the
    sampled one too, of all but `rejected`. Without `remembered` its column is that of its computed tokens.
    """

    first_state: int = 0
    length: int = 1
    accepted: int = 1
    rejected: int = 0
    remembered: bool = True
    flaw: str = ""

    @property
    def computed(self) -> int:
        return self.first_state + max(self.accepted, 1) - 1

    def previous(self, block_size: int) -> int:
        return column_of(self.computed + self.rejected * self.remembered, block_size)

    def running(self, block_size: int) -> int:
        return column_of(self.computed + self.length, block_size)

    @property
    def bias(self) -> int:
        return max(self.accepted - 1, 0)

    def moves(self, block_size: int) -> bool:
        return -1 != self.previous(block_size) != self.running(block_size)

    def columns(self, setup: Setup) -> tuple[int, ...]:
        run, previous = self.running(setup.block_size), self.previous(setup.block_size)
        before = range(max(previous, 0), previous + 1 + self.bias)
        return tuple(sorted({*before, *range(run, run + 1 + setup.num_spec)}))

    def null_columns(self, setup: Setup) -> set[int]:
        previous = self.previous(setup.block_size)
        if self.flaw == "null source":
            return {previous, previous + self.bias}
        return {self.running(setup.block_size)} if self.flaw == "null destination" else set()

    def width(self, setup: Setup) -> int | None:
        """As of `RequestAfterStep`."""
        last = max(self.previous(setup.block_size) + self.bias, 0)
        return max(last, 1) if self.flaw == "short row" else None


Row = TypeVar("Row", RequestAfterStep, RequestBeforeStep)


@cache
def sampled(size: int, spec: int, *, flawed: bool = False) -> st.SearchStrategy[RequestAfterStep]:
    """Requests after a forward: decodes, with up to all drafts, and chunks of prompts; some of them have a flaw."""
    requests = st.one_of(
        chunks(size),
        decodes_crossing_a_boundary(size, spec),
        decodes(size, spec),
        decodes_crossing_a_boundary(size, spec),
    )
    return _flawed(requests) if flawed else requests


@st.composite
def _flawed(draw: st.DrawFn, requests: st.SearchStrategy[Row]) -> Row:
    request, flaw = draw(requests), draw(_FLAWS)
    return replace(request, flaw=flaw)


def chunks(size: int) -> st.SearchStrategy[RequestAfterStep]:
    """Chunks of prompts, many of which end on a boundary."""
    computed, lengths = st.integers(0, 2 * size), st.integers(1, 2 * size + 1)

    @st.composite
    def anywhere(draw: st.DrawFn) -> RequestAfterStep:
        return RequestAfterStep(draw(computed), draw(lengths))

    @st.composite
    def to_a_boundary(draw: st.DrawFn) -> RequestAfterStep:
        computed, blocks = draw(_UP_TO_9), draw(_UP_TO_2)
        return RequestAfterStep(computed, blocks * size - computed % size)

    return anywhere() | to_a_boundary()


_FLAWS = st.sampled_from(FLAWS)
_UP_TO_2 = st.integers(1, 2)
_UP_TO_3 = st.integers(1, 3)
_UP_TO_9 = st.integers(0, 9)


def decodes(size: int, spec: int) -> st.SearchStrategy[RequestAfterStep]:
    """Decodes with any drafts anywhere in a block."""
    computed, drafts = st.integers(1, 3 * size), st.integers(0, spec)

    @st.composite
    def requests(draw: st.DrawFn) -> RequestAfterStep:
        before, accepted, rejected = draw(computed), draw(drafts), draw(drafts)
        rejected = min(rejected, spec - accepted)
        return RequestAfterStep(before, 1 + accepted + rejected, accepted + rejected, 1 + accepted)

    return requests()


def decodes_crossing_a_boundary(size: int, spec: int) -> st.SearchStrategy[RequestAfterStep]:
    """Decodes whose accepted tokens reach a boundary, or pass it."""
    some = st.integers(0, spec)

    @st.composite
    def requests(draw: st.DrawFn) -> RequestAfterStep:
        blocks, before, beyond, rejected = draw(_UP_TO_3), draw(some), draw(some), draw(some)
        beyond = min(beyond, spec - before)
        rejected = min(rejected, spec - before - beyond)
        computed = blocks * size - before - 1
        drafts = before + beyond + rejected
        return RequestAfterStep(computed + (0 if computed else size), 1 + drafts, drafts, 1 + before + beyond)

    return requests()


@cache
def ending_in_place(size: int, spec: int) -> st.SearchStrategy[RequestAfterStep]:
    """Decodes that accept all of at least one draft, up to the boundary of their running column."""
    some = st.integers(1, spec)

    @st.composite
    def requests(draw: st.DrawFn) -> RequestAfterStep:
        blocks, drafts = draw(_UP_TO_3), draw(some)
        computed = blocks * size - drafts - 1
        return RequestAfterStep(computed + (0 if computed else size), 1 + drafts, drafts, 1 + drafts)

    return requests()


@cache
def starting(
    size: int, spec: int, *, flawed: bool = False, moving: bool = False, uncounted: bool = False
) -> st.SearchStrategy[RequestBeforeStep]:
    """Requests before a forward: after a decode with up to all drafts, in a prompt, after a hit, and new ones.

    Args:
        flawed: some have a flaw.
        moving: all leave their column.
        uncounted: an accepted count may be 0.
    """
    requests = st.one_of(
        hits(size, spec), requests_leaving_their_block(size, spec), requests_moving_back(size, spec)
    )
    if not moving:
        # As many alternatives for every size, so that a size shrinks.
        staying = continuing_requests(size, spec) | (
            going_to_the_end(size) if size > 1 else continuing_requests(size, spec)
        )
        requests = st.one_of(_new(size, spec), requests_leaving_their_block(size, spec), staying, requests)
    if uncounted:
        requests = _uncounted(requests)
    return _flawed(requests) if flawed else requests


_RARELY = st.sampled_from((False, False, False, True))


@st.composite
def _uncounted(draw: st.DrawFn, requests: st.SearchStrategy[RequestBeforeStep]) -> RequestBeforeStep:
    request, none = draw(requests), draw(_RARELY)
    return replace(request, accepted=0) if none and request.accepted == 1 else request


def _lengths(size: int, spec: int) -> st.SearchStrategy[int]:
    return st.integers(1, 1 + spec) | st.integers(1, 2 * size + 1)


def _new(size: int, spec: int) -> st.SearchStrategy[RequestBeforeStep]:
    lengths = _lengths(size, spec)

    # Mapped, the two kinds of lengths would count as two kinds of requests.
    @st.composite
    def requests(draw: st.DrawFn) -> RequestBeforeStep:
        return RequestBeforeStep(0, draw(lengths), remembered=False)

    return requests()


def hits(size: int, spec: int) -> st.SearchStrategy[RequestBeforeStep]:
    """New and resumed requests whose first blocks are in the cache; their column is not remembered."""
    lengths = _lengths(size, spec)

    @st.composite
    def requests(draw: st.DrawFn) -> RequestBeforeStep:
        return RequestBeforeStep(draw(_UP_TO_3) * size, draw(lengths), remembered=False)

    return requests()


def continuing_requests(size: int, spec: int) -> st.SearchStrategy[RequestBeforeStep]:
    """Requests after a decode or a chunk, anywhere."""
    firsts, lengths, drafts = st.integers(1, 3 * size), _lengths(size, spec), st.integers(0, spec)

    @st.composite
    def requests(draw: st.DrawFn) -> RequestBeforeStep:
        first, length, accepted, rejected = draw(firsts), draw(lengths), draw(drafts), draw(drafts)
        return RequestBeforeStep(first, length, 1 + accepted, min(rejected, spec - accepted))

    return requests()


@cache
def going_to_the_end(size: int) -> st.SearchStrategy[RequestBeforeStep]:
    """Requests that compute the last tokens of their block, and none of the next one."""
    short = st.integers(1, min(9, size - 1))

    @st.composite
    def requests(draw: st.DrawFn) -> RequestBeforeStep:
        blocks, last = draw(_UP_TO_3), draw(short)
        return RequestBeforeStep(blocks * size - last, last)

    return requests()


def requests_leaving_their_block(size: int, spec: int) -> st.SearchStrategy[RequestBeforeStep]:
    """Requests that pass the end of their column in this step."""
    drafts, lengths = st.integers(0, spec), st.integers(1, 1 + size)

    @st.composite
    def requests(draw: st.DrawFn) -> RequestBeforeStep:
        blocks, short, more = draw(_UP_TO_3), draw(drafts), draw(lengths)
        accepted, rejected = draw(drafts), draw(drafts)
        short = min(short, size - 1)
        accepted = min(accepted, blocks * size - short - 1)
        rejected = min(rejected, spec - accepted, short)
        return RequestBeforeStep(blocks * size - short - accepted, short + more, 1 + accepted, rejected)

    return requests()


def requests_moving_back(size: int, spec: int) -> st.SearchStrategy[RequestBeforeStep]:
    """Requests whose rejected drafts were in a later column than all tokens of this step; others where none can be."""
    if spec < 2:
        return requests_leaving_their_block(size, spec)
    drafts, some = st.integers(0, spec), st.integers(1, spec)

    @st.composite
    def requests(draw: st.DrawFn) -> RequestBeforeStep:
        blocks, short, fewer = draw(_UP_TO_3), draw(some), draw(drafts)
        more, accepted = draw(some), draw(drafts)
        short = min(short, spec - 1)
        rejected = min(short + more, spec)
        accepted = min(accepted, spec - rejected)
        length = max(1, short - fewer)
        return RequestBeforeStep(blocks * size - short - accepted, length, 1 + accepted, rejected)

    return requests()
