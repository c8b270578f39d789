"""Arguments of the calls around a forward: of the runner that keeps requests in rows (V1), and the one that keeps them in slots (V2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any, Protocol

from hypothesis import strategies as st

from properties.strategies.align.batches import (
    POSTPROCESS_ALIGN_VECTORS,
    PRECOPY_VECTORS,
    RUN_FUSED_POSTPROCESS_ALIGN,
    RUN_FUSED_PRECOPY,
    fused,
    preprocess_launch,
)
from properties.strategies.align.cache import PLAIN, Cache, Filling, fillings, spread
from properties.strategies.align.requests import RequestBeforeStep, starting
from properties.strategies.align.setup import Setup, setups
from properties.strategies.bounds import MANY_ROWS, crowded, crowds
from properties.strategies.orders import schedules
from statecheck.case.values import (
    Attribute,
    BufferMaker,
    Call,
    Device,
    Let,
    Name,
    NumPy,
    Overwrite,
    Record,
    Rows,
    Step,
    Tensor,
    Value,
    call,
    int32,
    record,
)

PREPROCESS = "preprocess_mamba"
POSTPROCESS_GPU = "postprocess_mamba_align_gpu"
STAGE = "stage_postprocess_inputs_to_gpu"
STAGE_COLUMNS = "stage_mamba_state_idx_to_gpu"
STAGE_METADATA = "stage_postprocess_metadata_to_gpu"
CLEANUP = "cleanup_mamba_state_idx"
COPY_BUFFERS = "MambaCopyBuffers.create"
BUFFERS = "MambaBuffers.create"
STAGING = (
    "mamba_state_idx_buf",
    "num_scheduled_tokens_buf",
    "num_computed_tokens_buf",
    "num_draft_tokens_buf",
)


@dataclass(frozen=True)
class Scheduled:
    """A request in a step: its id, which of those it is that have blocks, computed and scheduled tokens, drafts."""

    id: str
    request: Any
    computed: int
    length: int
    drafts: int = 0


class Blocks(Protocol):
    """A cache as calls of the runner read it."""

    @property
    def setup(self) -> Setup: ...

    @property
    def observes(self) -> tuple[str, ...]:
        """The names of all memory that a copy may write to."""

    @property
    def num_groups(self) -> int: ...

    def block_ids(self, group: int, request: Any) -> list[int]:
        """The blocks of a request, which is one that a `Scheduled` names."""


def scheduler_output(
    rows: Iterable[Scheduled],
    *,
    finished: Sequence[str] = (),
    preempted: Sequence[str] | None = None,
    resumed: Sequence[str] = (),
) -> Record:
    return record(
        "SchedulerOutput",
        num_scheduled_tokens={row.id: row.length for row in rows},
        scheduled_spec_decode_tokens={row.id: list(range(row.drafts)) for row in rows if row.drafts},
        finished_req_ids=list(finished),
        preempted_req_ids=None if preempted is None else list(preempted),
        scheduled_cached_reqs=record("CachedRequestData", resumed_req_ids=list(resumed)),
    )


def requests_of(cache: Blocks, rows: Iterable[Scheduled]) -> dict[str, Value]:
    """The runner's record of each request."""
    other = [[1]] * cache.setup.attention
    return {
        row.id: record(
            "CachedRequestState",
            block_ids=[*other, *(cache.block_ids(group, row.request) for group in range(cache.num_groups))],
            num_computed_tokens=row.computed,
        )
        for row in rows
    }


def input_batch(cache: Blocks, rows: Iterable[Scheduled], *, pointers: bool) -> Record:
    """The runner's batch; without device tables where copies go through lists of pointers."""
    fields: dict[str, Value] = {
        "req_ids": [row.id for row in rows],
        "num_accepted_tokens_cpu": NumPy(Name("accepted")),
    }
    if not pointers:
        tables = [f"table{group}" for group in range(cache.num_groups)]
        names = ["table0"] * cache.setup.attention + tables
        fields["block_table"] = [record("BlockTable", get_device_tensor=Rows(Name(name))) for name in names]
    return record("InputBatch", **fields)


def cleanup(output: Record) -> Call:
    return call(CLEANUP, scheduler_output=output, mamba_state_idx=Name("state_idx"), observes=("state_idx",))


