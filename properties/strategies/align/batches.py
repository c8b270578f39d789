"""Batches of requests in align mode, before a forward and after it, and the launches of the fused kernels on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import accumulate
from random import Random
from typing import Any, Self, TypeVar

from hypothesis import strategies as st

from properties.strategies.align.cache import (
    PLAIN,
    Cache,
    Filling,
    far_fillings,
    fillings,
    spread,
    with_context,
)
from properties.strategies.align.requests import (
    RequestAfterStep,
    RequestBeforeStep,
    decodes_crossing_a_boundary,
    ending_in_place,
    requests_leaving_their_block,
    sampled,
    starting,
)
from properties.strategies.align.setup import CONTEXT, FEW_DRAFTS, Setup, setups
from properties.strategies.orders import schedules
from statecheck.case.values import Attribute, Call, Let, Name, Step, Tensor, Value, call, int32
from statecheck.subject.profile import DOCUMENTS, Profile

RUN_FUSED_POSTPROCESS = f"{CONTEXT}.run_fused_postprocess"
RUN_FUSED_POSTPROCESS_ALIGN = f"{CONTEXT}.run_fused_postprocess_align"
RUN_FUSED_PRECOPY = f"{CONTEXT}.run_fused_precopy"
PREPROCESS_KERNEL = "preprocess_mamba_align_fused_kernel"
POSTPROCESS_KERNEL = "postprocess_mamba_fused_kernel"
PRECOPY_KERNEL = "precopy_mamba_align_fused_kernel"
STATE_VECTORS = (
    "block_table_ptrs",
    "state_base_addrs",
    "state_block_strides",
    "state_elem_sizes",
    "state_inner_sizes",
    "state_conv_widths",
    "state_group_indices",
    "state_dim_row_count",
    "state_dim_row_stride",
)
POSTPROCESS_ALIGN_VECTORS = {
    "num_accepted_tokens_gpu": "counts",
    "state_idx_gpu": "columns",
    "new_num_computed_tokens_gpu": "computed",
    "idx_mapping": "mapping",
}
PRECOPY_VECTORS = {
    "state_idx_gpu": "columns",
    "src_col_gpu": "src_col",
    "token_bias_gpu": "bias",
    "idx_mapping": "mapping",
}
PREPROCESS_VECTORS = {
    "idx_mapping_ptr": "mapping",
    "state_idx_ptr": "columns",
    "num_computed_tokens_ptr": "computed",
    "query_start_loc_ptr": "starts",
    "num_accepted_tokens_ptr": "counts",
    "src_col_ptr": "src_col",
    "src_off_ptr": "bias",
}


def preprocess_launch(num_reqs: int, tile: int, block_size: int, schedule: str) -> Call:
    """The preprocess kernel on the vectors that are named already, with `tile` rows per program."""
    arguments: dict[str, Value] = {name: Name(vector) for name, vector in PREPROCESS_VECTORS.items()}
    return call(
        "harness.launch",
        kernel=PREPROCESS_KERNEL,
        grid=(max(1, -(-num_reqs // tile)),),
        arguments=arguments | {"num_reqs": num_reqs},
        constexprs={"BLOCK_SIZE": tile, "MAMBA_BLOCK_SIZE": block_size},
        observes=("columns", "counts", "src_col", "bias"),
        schedule=schedule,
    )


def fused(
    setup: Setup,
    function: str,
    num_reqs: int,
    vectors: Mapping[str, str],
    observes: Sequence[str],
    schedule: str,
) -> Call:
    """A call of the context's method; `vectors` are the names of what it is handed, by argument."""
    named = ((argument, Name(vector)) for argument, vector in vectors.items())
    return Call(
        function,
        (("self", Name("ctx")), ("num_reqs", num_reqs), *named),
        environment=tuple(setup.environment.items()),
        observes=tuple(observes),
        schedule=schedule,
    )


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
class AlignBatch:
    """The common part of batches before and after a forward."""

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
        widths = [width for request in requests if (width := request.width(setup)) is not None]
        return Cache(
            setup,
            tuple(request.columns(setup) for request in requests),
            self.table_order,
            self.filling,
            tuple(
                (r, column)
                for r, request in enumerate(requests)
                for column in sorted(request.null_columns(setup))
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


def _shuffled(numbers: range, seed: int) -> tuple[int, ...]:
    found = list(numbers)
    if seed:
        Random(seed).shuffle(found)
    return tuple(found)


@dataclass(frozen=True)
class BatchAfterForward(AlignBatch):
    """A batch after its forward and sampling."""

    requests: tuple[RequestAfterStep, ...]

    @property
    def all_requests(self) -> tuple[RequestAfterStep, ...]:
        return (RequestAfterStep(),) * self.rows.ahead + self.requests

    def written(self) -> set[tuple[int, int]]:
        """Request and column of the block before each boundary that accepted tokens reach, where nothing is flawed."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        return {(at, request.published(size)) for at, request in every if request.bias(size) >= 0}

    def shifted(self) -> list[tuple[int, int, int]]:
        """Request, column and bias of each request that is stored in the very block that it is in, by so many rows."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        stored = [(at, request) for at, request in every if at - self.rows.ahead not in self.rows.skipped]
        own = [(at, request) for at, request in stored if request.published(size) == request.running(size)]
        return [
            (at, request.running(size), request.bias(size)) for at, request in own if request.bias(size) > 0
        ]

    def running(self) -> list[int]:
        """The running columns, -1 for a request that is said to have none."""
        return [
            -1 if request.flaw == "no source column" else request.running(self.setup.block_size)
            for request in self.all_requests
        ]

    def prepared(self) -> list[Step]:
        """A context that is bound to the cache: what the fused launches begin with."""
        return with_context(self.cache, self.capacity)

    def postprocess_by_row(self) -> list[Step]:
        """Postprocess with per-request values in the order of the rows; behind them, those of a row that is due."""
        every, size = self.all_requests, self.setup.block_size
        vectors = {
            "counts": ([request.accepted for request in every], 2),
            "columns": (self.running(), 0),
            "scheduled": ([request.length for request in every], 2),
            "computed": ([request.computed for request in every], size),
            "drafts": ([request.drafts for request in every], 1),
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
        return self.fused(RUN_FUSED_POSTPROCESS, vectors, ("counts", OUT))

    def launch_postprocess_kernel(self) -> list[Step]:
        """As `postprocess_by_row`, with the kernel launched as documented: a program for each row and state.

        Counts go to a copy of the counts, so that a kernel may store all of them or those that change.
        """
        *named, _ = self.postprocess_by_row()
        copied = self.by_row([request.accepted for request in self.all_requests], 2)
        arguments: dict[str, Value] = {
            "num_accepted_tokens_ptr": Name("counts"),
            "mamba_state_idx_ptr": Name("columns"),
            "num_scheduled_tokens_ptr": Name("scheduled"),
            "num_computed_tokens_ptr": Name("computed"),
            "num_draft_tokens_ptr": Name("drafts"),
            "num_accepted_tokens_out_ptr": Name("counts_out"),
            "idx_mapping_ptr": None,
        }
        launched = self.launch(POSTPROCESS_KERNEL, arguments, block_size=self.setup.block_size)
        seen = (*launched.observes, "counts", "counts_out")
        return [*named, Let("counts_out", copied), replace(launched, observes=seen)]

    def postprocess_by_slot(self) -> list[Step]:
        """Postprocess with per-request values in slots; what no row is mapped to would be due."""
        every, size = self.all_requests, self.setup.block_size
        vectors = {
            "counts": ([request.accepted for request in every], 2),
            "columns": (self.running(), 1),
            "computed": ([request.computed_after for request in every], 2 * size),
        }
        named = [Let(name, self.by_slot(values, other)) for name, (values, other) in vectors.items()]
        return [*named, Let("mapping", self.mapping), self.postprocess_align()]

    def postprocess_align(self) -> Call:
        return self.fused(RUN_FUSED_POSTPROCESS_ALIGN, POSTPROCESS_ALIGN_VECTORS, ("counts",))


@dataclass(frozen=True)
class BatchBeforeForward(AlignBatch):
    """A batch before its forward."""

    requests: tuple[RequestBeforeStep, ...]
    tile: int = 256

    @property
    def all_requests(self) -> tuple[RequestBeforeStep, ...]:
        return (RequestBeforeStep(remembered=False),) * self.rows.ahead + self.requests

    def written(self) -> set[tuple[int, int]]:
        """Request and column of the block where each request that moves goes on, where nothing is flawed."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        return {(at, request.running(size)) for at, request in every if request.moves(size)}

    def previous(self) -> list[int]:
        """The columns of the last step, -1 for a request that is said to have none."""
        return [
            -1 if request.flaw == "no source column" else request.previous(self.setup.block_size)
            for request in self.all_requests
        ]

    def running(self) -> list[int]:
        return [request.running(self.setup.block_size) for request in self.all_requests]

    def prepared(self) -> list[Step]:
        return with_context(self.cache, self.capacity)

    def precopy_by_slot(self) -> list[Step]:
        """Precopy; what no row is by_slot to would be copied."""
        vectors = {
            "columns": (self.running(), 1),
            "src_col": (self.previous(), 0),
            "bias": ([request.bias for request in self.all_requests], 0),
        }
        named = [Let(name, self.by_slot(values, other)) for name, (values, other) in vectors.items()]
        return [*named, Let("mapping", self.mapping), self.precopy()]

    def precopy(self) -> Call:
        return self.fused(RUN_FUSED_PRECOPY, PRECOPY_VECTORS)

    def launch_precopy_kernel(self) -> list[Step]:
        """As `precopy_by_slot`, with the kernel launched as documented: a program for each row and state."""
        arguments: dict[str, Value] = {
            "mamba_state_idx_ptr": Name("columns"),
            "src_col_ptr": Name("src_col"),
            "token_bias_ptr": Name("bias"),
            "idx_mapping_ptr": Name("mapping"),
        }
        return [*self.precopy_by_slot()[:-1], self.launch(PRECOPY_KERNEL, arguments)]

    def preprocess_by_slot(self) -> list[Step]:
        """The preprocess kernel; the outputs hold poison before."""
        starts = tuple(accumulate((self.all_requests[r].length for r in self.row_order), initial=0))
        vectors = {
            "columns": (self.previous(), 5),
            "computed": ([request.computed for request in self.all_requests], 9),
            "counts": ([request.accepted for request in self.all_requests], 4),
            "src_col": ([77] * self.num_reqs, 77),
            "bias": ([88] * self.num_reqs, 88),
        }
        named: list[Step] = [Let(name, self.by_slot(*values)) for name, values in vectors.items()]
        last = spread(starts, self.capacity + 1, starts[-1])
        return [*named, Let("mapping", self.mapping), Let("starts", int32(last)), self.preprocess()]

    def preprocess(self) -> Call:
        return preprocess_launch(self.num_reqs, self.tile, self.setup.block_size, self.schedule)


def batches_after_forward(
    *,
    flawed: bool = False,
    in_place: bool = False,
    by_slot: bool = True,
    crowded: bool = False,
    reordered: bool = False,
) -> st.SearchStrategy[BatchAfterForward]:
    """Batches after a forward.

    Args:
        crowded: dozens of idle requests come first, so that a kernel cannot look at all of them together.
        flawed: some requests have a flaw.
        in_place: every request's rows are shifted in their own block.
        by_slot: requests are in slots, as V2 keeps them; otherwise in the rows of the batch alone, as in V1.
        reordered: small ones, since they are run in every order.
    """
    most = _MOST_REORDERED if reordered else _MOST
    sizes = _SMALL if reordered else {}
    rows_shifted = setups(min_spec=1, kinds=(("conv",), ("conv", "temporal")), **sizes)
    staying = _batches(
        BatchAfterForward, rows_shifted, ending_in_place, by_slot, _ahead(crowded, reordered), most=most
    )
    if in_place:
        return staying
    models = setups(**sizes)
    requests = partial(sampled, flawed=flawed)
    any_requests = _batches(
        BatchAfterForward, models, requests, by_slot, _ahead(crowded, reordered), most=most
    )
    # Behind idle rows, requests that stay in their block are few among all, and counted apart.
    some_staying = st.sampled_from((any_requests, staying)).flatmap(lambda chosen: chosen)
    return some_staying if crowded else any_requests


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
    return _batches(BatchBeforeForward, models, requests, True, _ahead(crowded, reordered), tiles, most=most)


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
def _batches(draw, kind, models, request_of, by_slot, ahead, tiles=(), most=_MOST):  # type: ignore[no-untyped-def]
    setup = draw(models)
    request = request_of(setup.block_size, setup.num_spec)
    parts = draw(_parts(request, by_slot, ahead, tiles))
    requests = parts.pop("requests")[: setup.most_requests(most)]
    return _fitting(kind(setup, requests, **parts))


@cache
def _parts(request, by_slot: bool, ahead: tuple[int, ...], tiles):  # type: ignore[no-untyped-def]
    """The parts of a batch beside its model, as keywords; made once, which takes longer than drawing."""
    some = st.lists(request, min_size=1, max_size=_MOST)
    rows = _layouts(by_slot, ahead)
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
def _layouts(draw: st.DrawFn, by_slot: bool, crowds: Sequence[int]) -> BatchLayout:
    """Where the rows of up to four requests are; it is the batch that knows how many these are."""
    ahead = draw(st.sampled_from(crowds))
    # What is wrong with rows of the second vector alone shows where no row before them does the same.
    order = draw(_ORDERS) if not ahead or draw(st.booleans()) else 0
    slots = draw(_SLOTS) if by_slot else 0
    return BatchLayout(ahead, order, slots, draw(_SPARE), tuple(sorted(draw(_SKIPPED))) if by_slot else ())


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
    request = draw(_made(requests, setup.block_size, setup.num_spec))
    return kind(setup, (request,), filling=draw(far_fillings()))


@cache
def _made(requests, size: int, spec: int):  # type: ignore[no-untyped-def]
    """Requests as of one of the functions of `align_requests`, made once."""
    return requests(size, spec)


_FAR = setups(plain=True, kinds=(("temporal",), ("conv",)), most_spec=FEW_DRAFTS)
