"""The kernels of align mode: the fused ones through the context that launches them, and copies of byte runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from hypothesis import assume
from hypothesis import strategies as st

from properties.strategies.align import written
from properties.strategies.align.batches import OUT
from properties.strategies.align.batches_after_forward import BatchAfterForward
from properties.strategies.align.batches_before_forward import BatchBeforeForward
from properties.strategies.align.cache import with_context
from properties.strategies.align.kept import Group
from properties.strategies.align.launches import (
    POSTPROCESS,
    POSTPROCESS_ALIGN,
    POSTPROCESS_KERNEL,
    PRECOPY,
    PRECOPY_KERNEL,
    PREPROCESS_KERNEL,
)
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
from properties.strategies.align.runner import COPY_BUFFERS
from properties.strategies.align.runner_steps import RunnerStep, runner_steps
from properties.strategies.align.setup import CONTEXT, Setup
from properties.strategies.align.setups import setups
from properties.strategies.align.steps import (
    batches_after_forward,
    batches_before_forward,
    far_batches_after_forward,
    far_batches_before_forward,
)
from properties.strategies.orders import orders
from statecheck.case.values import Call, Fake, Let, Step, Tensor, Value, record
from statecheck.execution.example import Example
from statecheck.execution.registry import prop
from statecheck.execution.statements import statement, statements

CREATE = f"{CONTEXT}.create"
INITIALIZE = f"{CONTEXT}.initialize_from_forward_context"
LAUNCH = "harness.launch"
V1 = (CREATE, INITIALIZE, POSTPROCESS)
V2 = (CREATE, INITIALIZE, POSTPROCESS_ALIGN)
BEFORE = (CREATE, INITIALIZE, PRECOPY)
DECIDE = (PREPROCESS_KERNEL, LAUNCH)
LAUNCHED = (LAUNCH, CREATE, INITIALIZE)
A_PROGRAM_EACH = "A program for each row and each state of every layer, on the vectors of a context."
ADDRESSES = ("ctx.state_base_addrs",)
METADATA = tuple(
    f"ctx.{name}"
    for name in (
        "state_block_strides",
        "state_elem_sizes",
        "state_inner_sizes",
        "state_conv_widths",
        "state_group_indices",
        "state_dim_row_count",
        "state_dim_row_stride",
    )
)

Steps = list[Step]


def batches(written: Sequence[BatchAfterForward | BatchBeforeForward]) -> list[dict[str, Any]]:
    """Written examples of these batches."""
    return [{"batch": batch} for batch in written]


def by_row(batch: BatchAfterForward) -> Steps:
    return [*batch.prepared(), *batch.rowwise()]


def by_slot(batch: BatchAfterForward | BatchBeforeForward) -> Steps:
    return [*batch.prepared(), *batch.slotwise()]


def unbound(batch: BatchAfterForward) -> Steps:
    return [*batch.prepared()[:-1], *batch.rowwise()]


def decided(batch: BatchBeforeForward) -> Steps:
    """The precopy of what the preprocess kernel decides."""
    return [*batch.prepared(), *batch.advance(), batch.precopy()]


def kernel_by_row(batch: BatchAfterForward) -> Steps:
    return [*batch.prepared(), *batch.launched_by_row()]


def kernel_by_slot(batch: BatchBeforeForward) -> Steps:
    return [*batch.prepared(), *batch.launched_by_slot()]


@statements(
    statement("v1-postprocess/boundary", "byte-exact", V1, batch=batches_after_forward(mapped=False), steps=by_row,
        written=batches(written.batches_after_forward()),
        says="an accepted state on a boundary is stored in the column of its block"),
    statement("v2-postprocess/boundary", "byte-exact", V2, batch=batches_after_forward(), steps=by_slot,
        written=batches(written.batches_after_forward()),
        says="an accepted state on a boundary is stored for requests in slots"),
    statement("precopy/running-column", "byte-exact", BEFORE, batch=batches_before_forward(), steps=by_slot,
        written=batches(written.batches_before_forward()),
        says="a state is precopied to the column where its request goes on"),
    statement("preprocess-kernel/columns", "agreement", DECIDE, batch=batches_before_forward(uncounted=True), steps=BatchBeforeForward.advance,
        says="a request goes to the column of its last token and remembers where it comes from"),
    statement("preprocess-kernel/precopy", "byte-exact", (*DECIDE, *BEFORE), batch=batches_before_forward(), steps=decided,
        written=batches(written.batches_before_forward()),
        says="what the preprocess kernel decides is what the precopy does"),

    statement("v1-postprocess/idle-rows", "byte-exact", V1, batch=batches_after_forward(mapped=False, crowded=True), steps=by_row,
        written=batches(written.idle_batches_after_forward()),
        says="states behind dozens of idle rows are stored"),
    statement("v2-postprocess/idle-rows", "byte-exact", V2, batch=batches_after_forward(crowded=True), steps=by_slot,
        written=batches(written.idle_batches_after_forward()),
        says="states behind dozens of idle rows are stored for requests in slots"),
    statement("precopy/idle-rows", "byte-exact", (*BEFORE, *DECIDE), batch=batches_before_forward(crowded=True), steps=decided,
        written=batches(written.idle_batches_before_forward()),
        says="states behind dozens of idle rows are precopied"),

    statement("v1-postprocess/kernel-launch", "byte-exact", (POSTPROCESS_KERNEL, *LAUNCHED), batch=batches_after_forward(mapped=False),
        steps=kernel_by_row, written=batches(written.single_requests_after_forward()),
        says="the kernel that stores states may be launched as documented",
        sentence=A_PROGRAM_EACH),
    statement("precopy/kernel-launch", "byte-exact", (PRECOPY_KERNEL, *LAUNCHED), batch=batches_before_forward(),
        steps=kernel_by_slot, written=batches(written.single_requests_before_forward()),
        says="the precopy kernel may be launched as documented",
        sentence=A_PROGRAM_EACH),

    statement("v1-postprocess/memmove", "memmove", V1, batch=batches_after_forward(in_place=True, mapped=False), steps=by_row,
        says="rows move within their block as through a temporary"),
    statement("v2-postprocess/memmove", "memmove", V2, batch=batches_after_forward(in_place=True), steps=by_slot,
        says="rows move within their block as through a temporary for requests in slots"),

    statement("v1-postprocess/null-block", "red zone", V1, batch=batches_after_forward(flawed=True, mapped=False), steps=by_row,
        written=batches(written.flawed_batches_after_forward()),
        says="nothing is stored through a null block or a column that is not there"),
    statement("v2-postprocess/null-block", "red zone", V2, batch=batches_after_forward(flawed=True), steps=by_slot,
        written=batches(written.flawed_batches_after_forward()),
        says="nothing is stored for a row without a slot a null block or a missing column"),
    statement("precopy/null-block", "red zone", BEFORE, batch=batches_before_forward(flawed=True), steps=by_slot,
        written=batches(written.flawed_batches_before_forward()),
        says="nothing is precopied through a sentinel"),

    statement("v1-postprocess/int64-offsets", "width", V1, batch=far_batches_after_forward(), steps=by_row,
        says="blocks beyond 32 bits are stored in their place"),
    statement("precopy/int64-offsets", "width", BEFORE, batch=far_batches_before_forward(), steps=by_slot,
        says="blocks beyond 32 bits are precopied"),

    statement("align-context/unbound", "ownership", V1, batch=batches_after_forward(mapped=False), steps=unbound,
        says="a context that is not bound copies nothing"),
)  # fmt: skip
def every_byte_is_the_rules(trial: Example, batch: Any, steps: Callable[[Any], Steps]) -> None:
    trial.agrees(*steps(batch))


@statements(
    statement("v1-postprocess/program-order", "order-free", V1, batch=batches_after_forward(mapped=False, reordered=True), chosen=orders(),
        steps=BatchAfterForward.rowwise, says="no order of programs shows in what is stored by row"),
    statement("v2-postprocess/program-order", "order-free", V2,
        batch=batches_after_forward(reordered=True) | batches_after_forward(in_place=True, reordered=True), chosen=orders(),
        steps=BatchAfterForward.slotwise, says="no order of programs shows in what is stored by slot",
        sentence="Counts are reset in place, while other programs still have to decide from the counts before."),
    statement("precopy/program-order", "order-free", BEFORE, batch=batches_before_forward(moving=True, reordered=True), chosen=orders(),
        steps=BatchBeforeForward.slotwise, says="no order of programs shows in what is precopied"),
)  # fmt: skip
def no_order_shows(trial: Example, batch: Any, chosen: list[str], steps: Callable[[Any], Steps]) -> None:
    """Each schedule of the launch begins with the same state of memory."""
    *named, last = steps(batch)
    assert isinstance(last, Call)
    trial.agrees(*batch.prepared())
    for schedule in chosen:
        trial.agrees(*batch.cache.refill(), *named, replace(last, schedule=schedule))


@statements(
    statement("v1-postprocess/no-sync", "cost", V1, device="cuda", batch=batches_after_forward(mapped=False), steps=by_row,
        says="storing by row never waits for the device"),
    statement("v2-postprocess/no-sync", "cost", V2, device="cuda", batch=batches_after_forward(), steps=by_slot,
        says="storing by slot never waits for the device"),
    statement("precopy/no-sync", "cost", BEFORE, device="cuda", batch=batches_before_forward(), steps=by_slot,
        says="precopying never waits for the device"),
)  # fmt: skip
def the_device_is_not_waited_for(trial: Example, batch: Any, steps: Callable[[Any], Steps]) -> None:
    *named, last = steps(batch)
    trial.agrees(*named)
    trial.agrees_without_waiting(last)


@prop(
    "preprocess-kernel/program-order",
    "order-free",
    PREPROCESS_KERNEL,
    LAUNCH,
    batch=batches_before_forward(tiles=(1,)),
    chosen=orders(),
)
def test_no_order_of_programs_shows_in_the_columns_of_the_step(
    trial: Example, batch: BatchBeforeForward, chosen: list[str]
) -> None:
    """No order of programs shows in the columns of the step."""
    *named, last = batch.advance()
    assert isinstance(last, Call)
    for schedule in chosen:
        trial.agrees(*named, replace(last, schedule=schedule))


@prop(
    "align-context/state-metadata", "agreement", CREATE, INITIALIZE, setup=setups(), spare=st.integers(0, 2)
)
def test_a_context_describes_every_state_of_every_layer(trial: Example, setup: Setup, spare: int) -> None:
    """A context describes every state of every layer."""
    batch = BatchAfterForward(setup, ())
    *named, bound = with_context(batch.cache, 1 + spare)
    assert isinstance(bound, Call)
    trial.agrees(*named, replace(bound, observes=(*METADATA, OUT)))


@prop(
    "align-context/one-column",
    "agreement",
    CREATE,
    INITIALIZE,
    setup=setups(),
    row_stride=st.integers(1, 8),
    column_stride=st.integers(0, 8),
)
def test_a_block_table_of_one_column_may_have_any_stride_between_columns(
    trial: Example, setup: Setup, row_stride: int, column_stride: int
) -> None:
    """A block table of one column may have any stride between columns."""
    named = with_context(BatchAfterForward(setup, ()).cache, 1)[:-1]
    table = Tensor("int32", (2, 1), (1,) * (1 + row_stride), (row_stride, column_stride))
    tables = [table] * len(setup.groups)
    trial.agrees(
        *named,
        replace(setup.initialize(block_tables=tables), observes=(*METADATA, OUT)),
    )


@prop("align-context/int64-addresses", "width", CREATE, INITIALIZE, setup=setups(), address=addresses())
def test_an_address_keeps_all_64_bits(trial: Example, setup: Setup, address: int) -> None:
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


@prop("align-context/bound-once", "ownership", *V1, batch=batches_after_forward(mapped=False))
def test_a_context_is_bound_once(trial: Example, batch: BatchAfterForward) -> None:
    """A context is bound once.

    Later bindings change nothing: copies go on where the first one said.
    """
    cache = batch.cache
    elsewhere = {pool: f"other_{pool}" for pool in batch.setup.pools}
    trial.agrees(*batch.prepared())
    trial.agrees(
        *(Let(elsewhere[step.name], step.value) for step in cache.steps() if is_pool(step, elsewhere))
    )
    again = batch.setup.initialize(forward_context=moved_layers(cache.layers(), elsewhere))
    trial.agrees(replace(again, updates="", observes=METADATA))
    *named, last = batch.rowwise()
    assert isinstance(last, Call)
    trial.agrees(*named, replace(last, observes=(*last.observes, *elsewhere.values())))


def is_pool(step: Step, pools: Mapping[str, str]) -> TypeGuard[Let]:
    return isinstance(step, Let) and step.name in pools


def moved_layers(layers: Mapping[str, Value], pools: Mapping[str, str]) -> dict[str, Value]:
    """The layers with each pool replaced by another."""
    return {
        name: record("Layer", kv_cache=[replace(view, of=pools[view.of]) for view in layer["kv_cache"]])
        for name, layer in layers.items()
    }


@prop("v1-postprocess/idempotent", "ownership", *V1, batch=batches_after_forward(mapped=False))
def test_storing_the_same_step_twice_is_storing_it_once(trial: Example, batch: BatchAfterForward) -> None:
    """Storing the same step twice is storing it once.

    Where no state is shifted in its own block, everything that a copy reads is still there after it.
    """
    size = batch.setup.block_size
    assume(not any(one.bias(size) > 0 and one.published(size) == one.running(size) for one in batch.requests))
    trial.agrees(*batch.prepared(), *batch.rowwise())
    once = trial.run(batch.postprocess())
    twice = trial.run(batch.postprocess())
    trial.holds(once == twice, "the second time left something else than the first", place="the second time")


def same_states(
    trial: Example,
    one: BatchAfterForward | BatchBeforeForward,
    left_one: Any,
    other: BatchAfterForward | BatchBeforeForward,
    left_other: Any,
) -> None:
    """State that the blocks that requests have in both batches got the same bytes."""
    before, after = one.cache.states(left_one), other.cache.states(left_other)
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


@statements(
    statement("v1-postprocess/relabelled-blocks", "metamorphic", V1, batch=batches_after_forward(mapped=False).map(seeded), shuffle=st.integers(1, 9),
        change=relabelled, steps=by_row, says="relabelled blocks get the same states"),
    statement("precopy/relabelled-blocks", "metamorphic", BEFORE, batch=batches_before_forward().map(seeded), shuffle=st.integers(1, 9),
        change=relabelled, steps=by_slot, says="relabelled blocks get the same states before a step"),
    statement("v2-postprocess/rows-without-slot", "metamorphic", V2, batch=batches_after_forward().map(seeded), more=st.integers(1, 3),
        change=with_rows_without_a_slot, steps=by_slot, says="rows without a slot change nothing"),
    statement("precopy/page-padding", "metamorphic", BEFORE, batch=batches_before_forward().map(seeded), padding=st.integers(1, 70),
        change=with_padding, steps=by_slot, says="padding of pages changes no state"),
    statement("v1-postprocess/another-group", "metamorphic", V1, batch=batches_after_forward(mapped=False).map(seeded), states=st.integers(1, 2),
        change=with_another_group, steps=by_row, says="another group changes no state of the others"),
)  # fmt: skip
def change_leaves_states_equal(
    trial: Example, batch: Any, change: Callable[..., Any], steps: Callable[[Any], Steps], **amount: int
) -> None:
    other = change(batch, **amount)
    same_states(trial, batch, trial.leaves(*steps(batch)), other, trial.leaves(*steps(other)))


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


@statements(
    statement("v1-postprocess/row-order", "metamorphic", V1, batch=batches_after_forward(mapped=False).map(seeded), order=st.integers(1, 9),
        steps=by_row, counts=counts_by_row, says="rows may stand in any order"),
    statement("v2-postprocess/row-order", "metamorphic", V2, batch=batches_after_forward().map(seeded), order=st.integers(0, 9), slots=st.integers(0, 9),
        steps=by_slot, counts=counts_by_slot, says="rows and slots may be in any order"),
)  # fmt: skip
def row_order_does_not_matter(
    trial: Example,
    batch: BatchAfterForward,
    steps: Callable[[Any], Steps],
    counts: Callable[..., dict[int, int]],
    **by: int,
) -> None:
    other = reordered(batch, **by)
    one, two = trial.leaves(*steps(batch)), trial.leaves(*steps(other))
    same_states(trial, batch, one, other, two)
    wanted, found = counts(batch, one), counts(other, two)
    trial.holds(
        found == wanted,
        f"accepted counts by request = {found}",
        f"should be {wanted}",
        place="accepted counts",
    )


@prop("copy-meta/copied", "byte-exact", COLLECT, DO_COPY, COPY_BUFFERS, step=runner_steps(pointers=True))
def test_what_is_written_down_is_what_is_copied(trial: Example, step: RunnerStep) -> None:
    """What is written down is what is copied.

    A request whose state stays where it is writes nothing down.
    """
    size, cache = step.setup.block_size, step.cache
    trial.agrees(*step.prepared())
    for number, one in enumerate(step.requests):
        if one.previous(size) >= 0:
            move = one.previous(size), one.running(size), one.bias if one.moves(size) else 0
            trial.agrees(collect_request(cache, number, *move))
    trial.agrees(do_copies(cache.observes, schedule=step.schedule))


@prop("copy-meta/memmove", "memmove", COLLECT, DO_COPY, MEMCPY, COPY_BUFFERS, runs=runs())
def test_runs_that_overlap_themselves_move_as_through_a_temporary(trial: Example, runs: MovedRuns) -> None:
    """Runs that overlap themselves move as through a temporary."""
    trial.agrees(
        *runs.steps(),
        runs.collect(),
        do_copies(["pool0"], schedule=runs.schedule),
    )
    trial.agrees(copy_again(["pool0"], schedule=runs.schedule))


@prop(
    "copy-meta/kernel-launch", "memmove", MEMCPY_KERNEL, LAUNCH, COLLECT, DO_COPY, COPY_BUFFERS, runs=runs()
)
def test_the_kernel_that_copies_runs_may_be_launched_as_documented(trial: Example, runs: MovedRuns) -> None:
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
def test_sizes_of_runs_may_be_numbers_of_32_or_64_bits(trial: Example, runs: MovedRuns, dtype: str) -> None:
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
def test_no_order_of_programs_shows_in_copied_runs(
    trial: Example, runs: MovedRuns, chosen: list[str]
) -> None:
    """No order of programs shows in copied runs."""
    trial.agrees(*runs.steps(), runs.collect(), do_copies(["pool0"]))
    for schedule in chosen:
        trial.agrees(copy_again(["pool0"], schedule=schedule))


@prop("copy-meta/int64-pointers", "width", COLLECT, COPY_BUFFERS, runs=runs(), address=addresses())
def test_pointers_keep_all_64_bits(trial: Example, runs: MovedRuns, address: int) -> None:
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
def test_a_state_that_stays_is_not_listed_and_an_empty_list_copies_nothing(
    trial: Example, runs: MovedRuns, column: int
) -> None:
    """A state that stays is not listed, and an empty list copies nothing."""
    stays = collect(runs.setup, runs.places, column, column, 0)
    trial.agrees(*runs.steps(), stays, do_copies(["pool0"]))
