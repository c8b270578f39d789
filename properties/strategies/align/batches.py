"""Batches of requests in align mode, as the fused kernels meet them: before a forward and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Self, TypeVar

from oracle.profile import DOCUMENTS, Profile
from oracle.situations.align import decisions
from properties.strategies.align.cache import PLAIN, Cache, Filling, spread, with_context
from properties.strategies.align.launches import (
    POSTPROCESS,
    POSTPROCESS_ALIGN,
    POSTPROCESS_ALIGN_VECTORS,
    POSTPROCESS_KERNEL,
    PRECOPY,
    PRECOPY_KERNEL,
    PRECOPY_VECTORS,
    STATE_VECTORS,
    fused,
    preprocess_launch,
)
from properties.strategies.align.requests import FLAWS, Sampled, Starting
from properties.strategies.align.setup import Setup
from properties.strategies.situations import NamedSituations, named
from statecheck.case.values import Attribute, Call, Let, Name, Step, Tensor, Value, call, int32

T = TypeVar("T")


U = TypeVar("U")


OUT = "ctx.num_accepted_tokens_out"


AT_BOUNDARY = (
    decisions.PUBLISHED,
    decisions.PUBLISHED_BIAS,
    decisions.AT_FRONT,
    decisions.COLLAPSED,
    decisions.ON_BOUNDARY,
    decisions.ONE_BEHIND,
)


AT_CHANGE = (
    decisions.FRESH,
    decisions.STAYS_OFFSET,
    decisions.COMES_OFFSET,
    decisions.BACK,
    decisions.LEAPS,
)


CROWDS = (32, 64)
"""As many requests as a kernel may look at together."""


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
class _Batch(NamedSituations):
    """What steps before and after a forward have in common."""

    setup: Setup
    requests: tuple[Sampled, ...] | tuple[Starting, ...]
    rows: BatchLayout = BatchLayout()
    filling: Filling = PLAIN
    schedule: str = ""
    profile: Profile = field(default=DOCUMENTS, repr=False, kw_only=True)
    """Of the release whose steps it makes."""

    def of_release(self, profile: Profile) -> Self:
        return replace(self, profile=profile)

    @property
    def all_requests(self) -> tuple[Sampled | Starting, ...]:
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
            tuple((r, column) for r, one in enumerate(requests) for column in sorted(one.holes(setup))),
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
            "more rows than a vector": self.num_reqs > min(CROWDS),
            "more rows than two vectors": self.num_reqs > max(CROWDS),
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


@dataclass(frozen=True)
class After(_Batch):
    """A batch after its forward and sampling."""

    requests: tuple[Sampled, ...]

    @property
    def all_requests(self) -> tuple[Sampled, ...]:
        return (Sampled(),) * self.rows.ahead + self.requests

    def written(self) -> set[tuple[int, int]]:
        """Request and column of the block before each boundary that accepted tokens reach, where nothing is flawed."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        return {(request, one.published(size)) for request, one in every if one.bias(size) >= 0}

    def shifted(self) -> list[tuple[int, int, int]]:
        """Request, column and bias of each request that is stored in the very block that it is in, by so many rows."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        stored = [(at, one) for at, one in every if at - self.rows.ahead not in self.rows.skipped]
        own = [(at, one) for at, one in stored if one.published(size) == one.running(size)]
        return [(at, one.running(size), one.bias(size)) for at, one in own if one.bias(size) > 0]

    def running(self) -> list[int]:
        """The running columns, -1 for a request that is said to have none."""
        return [
            -1 if one.flaw == "no source column" else one.running(self.setup.block_size)
            for one in self.all_requests
        ]

    def prepared(self) -> list[Step]:
        """Everything but the calls that `rowwise` and `slotwise` describe."""
        return with_context(self.cache, self.capacity)

    def rowwise(self) -> list[Step]:
        """Postprocess with per-request values in the order of the rows; behind them, those of a row that is due."""
        every, size = self.all_requests, self.setup.block_size
        vectors = {
            "counts": ([one.accepted for one in every], 2),
            "columns": (self.running(), 0),
            "scheduled": ([one.length for one in every], 2),
            "computed": ([one.computed for one in every], size),
            "drafts": ([one.drafts for one in every], 1),
        }
        named = [Let(name, self.by_row(values, other)) for name, (values, other) in vectors.items()]
        return [*named, self.postprocess()]

    def postprocess(self) -> Call:
        vectors = {
            "num_accepted_tokens_gpu": "counts",
            "mamba_state_idx_gpu": "columns",
            "num_scheduled_tokens_gpu": "scheduled",
            "num_computed_tokens_gpu": "computed",
            "num_draft_tokens_gpu": "drafts",
        }
        return self.fused(POSTPROCESS, vectors, ("counts", OUT))

    def launched(self) -> Call:
        """The kernel behind `postprocess`, launched as documented: a program for each row and state."""
        arguments: dict[str, Value] = {
            "num_accepted_tokens_ptr": Name("counts"),
            "mamba_state_idx_ptr": Name("columns"),
            "num_scheduled_tokens_ptr": Name("scheduled"),
            "num_computed_tokens_ptr": Name("computed"),
            "num_draft_tokens_ptr": Name("drafts"),
            "num_accepted_tokens_out_ptr": Attribute(Name("ctx"), "num_accepted_tokens_out"),
            "idx_mapping_ptr": None,
        }
        return self.launch(POSTPROCESS_KERNEL, arguments, block_size=self.setup.block_size)

    def slotwise(self) -> list[Step]:
        """Postprocess with per-request values in slots; what no row is mapped to would be due."""
        every, size = self.all_requests, self.setup.block_size
        vectors = {
            "counts": ([one.accepted for one in every], 2),
            "columns": (self.running(), 1),
            "computed": ([one.computed_after for one in every], 2 * size),
        }
        named = [Let(name, self.by_slot(values, other)) for name, (values, other) in vectors.items()]
        return [*named, Let("mapping", self.mapping), self.postprocess_align()]

    def postprocess_align(self) -> Call:
        return self.fused(POSTPROCESS_ALIGN, POSTPROCESS_ALIGN_VECTORS, ("counts",))

    def conditions(self) -> dict[str, bool]:
        size = self.setup.block_size
        sound = [one for one in self.requests if not one.flaw]
        due = [one for one in sound if one.bias(size) >= 0]
        own = [one for one in due if one.published(size) == one.running(size)]
        passed = (
            decisions.at_boundary(one.running(size), one.first_state, one.computed_after, size)
            for one in sound
        )
        chunks = (decisions.ends_prompt_chunk(one.computed, one.length, one.drafts, size) for one in sound)
        drafted = [one for one in sound if one.drafts]
        conv = any(state.kind == "conv" for group in self.setup.groups for state in group.states)
        return {
            **named(AT_BOUNDARY, passed),
            "conv rows shifted in place": conv and any(one.bias(size) > 0 for one in own),
            "no boundary": len(due) < len(sound),
            decisions.PROMPT_CHUNK.name: any(chunks),
            "all drafts accepted": any(one.accepted == 1 + one.drafts for one in drafted),
            "some drafts accepted": any(1 < one.accepted < 1 + one.drafts for one in drafted),
            "no draft accepted": any(one.accepted == 1 for one in drafted),
            "fresh request": any(one.computed == 0 for one in sound),
            **self.shared_conditions(),
        }


@dataclass(frozen=True)
class Before(_Batch):
    """A batch before its forward."""

    requests: tuple[Starting, ...]
    tile: int = 256

    @property
    def all_requests(self) -> tuple[Starting, ...]:
        return (Starting(remembered=False),) * self.rows.ahead + self.requests

    def written(self) -> set[tuple[int, int]]:
        """Request and column of the block where each request that moves goes on, where nothing is flawed."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        return {(request, one.running(size)) for request, one in every if one.moves(size)}

    def previous(self) -> list[int]:
        """The columns of the last step, -1 for a request that is said to have none."""
        return [
            -1 if one.flaw == "no source column" else one.previous(self.setup.block_size)
            for one in self.all_requests
        ]

    def running(self) -> list[int]:
        return [one.running(self.setup.block_size) for one in self.all_requests]

    def prepared(self) -> list[Step]:
        return with_context(self.cache, self.capacity)

    def slotwise(self) -> list[Step]:
        """Precopy; what no row is mapped to would be copied."""
        vectors = {
            "columns": (self.running(), 1),
            "src_col": (self.previous(), 0),
            "bias": ([one.bias for one in self.all_requests], 0),
        }
        named = [Let(name, self.by_slot(values, other)) for name, (values, other) in vectors.items()]
        return [*named, Let("mapping", self.mapping), self.precopy()]

    def precopy(self) -> Call:
        return self.fused(PRECOPY, PRECOPY_VECTORS)

    def launched(self) -> Call:
        """The kernel behind `precopy`, launched as documented: a program for each row and state."""
        arguments: dict[str, Value] = {
            "mamba_state_idx_ptr": Name("columns"),
            "src_col_ptr": Name("src_col"),
            "token_bias_ptr": Name("bias"),
            "idx_mapping_ptr": Name("mapping"),
        }
        return self.launch(PRECOPY_KERNEL, arguments)

    def advance(self) -> list[Step]:
        """The preprocess kernel; the outputs hold poison before."""
        starts = tuple(accumulate((self.all_requests[r].length for r in self.row_order), initial=0))
        vectors = {
            "columns": (self.previous(), 5),
            "computed": ([one.computed for one in self.all_requests], 9),
            "counts": ([one.accepted for one in self.all_requests], 4),
            "src_col": ([77] * self.num_reqs, 77),
            "bias": ([88] * self.num_reqs, 88),
        }
        named: list[Step] = [Let(name, self.by_slot(*values)) for name, values in vectors.items()]
        last = spread(starts, self.capacity + 1, starts[-1])
        return [*named, Let("mapping", self.mapping), Let("starts", int32(last)), self.preprocess()]

    def preprocess(self) -> Call:
        return preprocess_launch(self.num_reqs, self.tile, self.setup.block_size, self.schedule)

    def conditions(self) -> dict[str, bool]:
        size = self.setup.block_size
        sound = [one for one in self.requests if not one.flaw]
        moving = [one for one in sound if one.moves(size)]
        changes = (decisions.at_change(one.previous(size), one.running(size), one.accepted) for one in sound)
        return {
            **named(AT_CHANGE, changes),
            "moves, bias 0": any(one.bias == 0 for one in moving),
            "stays": any(one.previous(size) == one.running(size) for one in sound),
            "request with a hit": any(not one.remembered and one.computed for one in sound),
            "self copy of the temporal state": any(
                one.previous(size) + one.bias == one.running(size) for one in moving
            ),
            decisions.UNCOUNTED.name: any(one.accepted == 0 for one in sound),
            "several programs": self.num_reqs > self.tile,
            **self.shared_conditions(),
        }
