"""Batches of requests in align mode, as the fused kernels meet them: before a forward and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Self, TypeVar

from oracle.profile import DOCUMENTS, Profile
from oracle.situations.align import decisions
from properties.strategies.align.cache import PLAIN, Cache, Filling, spread
from properties.strategies.align.launches import (
    STATE_VECTORS,
    fused,
)
from properties.strategies.align.requests import FLAWS, RequestAfterStep, RequestBeforeStep
from properties.strategies.align.setup import Setup
from properties.strategies.situations import NamedSituations, named
from statecheck.case.values import Attribute, Call, Name, Tensor, Value, call, int32

T = TypeVar("T")


U = TypeVar("U")


OUT = "ctx.num_accepted_tokens_out"


CROWDS = (32, 64)
"""As many requests as a kernel may look at together."""
TILE = 256
"""Rows of a program of the preprocess kernel, as documented; a CPU takes a while for as many."""
FEW_AHEAD = 8
"""Idle requests that stand before those of a small batch now and then: a vector of eight."""


def table_by_slot(values: Sequence[T], slots: Sequence[int], size: int, unused: U) -> tuple[T | U, ...]:
    """The rows of a block table by slot, from the rows of a batch and their slots; `unused` in a slot that none of them has."""
    found = dict(zip(slots, values, strict=True))
    return tuple(found.get(slot, unused) for slot in range(size))


@dataclass(frozen=True)
class BatchLayout:
    """How requests stand in a step's vectors: behind `ahead` idle ones, in which order and slots, before `spare` entries.

    `order` and `slots` are seeds of a shuffle, 0 for none. The requests in `skipped` have a table row and no slot.
    """

    ahead: int = 0
    order: int = 0
    slots: int = 0
    spare: int = 0
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True)
class AlignBatch(NamedSituations):
    """What steps before and after a forward have in common."""

    setup: Setup
    requests: tuple[RequestAfterStep, ...] | tuple[RequestBeforeStep, ...]
    rows: BatchLayout = BatchLayout()
    filling: Filling = PLAIN
    schedule: str = ""
    profile: Profile = field(default=DOCUMENTS, repr=False, kw_only=True)
    """Of the release whose steps it makes."""

    def of_release(self, profile: Profile) -> Self:
        return replace(self, profile=profile)

    @property
    def all_requests(self) -> tuple[RequestAfterStep | RequestBeforeStep, ...]:
        """The idle requests, and those of the batch."""
        raise NotImplementedError

    @property
    def num_reqs(self) -> int:
        return len(self.all_requests)

    @property
    def capacity(self) -> int:
        return max(1, self.num_reqs + self.rows.spare)

    @cached_property
    def row_order(self) -> tuple[int, ...]:
        """The request of each row."""
        return _shuffled(range(self.num_reqs), self.rows.order)

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """The slot of each row, -1 for one that is skipped."""
        every = _shuffled(range(self.capacity), self.rows.slots)
        own = [request - self.rows.ahead for request in self.row_order]
        skipped = {row for row in range(self.num_reqs) if own[row] in self.rows.skipped}
        return tuple(-1 if row in skipped else every[row] for row in range(self.num_reqs))

    @property
    def table_order(self) -> tuple[int | None, ...]:
        """The request of each row of the block tables, None for a row of no request."""
        if self.profile.tables_by_slot:
            return table_by_slot(self.row_order, self.slots, self.capacity, None)
        return (*self.row_order, *(None,) * (self.capacity - self.num_reqs))

    @cached_property
    def cache(self) -> Cache:
        setup, requests = self.setup, self.all_requests
        widths = [width for one in requests if (width := one.width(setup)) is not None]
        return Cache(
            setup,
            tuple(one.columns(setup) for one in requests),
            self.table_order,
            self.filling,
            tuple(
                (r, column) for r, one in enumerate(requests) for column in sorted(one.null_columns(setup))
            ),
            min(widths, default=None),
        )

    def by_row(self, values: Sequence[int], poison: int) -> Tensor:
        """A vector with each request's value in its row."""
        return int32(spread((values[request] for request in self.row_order), self.capacity, poison))

    def by_slot(self, values: Sequence[int], poison: int) -> Tensor:
        """A vector with each request's value in its slot."""
        found = [poison] * self.capacity
        for row, slot in enumerate(self.slots):
            if slot >= 0:
                found[slot] = values[self.row_order[row]]
        return int32(found)

    @property
    def mapping(self) -> Tensor:
        """The slot of each row; behind the rows, slots that are none of theirs."""
        unused = sorted(set(range(self.capacity)) - set(self.slots))
        return int32(self.slots + tuple(unused[: self.capacity - self.num_reqs]))

    def fused(self, function: str, vectors: Mapping[str, str], observes: Sequence[str] = ()) -> Call:
        """A call of the context's method; `vectors` are the names of what it is handed, by argument."""
        seen = (*self.cache.observes, *observes)
        return fused(self.setup, function, self.num_reqs, vectors, seen, self.schedule)

    def launch(self, kernel: str, arguments: Mapping[str, Value], **constexprs: Value) -> Call:
        """A launch of a fused kernel on what the context knows of the states, over rows and states."""
        known = {f"{name}_ptr": Attribute(Name("ctx"), name) for name in STATE_VECTORS}
        # One row's distance to the next, as the context has it.
        stride = self.cache.full_width + self.filling.spare_columns
        states = len(self.setup.kinds) * sum(group.layers for group in self.setup.groups)
        return call(
            "harness.launch",
            kernel=kernel,
            grid=(max(1, self.num_reqs), states),
            arguments={**known, "block_table_stride_req": stride, "num_reqs": self.num_reqs, **arguments},
            constexprs={
                "COPY_BLOCK_SIZE": 1024,
                "CONV_STATE_DIM_FIRST": self.setup.layout == "DS",
                **constexprs,
            },
            environment=self.setup.environment,
            observes=self.cache.observes,
            schedule=self.schedule,
        )

    def shared_conditions(self) -> dict[str, bool]:
        known = self.setup.conditions()
        return {
            "no request": self.num_reqs == 0,
            "more rows than eight": self.num_reqs > FEW_AHEAD,
            "more rows than a vector": self.num_reqs > min(CROWDS),
            "more rows than two vectors": self.num_reqs > max(CROWDS),
            "more rows than a tile": self.num_reqs > TILE,
            "spare rows": self.rows.spare > 0,
            **named((decisions.NO_SLOT, decisions.OUT_OF_ORDER), [decisions.at_slots(self.slots)]),
            "stale blocks in a row": self.filling.stale and self.num_reqs > 0,
            "relabelled blocks": self.filling.shuffle > 0,
            "programs in another order": self.schedule == "reversed",
            "programs interleaved": self.schedule.startswith("switches"),
            "ids and strides above 2^31": self.filling.sparse,
            **{flaw: any(one.flaw == flaw for one in self.requests) for flaw in FLAWS[1:]},
            **{f"model: {name}": holds for name, holds in known.items()},
        }


def _shuffled(numbers: range, seed: int) -> tuple[int, ...]:
    found = list(numbers)
    if seed:
        Random(seed).shuffle(found)
    return tuple(found)
