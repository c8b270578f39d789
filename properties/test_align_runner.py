"""The host side of align mode: what the runner decides, stages, remembers and forgets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from properties.strategies.align.batches import BatchAfterForward, batches_after_forward
from properties.strategies.align.runner import (
    BUFFERS,
    CLEANUP,
    COPY_BUFFERS,
    POSTPROCESS_GPU,
    PREPROCESS,
    STAGE,
    STAGE_COLUMNS,
    STAGE_METADATA,
    RunnerStep,
    Scheduled,
    buffers,
    cleanup,
    copy_buffers,
    postprocess,
    requests_of,
    runner_steps,
    scheduler_output,
    stage,
)
from properties.strategies.align.setup import CONTEXT, Setup, setups
from statecheck.case.values import Attribute, Call, Let, Name, Step, call, int32, record
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

GROUPS = "get_mamba_groups"
ALL = "postprocess_mamba_all"
CREATE = f"{CONTEXT}.create"
STAGE_ALL = (STAGE, CREATE)


@prop("preprocess/idempotent", "ownership", PREPROCESS, COPY_BUFFERS, step=runner_steps())
def test_preprocess_idempotent(trial: Example, step: RunnerStep) -> None:
    """Preparing the same step again changes nothing.

    A request that is where it is going to run stays there.
    """
    forgotten = replace(step, gone=(), resumed=False)
    trial.agrees(*forgotten.prepared(), forgotten.preprocess())
    trial.agrees(forgotten.preprocess())


@prop(
    "all-mode/last-block",
    "agreement",
    ALL,
    step=runner_steps(),
    rows=st.integers(0, 4),
    spec=st.integers(-1, 3),
)
def test_all_mode_last_block(trial: Example, step: RunnerStep, rows: int, spec: int) -> None:
    """All mode remembers the block of the last token of full decodes."""
    remembered = call(
        ALL,
        scheduler_output=step.output,
        kv_cache_config=Name("config"),
        input_batch=record("InputBatch", req_ids=[row.id for row in step.rows]),
        requests=requests_of(step.cache, step.rows),
        mamba_state_idx=Name("state_idx"),
        num_spec_tokens=spec,
        num_reqs=min(rows, len(step.rows)),
        observes=("state_idx",),
    )
    trial.agrees(Let("config", step.setup.config(4)), Let("state_idx", step.state_idx), remembered)


def staged(step: RunnerStep) -> list[Step]:
    """Everything that staging needs: a context, and a column for every request."""
    columns = {
        row.id: request.running(step.setup.block_size)
        for row, request in zip(step.rows, step.requests, strict=True)
    }
    return [Let("config", step.setup.config(4)), step.setup.create(step.capacity), Let("state_idx", columns)]


@prop("staging/some-rows", "byte-exact", *STAGE_ALL, step=runner_steps(), rows=st.integers(0, 3))
def test_staging_some_rows(trial: Example, step: RunnerStep, rows: int) -> None:
    """Staging some rows leaves those behind them."""
    some = min(rows, len(step.rows))
    whole = stage(step.cache, step.rows, step.output)
    longer = tuple(replace(row, computed=row.computed + 3) for row in step.rows)
    part = stage(step.cache, longer, step.output, num_reqs=some)
    trial.agrees(*staged(step), whole, part)


PREPROCESSED = (
    Configuration("preprocess/block-tables", step=runner_steps(pointers=False), reason="by block tables"),
    Configuration(
        "preprocess/pointer-lists", step=runner_steps(pointers=True), reason="by lists of pointers"
    ),
)


@prop(PREPROCESSED, "byte-exact", PREPROCESS, COPY_BUFFERS)
def a_state_is_where_its_request_is_going_to_run(trial: Example, step: RunnerStep) -> None:
    """Before a step every state is where its request is going to run."""
    trial.agrees(*step.prepared(), step.preprocess())


@prop("cleanup/state-idx", "agreement", CLEANUP, step=runner_steps())
def test_cleanup_state_idx(trial: Example, step: RunnerStep) -> None:
    """Columns of finished preempted and resumed requests are forgotten."""
    trial.agrees(Let("state_idx", step.state_idx), cleanup(step.output), cleanup(step.output))


@prop("staging/all-inputs", "byte-exact", *STAGE_ALL, step=runner_steps())
def test_staging_all_inputs(trial: Example, step: RunnerStep) -> None:
    """The inputs of every row are staged on both sides."""
    trial.agrees(*staged(step), stage(step.cache, step.rows, step.output))


@prop("staging/columns", "byte-exact", STAGE_COLUMNS, CREATE, step=runner_steps())
def test_staging_columns(trial: Example, step: RunnerStep) -> None:
    """The running columns are staged in the order of the rows."""
    columns = call(
        STAGE_COLUMNS,
        mamba_state_idx=Name("state_idx"),
        req_ids=[row.id for row in step.rows],
        num_reqs=len(step.rows),
        gpu_buf=Attribute(Name("ctx"), "mamba_state_idx_buf"),
        observes=("ctx.mamba_state_idx_buf.np", "ctx.mamba_state_idx_buf.gpu"),
    )
    trial.agrees(*staged(step), columns)


@prop("staging/token-counts", "byte-exact", STAGE_METADATA, CREATE, step=runner_steps())
def test_staging_token_counts(trial: Example, step: RunnerStep) -> None:
    """Scheduled computed and draft tokens are staged in the order of the rows."""
    names = ("num_scheduled_tokens_buf", "num_computed_tokens_buf", "num_draft_tokens_buf")
    counts = call(
        STAGE_METADATA,
        scheduler_output=step.output,
        req_ids=[row.id for row in step.rows],
        num_reqs=len(step.rows),
        requests=requests_of(step.cache, step.rows),
        **{name: Attribute(Name("ctx"), name) for name in names},
        observes=[f"ctx.{name}.{side}" for name in names for side in ("np", "gpu")],
    )
    trial.agrees(*staged(step), counts)


def sampled_rows(batch: BatchAfterForward) -> tuple[Scheduled, ...]:
    return tuple(
        Scheduled(f"r{number}", number, request.computed, request.length, request.drafts)
        for number, request in ((number, batch.all_requests[number]) for number in batch.row_order)
    )


def after_a_step(batch: BatchAfterForward, *, with_postprocess: bool = True) -> list[Step]:
    """Everything that `postprocess_mamba_align_gpu` needs: pools, buffers, what is staged, and sampled counts."""
    rows, running = sampled_rows(batch), batch.running()
    output = scheduler_output(rows)
    steps = [*batch.cache.steps(), buffers(batch.setup, batch.capacity, with_postprocess=with_postprocess)]
    steps.append(Let("state_idx", {row.id: running[row.request] for row in rows}))
    if with_postprocess:
        steps.append(stage(batch.cache, rows, output, "bufs.postprocess_align"))
    counts = batch.by_row([request.accepted for request in batch.all_requests], 2)
    steps.append(Let("counts", counts))
    steps.append(Let("accepted", int32([9] * batch.capacity).on_host()))
    return steps


@prop(
    "align-postprocess/boundary-and-counts",
    "byte-exact",
    POSTPROCESS_GPU,
    BUFFERS,
    STAGE,
    batch=batches_after_forward(by_slot=False),
)
def test_align_postprocess_boundary_and_counts(trial: Example, batch: BatchAfterForward) -> None:
    """After a step boundaries are stored and the host learns the accepted counts.

    The buffers bind themselves to layers and tables at the first step, and stay so.
    """
    once = postprocess(batch.cache, sampled_rows(batch), schedule=batch.schedule)
    trial.agrees(*after_a_step(batch), once)


@prop(
    "align-postprocess/no-sync",
    "cost",
    POSTPROCESS_GPU,
    BUFFERS,
    STAGE,
    device="cuda",
    batch=batches_after_forward(by_slot=False),
)
def test_align_postprocess_no_sync(trial: Example, batch: BatchAfterForward) -> None:
    """The postprocess never waits for the device."""
    trial.agrees(*after_a_step(batch))
    trial.agrees_without_waiting(postprocess(batch.cache, sampled_rows(batch)))


@prop("staging/no-sync", "cost", *STAGE_ALL, device="cuda", step=runner_steps())
def test_staging_no_sync(trial: Example, step: RunnerStep) -> None:
    """Staging never waits for the device."""
    trial.agrees(*staged(step))
    trial.agrees_without_waiting(stage(step.cache, step.rows, step.output))


@prop("mamba-groups/found", "agreement", GROUPS, setup=setups(), others=st.integers(0, 2))
def test_mamba_groups_found(trial: Example, setup: Setup, others: int) -> None:
    """The groups with states are found among all groups."""
    config = setup.config(4)
    groups = list(config["kv_cache_groups"])
    other = record(
        "KVCacheGroupSpec", layer_names=["other"], kv_cache_spec=record("FullAttentionSpec", block_size=16)
    )
    for number in range(others):
        groups.insert(1 + 2 * number, other)
    fields = dict(config.fields) | {"kv_cache_groups": groups}
    trial.agrees(Call(GROUPS, (("kv_cache_config", replace(config, fields=tuple(fields.items()))),)))


@prop("copy-buffers/room", "agreement", COPY_BUFFERS, setup=setups(), max_num_reqs=st.integers(1, 4))
def test_copy_buffers_room(trial: Example, setup: Setup, max_num_reqs: int) -> None:
    """Lists have room for a copy per request layer and function."""
    trial.agrees(Let("config", setup.config(4)), copy_buffers(setup, max_num_reqs))


@prop(
    "align-buffers/context",
    "agreement",
    BUFFERS,
    setup=setups(),
    max_num_reqs=st.integers(1, 4),
    with_postprocess=st.booleans(),
)
def test_align_buffers_context(
    trial: Example, setup: Setup, max_num_reqs: int, with_postprocess: bool
) -> None:
    """The context is there only where it is asked for."""
    made = buffers(setup, max_num_reqs, with_postprocess=with_postprocess)
    trial.agrees(Let("config", setup.config(4)), made)