def copy_buffers(setup: Setup, max_num_reqs: int) -> Call:
    """Make `copy_bufs`."""
    made = setup.call(
        COPY_BUFFERS,
        max_num_reqs=max_num_reqs,
        kv_cache_config=Name("config"),
        copy_funcs=setup.copy_functions,
        make_buffer=BufferMaker(),
    )
    return replace(made, bind="copy_bufs")


def buffers(setup: Setup, max_num_reqs: int, *, with_postprocess: bool = True) -> Call:
    """Make `bufs`."""
    made = setup.call(
        BUFFERS,
        max_num_reqs=max_num_reqs,
        kv_cache_config=Name("config"),
        copy_funcs=setup.copy_functions,
        make_buffer=BufferMaker(),
        device=Device(),
        with_postprocess_align=with_postprocess,
    )
    # Its parts may have things in common: what counts is what they hold.
    return replace(made, bind="bufs", by_content=True)


def preprocess(
    cache: Blocks,
    rows: Sequence[Scheduled],
    output: Record,
    *,
    pointers: bool,
    copy_bufs: str = "copy_bufs",
    schedule: str = "",
) -> Call:
    return call(
        PREPROCESS,
        scheduler_output=output,
        kv_cache_config=Name("config"),
        cache_config=record("CacheConfig", enable_prefix_caching=True),
        mamba_state_idx=Name("state_idx"),
        input_batch=input_batch(cache, rows, pointers=pointers),
        requests=requests_of(cache, rows),
        forward_context=Name("layers"),
        mamba_state_copy_funcs=cache.setup.copy_functions,
        copy_bufs=path(copy_bufs),
        environment=cache.setup.environment,
        observes=(*cache.observes, "state_idx", "accepted"),
        schedule=schedule,
    )


def stage(
    cache: Blocks, rows: Sequence[Scheduled], output: Record, ctx: str = "ctx", *, num_reqs: int | None = None
) -> Call:
    """Stage the rows, or the first `num_reqs` of them, in the buffers of the context at the dotted path `ctx`."""
    return call(
        STAGE,
        ctx=path(ctx),
        scheduler_output=output,
        req_ids=[row.id for row in rows],
        num_reqs=len(rows) if num_reqs is None else num_reqs,
        requests=requests_of(cache, rows),
        mamba_state_idx=Name("state_idx"),
        observes=[f"{ctx}.{name}.{side}" for name in STAGING for side in ("np", "gpu")],
    )


def path(dotted: str) -> Value:
    """The value at a dotted path."""
    name, _, rest = dotted.partition(".")
    return Attribute(Name(name), rest) if rest else Name(name)


def postprocess(cache: Blocks, rows: Sequence[Scheduled], *, schedule: str = "") -> Call:
    """The postprocess of `bufs`; the accepted counts of the step are the tensor `counts`."""
    made = cache.setup.call(
        POSTPROCESS_GPU,
        bufs=Name("bufs"),
        num_reqs=len(rows),
        num_accepted_tokens_gpu=Name("counts"),
        num_accepted_tokens_cpu_tensor=Name("accepted"),
        input_batch=input_batch(cache, rows, pointers=False),
        kv_cache_config=Name("config"),
        forward_context=Name("layers"),
        mamba_state_copy_funcs=cache.setup.copy_functions,
    )
    observed = (*cache.observes, "counts", "accepted", "bufs.postprocess_align.num_accepted_tokens_out")
    return replace(made, updates="bufs", observes=observed, schedule=schedule)


FORGETTING = ("finished", "preempted", "resumed", "nothing")


