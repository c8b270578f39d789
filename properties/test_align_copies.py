"""The kernels of align mode: the fused ones through the context that launches them, and copies of byte runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from properties.strategies.align import written
from properties.strategies.align.batches import (
    OUT,
    POSTPROCESS_KERNEL,
    PRECOPY_KERNEL,
    PREPROCESS_KERNEL,
    RUN_FUSED_POSTPROCESS,
    RUN_FUSED_POSTPROCESS_ALIGN,
    RUN_FUSED_PRECOPY,
    STATE_VECTORS,
    BatchAfterForward,
    BatchBeforeForward,
    batches_after_forward,
    batches_before_forward,
    far_batches_after_forward,
    far_batches_before_forward,
)
from properties.strategies.align.cache import with_context
from properties.strategies.align.pointers import (
    COLLECT,
    DO_COPY,
    LISTS,
    MEMCPY,
    MEMCPY_KERNEL,
    POINTERS,
    MovedRuns,
    addresses,
    collect,
    collect_request,
    copy_again,
    do_copies,
    launch_again,
    runs,
)
from properties.strategies.align.runner import COPY_BUFFERS, RunnerStep, runner_steps
from properties.strategies.align.setup import CONTEXT, Group, Setup, setups
from properties.strategies.orders import orders
from statecheck.case.values import Call, Fake, Let, Step, Tensor, Value, record
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

BOUND = (f"{CONTEXT}.create", f"{CONTEXT}.initialize_from_forward_context")
"""A context of the setup, bound to its layers and tables: what each fused launch begins with."""
LAUNCH = "harness.launch"
ADDRESSES = ("ctx.state_base_addrs",)
METADATA = tuple(f"ctx.{name}" for name in STATE_VECTORS[2:])
Steps = list[Step]


def decided(batch: BatchBeforeForward) -> Steps:
    """The preprocess kernel, and the precopy of what it decides."""
    return [*batch.preprocess_by_slot(), batch.precopy()]


def batches(written: Sequence[BatchAfterForward | BatchBeforeForward]) -> list[dict[str, Any]]:
    """Written examples of these batches."""
    return [{"batch": batch} for batch in written]


def postprocesses(
    word: str, examples: Sequence[BatchAfterForward] = (), *, kind: str = "", where: str = "", **batch: bool
) -> list[Configuration]:
    """A property of the fused postprocess of each runner; `batch` are arguments of the strategy."""
    return [
        Configuration(f"v1-postprocess/{word}", RUN_FUSED_POSTPROCESS, written=batches(examples),
            batch=batches_after_forward(by_slot=False, **batch), steps=BatchAfterForward.postprocess_by_row,
            kind=kind, reason=f"{where}after a step of requests in rows"),
        Configuration(f"v2-postprocess/{word}", RUN_FUSED_POSTPROCESS_ALIGN, written=batches(examples),
            batch=batches_after_forward(**batch), steps=BatchAfterForward.postprocess_by_slot,
            kind=kind, reason=f"{where}after a step of requests in slots"),
    ]  # fmt: skip


def precopy(
    word: str, examples: Sequence[BatchBeforeForward] = (), *, kind: str = "", where: str = "", **batch: Any
) -> Configuration:
    """The property of the fused precopy."""
    return Configuration(f"precopy/{word}", RUN_FUSED_PRECOPY, written=batches(examples),
        batch=batches_before_forward(**batch), steps=BatchBeforeForward.precopy_by_slot,
        kind=kind, reason=f"{where}before a step")  # fmt: skip


EVERY_BYTE = (
    *postprocesses("boundary", written.BATCHES_AFTER),
    precopy("running-column", written.BATCHES_BEFORE),
    Configuration("preprocess-kernel/precopy", PREPROCESS_KERNEL, LAUNCH, RUN_FUSED_PRECOPY, batch=batches_before_forward(), steps=decided,
        written=batches(written.BATCHES_BEFORE),
        reason="where the preprocess kernel decides what the precopy does"),
    Configuration("v1-postprocess/kernel-launch", POSTPROCESS_KERNEL, LAUNCH, batch=batches_after_forward(by_slot=False),
        steps=BatchAfterForward.launch_postprocess_kernel, written=batches(written.SINGLE_AFTER),
        reason="where the postprocess kernel is launched as documented, with a program for each row and each state of every layer"),
    Configuration("precopy/kernel-launch", PRECOPY_KERNEL, LAUNCH, batch=batches_before_forward(),
        steps=BatchBeforeForward.launch_precopy_kernel, written=batches(written.SINGLE_BEFORE),
        reason="where the precopy kernel is launched as documented, with a program for each row and each state of every layer"),
    *postprocesses("idle-rows", written.IDLE_AFTER, where="behind dozens of idle rows, ", crowded=True),
    Configuration("precopy/idle-rows", RUN_FUSED_PRECOPY, PREPROCESS_KERNEL, LAUNCH, batch=batches_before_forward(crowded=True), steps=decided,
        written=batches(written.IDLE_BEFORE), reason="behind dozens of idle rows, before a step"),
    *postprocesses("memmove", kind="memmove", where="through a temporary where rows move within their block, ", in_place=True),
    *postprocesses("null-block", written.FLAWED_AFTER, kind="red zone", where="also beside null blocks and columns that are not there, ", flawed=True),
    precopy("null-block", written.FLAWED_BEFORE, kind="red zone", where="also beside null blocks and columns that are not there, ", flawed=True),
    Configuration("v1-postprocess/int64-offsets", RUN_FUSED_POSTPROCESS, batch=far_batches_after_forward(), kind="width",
        steps=BatchAfterForward.postprocess_by_row, reason="in blocks beyond 32 bits, after a step"),
    Configuration("precopy/int64-offsets", RUN_FUSED_PRECOPY, batch=far_batches_before_forward(), kind="width",
        steps=BatchBeforeForward.precopy_by_slot, reason="in blocks beyond 32 bits, before a step"),
)  # fmt: skip


@prop(EVERY_BYTE, "byte-exact", *BOUND)
def a_state_is_in_the_column_of_its_block(trial: Example, batch: Any, steps: Callable[[Any], Steps]) -> None:
    """A state is copied to the column of its block, byte for byte, and nothing else is written."""
    trial.agrees(*batch.prepared(), *steps(batch))


@prop(
    "preprocess-kernel/columns",
    "agreement",
    PREPROCESS_KERNEL,
    LAUNCH,
    batch=batches_before_forward(uncounted=True),
)
def test_preprocess_kernel_columns(trial: Example, batch: BatchBeforeForward) -> None:
    """A request goes to the column of its last token and remembers where it comes from."""
    trial.agrees(*batch.preprocess_by_slot())


@prop(
    "align-context/unbound",
    "ownership",
    *BOUND,
    RUN_FUSED_POSTPROCESS,
    batch=batches_after_forward(by_slot=False),
)
def test_align_context_unbound(trial: Example, batch: BatchAfterForward) -> None:
    """A context that is not bound copies nothing."""
    trial.agrees(*batch.prepared()[:-1], *batch.postprocess_by_row())


REORDERED = (
    postprocesses("program-order", reordered=True)[0],
    # Counts are reset in place, while other programs still have to decide from the counts before.
    Configuration("v2-postprocess/program-order", RUN_FUSED_POSTPROCESS_ALIGN, steps=BatchAfterForward.postprocess_by_slot,
        batch=batches_after_forward(reordered=True) | batches_after_forward(in_place=True, reordered=True),
        reason="after a step of requests in slots"),
    precopy("program-order", moving=True, reordered=True),
)  # fmt: skip


@prop(REORDERED, "order-free", *BOUND, chosen=orders())
def no_order_of_programs_shows(
    trial: Example, batch: Any, chosen: list[str], steps: Callable[[Any], Steps]
) -> None:
    """No order of programs shows in what is copied.

    Each schedule of the launch begins with the same state of memory.
    """
    *named, last = steps(batch)
    assert isinstance(last, Call)
    trial.agrees(*batch.prepared())
    for schedule in chosen:
        trial.agrees(*batch.cache.refill(), *named, replace(last, schedule=schedule))


@prop([*postprocesses("no-sync"), precopy("no-sync")], "cost", *BOUND, device="cuda")
def no_launch_waits_for_the_device(trial: Example, batch: Any, steps: Callable[[Any], Steps]) -> None:
    """No launch waits for the device."""
    *named, last = steps(batch)
    trial.agrees(*batch.prepared(), *named)
    trial.agrees_without_waiting(last)


@prop(
    "preprocess-kernel/program-order",
    "order-free",
    PREPROCESS_KERNEL,
    LAUNCH,
    batch=batches_before_forward(tiles=(1,)),
    chosen=orders(),
)
def test_preprocess_kernel_program_order(
    trial: Example, batch: BatchBeforeForward, chosen: list[str]
) -> None:
    """No order of programs shows in the columns of the step."""
    *named, last = batch.preprocess_by_slot()
    assert isinstance(last, Call)
    for schedule in chosen:
        trial.agrees(*named, replace(last, schedule=schedule))


@prop("align-context/state-metadata", "agreement", *BOUND, setup=setups(), spare=st.integers(0, 2))
def test_align_context_state_metadata(trial: Example, setup: Setup, spare: int) -> None:
    """A context describes every state of every layer."""
    batch = BatchAfterForward(setup, ())
    *named, bound = with_context(batch.cache, 1 + spare)
    assert isinstance(bound, Call)
    trial.agrees(*named, replace(bound, observes=(*METADATA, OUT)))


@prop(
    "align-context/one-column",
    "agreement",
    *BOUND,
    setup=setups(),
    row_stride=st.integers(1, 8),
    column_stride=st.integers(0, 8),
)
def test_align_context_one_column(trial: Example, setup: Setup, row_stride: int, column_stride: int) -> None:
    """A block table of one column may have any stride between columns."""
    named = with_context(BatchAfterForward(setup, ()).cache, 1)[:-1]
    table = Tensor("int32", (2, 1), (1,) * (1 + row_stride), (row_stride, column_stride))
    tables = [table] * len(setup.groups)
    trial.agrees(*named, replace(setup.initialize(block_tables=tables), observes=(*METADATA, OUT)))


@prop("align-context/int64-addresses", "width", *BOUND, setup=setups(), address=addresses())
def test_align_context_int64_addresses(trial: Example, setup: Setup, address: int) -> None:
    """An address keeps all 64 bits."""
    batch = BatchAfterForward(setup, ())
    fakes = {
        name: replace_views(layer, address + 2**20 * number)
        for number, (name, layer) in enumerate(setup.forward_context(2).items())
    }
    *named, bound = with_context(batch.cache, 1)
    assert isinstance(bound, Call)
    changed = setup.initialize(forward_context=fakes)
    trial.agrees(*named, replace(changed, observes=(*ADDRESSES, *METADATA)))


def replace_views(layer: Any, address: int) -> Any:
    """The layer with its states at addresses where nothing can be read."""
    views = [
        Fake(view.dtype, view.shape, view.strides, address + 4096 * number)
        for number, view in enumerate(layer["kv_cache"])
    ]
    return replace(layer, fields=(("kv_cache", views),))


@prop(
    "align-context/bound-once",
    "ownership",
    *BOUND,
    RUN_FUSED_POSTPROCESS,
    batch=batches_after_forward(by_slot=False),
)
def test_align_context_bound_once(trial: Example, batch: BatchAfterForward) -> None:
    """A context is bound once.

    Later bindings change nothing: copies go on where the first one said.
    """
    cache = batch.cache
    elsewhere = {pool: f"other_{pool}" for pool in batch.setup.pools}
    trial.agrees(*batch.prepared())
    trial.agrees(
        *(
            Let(elsewhere[step.name], step.value)
            for step in cache.steps()
            if isinstance(step, Let) and step.name in elsewhere
        )
    )
    layers = {
        name: record("Layer", kv_cache=[replace(view, of=elsewhere[view.of]) for view in layer["kv_cache"]])
        for name, layer in cache.layers().items()
    }
    again = batch.setup.initialize(forward_context=layers)
    trial.agrees(replace(again, updates="", observes=METADATA))
    *named, last = batch.postprocess_by_row()
    assert isinstance(last, Call)
    trial.agrees(*named, replace(last, observes=(*last.observes, *elsewhere.values())))


@prop(
    "v1-postprocess/idempotent",
    "ownership",
    *BOUND,
    RUN_FUSED_POSTPROCESS,
    batch=batches_after_forward(by_slot=False),
)
def test_v1_postprocess_idempotent(trial: Example, batch: BatchAfterForward) -> None:
    """Storing the same step twice is storing it once.

    Where no state is shifted in its own block, everything that a copy reads is still there after it.
    """
    size = batch.setup.block_size
    assume(
        not any(
            request.bias(size) > 0 and request.published(size) == request.running(size)
            for request in batch.requests
        )
    )
    once = trial.agrees(*batch.prepared(), *batch.postprocess_by_row())
    twice = trial.run(*batch.postprocess_by_row())
    trial.holds(once == twice, "the second time left something else than the first", place="the second time")


def same_states(
    trial: Example,
    batch: BatchAfterForward | BatchBeforeForward,
    left: Any,
    other: BatchAfterForward | BatchBeforeForward,
    left_other: Any,
) -> None:
    """State that the blocks that requests have in both batches got the same bytes."""
    before, after = batch.cache.states(left), other.cache.states(left_other)
    for layer, request, column in sorted(before.keys() & after.keys()):
        want, got = before[layer, request, column], after[layer, request, column]
        where = f"{layer}, column {column} of request {request}"
        trial.holds(got == want, f"{where} = {spell(got)}", f"should be {spell(want)}", place="states")


def spell(states: Sequence[bytes]) -> str:
    return " | ".join(state.hex(" ") for state in states)


def seeded(batch: Any) -> Any:
    """The batch with contents that depend on whose block it is, not on where it lies."""
    return replace(batch, filling=replace(batch.filling, seed=1 + batch.filling.seed))


def relabelled(batch: Any, shuffle: int) -> Any:
    """The same states in other blocks."""
    return replace(batch, filling=replace(batch.filling, shuffle=batch.filling.shuffle + shuffle))


def with_rows_without_a_slot(batch: BatchAfterForward, more: int) -> BatchAfterForward:
    assume(not batch.setup.shared and batch.requests)
    count = len(batch.requests)
    skipped = (*batch.rows.skipped, *range(count, count + more))
    requests = (*batch.requests, *batch.requests[:1] * more)
    return replace(batch, requests=requests, rows=replace(batch.rows, skipped=skipped))


def with_padding(batch: BatchBeforeForward, padding: int) -> BatchBeforeForward:
    groups = tuple(replace(group, padding=group.padding + padding) for group in batch.setup.groups)
    return replace(batch, setup=replace(batch.setup, groups=groups))


def with_another_group(batch: BatchAfterForward, states: int) -> BatchAfterForward:
    assume(not batch.setup.shared)
    first = batch.setup.groups[0]
    more = (*batch.setup.groups, Group(first.states[:1] if states == 1 else first.states, layers=states))
    return replace(batch, setup=replace(batch.setup, groups=more, attention=not batch.setup.attention))


CHANGES = (
    Configuration("v1-postprocess/relabelled-blocks", RUN_FUSED_POSTPROCESS, batch=batches_after_forward(by_slot=False).map(seeded), steps=BatchAfterForward.postprocess_by_row,
        change=relabelled, shuffle=st.integers(1, 9), reason="where its block has another id, after a step"),
    Configuration("precopy/relabelled-blocks", RUN_FUSED_PRECOPY, batch=batches_before_forward().map(seeded), steps=BatchBeforeForward.precopy_by_slot,
        change=relabelled, shuffle=st.integers(1, 9), reason="where its block has another id, before a step"),
    Configuration("v2-postprocess/rows-without-slot", RUN_FUSED_POSTPROCESS_ALIGN, batch=batches_after_forward().map(seeded), steps=BatchAfterForward.postprocess_by_slot,
        change=with_rows_without_a_slot, more=st.integers(1, 3), reason="where rows without a slot come in"),
    Configuration("precopy/page-padding", RUN_FUSED_PRECOPY, batch=batches_before_forward().map(seeded), steps=BatchBeforeForward.precopy_by_slot,
        change=with_padding, padding=st.integers(1, 70), reason="where pages are padded"),
    Configuration("v1-postprocess/another-group", RUN_FUSED_POSTPROCESS, batch=batches_after_forward(by_slot=False).map(seeded), steps=BatchAfterForward.postprocess_by_row,
        change=with_another_group, states=st.integers(1, 2), reason="where there is another group of layers"),
)  # fmt: skip


@prop(CHANGES, "metamorphic", *BOUND)
def a_state_stays_the_same(
    trial: Example, batch: Any, change: Callable[..., Any], steps: Callable[[Any], Steps], **amount: int
) -> None:
    """A state is copied as before."""
    other = change(batch, **amount)
    left = trial.leaves(*batch.prepared(), *steps(batch))
    same_states(trial, batch, left, other, trial.leaves(*other.prepared(), *steps(other)))


def reordered(batch: BatchAfterForward, order: int, slots: int = 0) -> BatchAfterForward:
    assume(order or slots)
    return replace(
        batch, rows=replace(batch.rows, order=batch.rows.order + order, slots=batch.rows.slots + slots)
    )


def counts_by_row(batch: BatchAfterForward, left: Mapping[str, Value]) -> dict[int, int]:
    """The accepted count of each request."""
    return dict(zip(batch.row_order, left[OUT].values(), strict=False))


def counts_by_slot(batch: BatchAfterForward, left: Mapping[str, Value]) -> dict[int, int]:
    """The accepted count of each request."""
    counts, pairs = left["counts"].values(), zip(batch.row_order, batch.slots, strict=True)
    return {request: counts[slot] for request, slot in pairs if slot >= 0}


ANY_ORDER = (
    Configuration("v1-postprocess/row-order", RUN_FUSED_POSTPROCESS, batch=batches_after_forward(by_slot=False).map(seeded), steps=BatchAfterForward.postprocess_by_row,
        counts=counts_by_row, order=st.integers(1, 9), reason="where requests are in rows"),
    Configuration("v2-postprocess/row-order", RUN_FUSED_POSTPROCESS_ALIGN, batch=batches_after_forward().map(seeded), steps=BatchAfterForward.postprocess_by_slot,
        counts=counts_by_slot, order=st.integers(0, 9), slots=st.integers(0, 9), reason="and slots too, where requests are in slots"),
)  # fmt: skip


@prop(ANY_ORDER, "metamorphic", *BOUND)
def row_order_does_not_matter(
    trial: Example,
    batch: BatchAfterForward,
    steps: Callable[[Any], Steps],
    counts: Callable[..., dict[int, int]],
    **by: int,
) -> None:
    """Rows may be in any order."""
    other = reordered(batch, **by)
    left = trial.leaves(*batch.prepared(), *steps(batch))
    left_other = trial.leaves(*other.prepared(), *steps(other))
    same_states(trial, batch, left, other, left_other)
    wanted, found = counts(batch, left), counts(other, left_other)
    trial.equals("accepted counts", found, wanted)


@prop("copy-meta/copied", "byte-exact", COLLECT, DO_COPY, COPY_BUFFERS, step=runner_steps(pointers=True))
def test_copy_meta_copied(trial: Example, step: RunnerStep) -> None:
    """What is written down is what is copied.

    A request whose state stays where it is writes nothing down.
    """
    size, cache = step.setup.block_size, step.cache
    trial.agrees(*step.prepared())
    for number, request in enumerate(step.requests):
        if request.previous(size) >= 0:
            move = request.previous(size), request.running(size), request.bias if request.moves(size) else 0
            trial.agrees(collect_request(cache, number, *move))
    trial.agrees(do_copies(cache.observes, schedule=step.schedule))


@prop("copy-meta/memmove", "memmove", COLLECT, DO_COPY, MEMCPY, COPY_BUFFERS, runs=runs())
def test_copy_meta_memmove(trial: Example, runs: MovedRuns) -> None:
    """Runs that overlap themselves move as through a temporary."""
    trial.agrees(*runs.steps(), runs.collect(), do_copies(["pool0"], schedule=runs.schedule))
    trial.agrees(copy_again(["pool0"], schedule=runs.schedule))


@prop(
    "copy-meta/kernel-launch", "memmove", MEMCPY_KERNEL, LAUNCH, COLLECT, DO_COPY, COPY_BUFFERS, runs=runs()
)
def test_copy_meta_kernel_launch(trial: Example, runs: MovedRuns) -> None:
    """The kernel that copies runs may be launched as documented.

    A program for each run, and nothing that says how many there are.
    """
    trial.agrees(*runs.steps(), runs.collect(), do_copies(["pool0"]))
    trial.agrees(launch_again(len(runs.runs), ["pool0"], schedule=runs.schedule))


@prop(
    "copy-meta/size-widths",
    "memmove",
    MEMCPY,
    COLLECT,
    DO_COPY,
    COPY_BUFFERS,
    runs=runs(),
    dtype=st.sampled_from(("int32", "int64")),
)
def test_copy_meta_size_widths(trial: Example, runs: MovedRuns, dtype: str) -> None:
    """Sizes of runs may be numbers of 32 or 64 bits."""
    trial.agrees(*runs.steps(), runs.collect(), do_copies(["pool0"]))
    again = copy_again(["pool0"], sizes=runs.sizes(dtype), schedule=runs.schedule)
    trial.agrees(again)


@prop(
    "copy-meta/program-order",
    "order-free",
    COLLECT,
    DO_COPY,
    MEMCPY,
    COPY_BUFFERS,
    runs=runs(reordered=True),
    chosen=orders(),
)
def test_copy_meta_program_order(trial: Example, runs: MovedRuns, chosen: list[str]) -> None:
    """No order of programs shows in copied runs."""
    trial.agrees(*runs.steps(), runs.collect(), do_copies(["pool0"]))
    for schedule in chosen:
        trial.agrees(copy_again(["pool0"], schedule=schedule))


@prop("copy-meta/int64-pointers", "width", COLLECT, COPY_BUFFERS, runs=runs(), address=addresses())
def test_copy_meta_int64_pointers(trial: Example, runs: MovedRuns, address: int) -> None:
    """Pointers keep all 64 bits."""
    *named, made = runs.steps()
    layers = {
        f"layer{number}": record("Layer", kv_cache=[Fake("uint8", (2**30, 1, 1, run.size), None, address)])
        for number, run in enumerate(runs.runs)
    }
    written = collect(runs.setup, runs.places, 0, 1, 0, forward_context=layers, observes=(*LISTS, *POINTERS))
    trial.agrees(*named, made, written)


@prop(
    "copy-meta/nothing-to-copy",
    "ownership",
    COLLECT,
    DO_COPY,
    COPY_BUFFERS,
    runs=runs(),
    column=st.integers(0, 1),
)
def test_copy_meta_nothing_to_copy(trial: Example, runs: MovedRuns, column: int) -> None:
    """A state that stays is not listed, and an empty list copies nothing."""
    stays = collect(runs.setup, runs.places, column, column, 0)
    trial.agrees(*runs.steps(), stays, do_copies(["pool0"]))
