"""What the runner that keeps requests in rows hands over: its batch, the scheduler's output, and its buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from properties.strategies.align.setup import Setup
from statecheck.case.values import (
    Attribute,
    BufferMaker,
    Call,
    Device,
    Name,
    NumPy,
    Record,
    Rows,
    Value,
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
    """What calls of the runner ask of a cache."""

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
    """What the runner remembers of each request."""
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
    arguments = (("scheduler_output", output), ("mamba_state_idx", Name("state_idx")))
    return Call(CLEANUP, arguments, observes=("state_idx",))


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
    **changes: Value,
) -> Call:
    arguments: dict[str, Value] = {
        "scheduler_output": output,
        "kv_cache_config": Name("config"),
        "cache_config": record("CacheConfig", enable_prefix_caching=True),
        "mamba_state_idx": Name("state_idx"),
        "input_batch": input_batch(cache, rows, pointers=pointers),
        "requests": requests_of(cache, rows),
        "forward_context": Name("layers"),
        "mamba_state_copy_funcs": cache.setup.copy_functions,
        "copy_bufs": path(copy_bufs),
    }
    return Call(
        PREPROCESS,
        tuple((arguments | changes).items()),
        environment=tuple(cache.setup.environment.items()),
        observes=(*cache.observes, "state_idx", "accepted"),
        schedule=schedule,
    )


def stage(
    cache: Blocks, rows: Sequence[Scheduled], output: Record, ctx: str = "ctx", **changes: Value
) -> Call:
    """Stage the rows in the buffers of the context at the dotted path `ctx`."""
    arguments: dict[str, Value] = {
        "ctx": path(ctx),
        "scheduler_output": output,
        "req_ids": [row.id for row in rows],
        "num_reqs": len(rows),
        "requests": requests_of(cache, rows),
        "mamba_state_idx": Name("state_idx"),
    }
    staged = tuple(f"{ctx}.{name}.{side}" for name in STAGING for side in ("np", "gpu"))
    return Call(STAGE, tuple((arguments | changes).items()), observes=staged)


def path(dotted: str) -> Value:
    """What is found at a dotted path."""
    name, _, rest = dotted.partition(".")
    return Attribute(Name(name), rest) if rest else Name(name)


def postprocess(cache: Blocks, rows: Sequence[Scheduled], *, schedule: str = "", **changes: Value) -> Call:
    """The postprocess of `bufs`; the accepted counts of the step are the tensor `counts`."""
    keywords: dict[str, Value] = {
        "bufs": Name("bufs"),
        "num_reqs": len(rows),
        "num_accepted_tokens_gpu": Name("counts"),
        "num_accepted_tokens_cpu_tensor": Name("accepted"),
        "input_batch": input_batch(cache, rows, pointers=False),
        "kv_cache_config": Name("config"),
        "forward_context": Name("layers"),
        "mamba_state_copy_funcs": cache.setup.copy_functions,
    }
    return Call(
        POSTPROCESS_GPU,
        (),
        tuple((keywords | changes).items()),
        environment=tuple(cache.setup.environment.items()),
        updates="bufs",
        observes=(*cache.observes, "counts", "accepted", "bufs.postprocess_align.num_accepted_tokens_out"),
        schedule=schedule,
    )