@dataclass(frozen=True)
class RunnerStep:
    """The runner's calls before a forward. `gone` are requests that it remembers and that are not in the batch.

    Where requests are `resumed`, it also remembers columns of those that have no column any more.
    """

    setup: Setup
    requests: tuple[RequestBeforeStep, ...]
    resumed: bool = False
    gone: tuple[str, ...] = ()
    spare: int = 0
    pointers: bool = False
    filling: Filling = PLAIN
    schedule: str = ""

    @property
    def capacity(self) -> int:
        return max(1, len(self.requests) + self.spare)

    @property
    def rows(self) -> tuple[Scheduled, ...]:
        return tuple(
            Scheduled(f"r{number}", number, request.computed, request.length, self._drafts(request))
            for number, request in enumerate(self.requests)
        )

    def _drafts(self, request: RequestBeforeStep) -> int:
        return request.length - 1 if request.computed and request.length <= 1 + self.setup.num_spec else 0

    @property
    def cache(self) -> Cache:
        rows = (*range(len(self.requests)), *(None,) * (self.capacity - len(self.requests)))
        return Cache(
            self.setup, tuple(request.columns(self.setup) for request in self.requests), rows, self.filling
        )

    @property
    def state_idx(self) -> dict[str, int]:
        """The remembered columns: of requests that are gone, and of resumed ones, what they were long ago."""
        size = self.setup.block_size
        known = {
            row.id: request.previous(size)
            for row, request in zip(self.rows, self.requests, strict=True)
            if request.remembered
        }
        known.update(dict.fromkeys(self._resumed, 7))
        return {f"{why}{number}": 40 + number for number, why in enumerate(self.gone)} | known

    @property
    def _resumed(self) -> list[str]:
        """Requests that are said to be resumed, although there is a column for them: new ones, and those with hits."""
        return [
            row.id
            for row, request in zip(self.rows, self.requests, strict=True)
            if self.resumed and not request.remembered
        ]

    @property
    def output(self) -> Record:
        def those(reason: str) -> list[str]:
            return [f"{reason}{number}" for number, gone_for in enumerate(self.gone) if gone_for == reason]

        resumed = self._resumed + those("resumed")
        preempted = those("preempted")
        return scheduler_output(
            self.rows, finished=those("finished"), preempted=preempted or None, resumed=resumed
        )

    def accepted(self) -> Tensor:
        """The counts on the host, by row; behind the rows, others."""
        return int32(spread((request.accepted for request in self.requests), self.capacity, 3)).on_host()

    def prepared(self) -> list[Step]:
        """Everything that `preprocess` needs."""
        return [
            *self.cache.steps(),
            Let("state_idx", self.state_idx),
            Let("accepted", self.accepted()),
            copy_buffers(self.setup, self.capacity),
        ]

    def preprocess(self) -> Call:
        return preprocess(self.cache, self.rows, self.output, pointers=self.pointers, schedule=self.schedule)


def runner_steps(*, pointers: bool | None = None) -> st.SearchStrategy[RunnerStep]:
    """Steps of the runner before a forward; through lists of pointers only what a pointer and a size can say."""
    return _steps(setups(), pointers)


@st.composite
def _steps(draw: st.DrawFn, models: st.SearchStrategy[Setup], pointers: bool | None) -> RunnerStep:
    setup = draw(models)
    parts = draw(_parts(setup.block_size, setup.num_spec, setup.layout, pointers))
    return _affordable(RunnerStep(setup, **parts))


def _affordable(step: RunnerStep) -> RunnerStep:
    """The step with as many of its requests as are copied in a moment."""
    return replace(step, requests=step.requests[: step.setup.most_requests(MANY_ROWS[0] + 1)])


MAX_REQUESTS = 4
"""Requests that are drawn: each can stay, leave, go back or be new; more of them repeat these."""


# Strategies are made once: making them takes longer than drawing from them.
_NO_REQUESTS = st.sampled_from((False,) * 15 + (True,))
_FLAGS = st.booleans()
_GONE = st.lists(st.sampled_from(FORGETTING), max_size=3)
_SPARE = st.integers(0, 2)


@cache
def _some(size: int, spec: int) -> st.SearchStrategy[list[RequestBeforeStep]]:
    some = st.lists(starting(size, spec), min_size=1, max_size=MAX_REQUESTS)
    many = crowds(MANY_ROWS[:1], one_in=8)
    return st.builds(lambda count, requests: crowded(requests, count), many, some)


@cache
@st.composite
def _parts(draw: st.DrawFn, size: int, spec: int, layout: str, pointers: bool | None) -> dict[str, Any]:
    """The parts of a step beside its model, as keywords."""
    parts: dict[str, Any] = {
        "requests": () if draw(_NO_REQUESTS) else tuple(draw(_some(size, spec))),
        "resumed": draw(_FLAGS),
        "gone": tuple(draw(_GONE)),
        "spare": draw(_SPARE),
        "pointers": draw(_FLAGS) if pointers is None else pointers,
        "filling": draw(fillings()),
        "schedule": draw(schedules()),
    }
    return _representable(layout, parts)


def _representable(layout: str, parts: dict[str, Any]) -> dict[str, Any]:
    """Through a pointer and a size a channel-first conv state is copied as a whole or not at all."""
    if not parts["pointers"] or layout == "SD":
        return parts
    plain = (replace(request, accepted=1, first_state=request.computed) for request in parts["requests"])
    return parts | {"requests": tuple(plain)}


TILE = 256
"""Rows of a program of the preprocess kernel."""


@dataclass(frozen=True)
class InRows:
    """The V1 order: preprocess, forward, staging, acceptance, postprocess; decisions are the host's. Contract 2.4.

    `size` rows there may be; their accepted counts are `accepted` on the host, and `counts` after the forward.
    """

    setup: Setup
    size: int
    pointers: bool = False
    schedule: str = ""

    def begin(self, *, with_postprocess: bool = True) -> Call:
        return buffers(self.setup, self.size, with_postprocess=with_postprocess)

    def named(self) -> list[Step]:
        """Nothing is remembered of any request."""
        counts = self.by_row(())
        return [Let("state_idx", {}), Let("counts", int32(counts)), Let("accepted", int32(counts).on_host())]

    def by_row(self, values: Sequence[int]) -> tuple[int, ...]:
        return (*values, *(1,) * (self.size - len(values)))

    def counted(self, counts: Sequence[int]) -> Step:
        """The counts that the step starts with."""
        return Overwrite("accepted", self.by_row(counts))

    def before(self, cache: Blocks, rows: Sequence[Scheduled], output: Record) -> Call:
        """The call before the forward; it leaves the accepted counts in `accepted`."""
        pointers, schedule = self.pointers, self.schedule
        return preprocess(
            cache, rows, output, pointers=pointers, copy_bufs="bufs.preprocess", schedule=schedule
        )

    def staged(self, cache: Blocks, rows: Sequence[Scheduled], output: Record) -> Call:
        return stage(cache, rows, output, "bufs.postprocess_align")

    def after(self, cache: Blocks, rows: Sequence[Scheduled], sampled: Sequence[int]) -> list[Step]:
        """From sampling on; the counts of the next step are left in `accepted`."""
        accepted = Overwrite("counts", self.by_row(sampled))
        return [accepted, postprocess(cache, rows, schedule=self.schedule)]


@dataclass(frozen=True)
class InSlots:
    """The V2 order: fused preprocess, precopy, forward, fused postprocess; decisions are the device's. Contract 2.5.

    `size` slots there are; values by slot are `columns`, `computed`, `counts`, `src_col` and `bias`. Calls that copy
    observe what is in `observes`.
    """

    setup: Setup
    size: int
    observes: tuple[str, ...]
    schedule: str = ""

    def begin(self) -> list[Call]:
        return [self.setup.create(self.size), self.setup.initialize()]

    def step(self, slots: Sequence[int], lengths: Sequence[int]) -> list[Step]:
        """The slot of each row, and where its tokens begin."""
        starts = int32(tuple(accumulate(lengths, initial=0)))
        return [Let("mapping", int32(slots)), Let("starts", starts)]

    def advance(self, num_rows: int) -> Call:
        """The preprocess kernel, which decides where each of the rows runs."""
        return preprocess_launch(num_rows, TILE, self.setup.block_size, self.schedule)

    def precopy(self, num_rows: int, observes: Sequence[str] = ()) -> Call:
        return self._fused(RUN_FUSED_PRECOPY, num_rows, PRECOPY_VECTORS, observes)

    def after(self, num_rows: int, counts: Sequence[int], computed: Sequence[int]) -> Iterator[Step]:
        """From sampling on; the counts of the next step are left in `counts`."""
        yield Overwrite("counts", tuple(counts))
        yield Overwrite("computed", tuple(computed))
        yield self._fused(RUN_FUSED_POSTPROCESS_ALIGN, num_rows, POSTPROCESS_ALIGN_VECTORS, ("counts",))

    def _fused(
        self, function: str, num_rows: int, vectors: Mapping[str, str], observes: Sequence[str]
    ) -> Call:
        return fused(self.setup, function, num_rows, vectors, (*self.observes, *observes), self.schedule)
