"""The kernels of align mode: the fused ones through the context that launches them, and copies of byte runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from hypothesis import assume
from hypothesis import strategies as st

from properties.harness.case.values import Call, Fake, Let, Step, Value, record
from properties.harness.execution.example import Trial
from properties.harness.execution.registry import prop
from properties.strategies.align import CONTEXT, Group, Setup, setups
from properties.strategies.align_batches import (
    OUT,
    POSTPROCESS,
    POSTPROCESS_ALIGN,
    POSTPROCESS_KERNEL,
    PRECOPY,
    PRECOPY_KERNEL,
    PREPROCESS_KERNEL,
    After,
    Before,
)
from properties.strategies.align_cache import with_context
from properties.strategies.align_pointers import (
    COLLECT,
    DO_COPY,
    LISTS,
    MEMCPY,
    POINTERS,
    Runs,
    addresses,
    collect,
    collect_request,
    copy_again,
    do_copies,
    runs,
)
from properties.strategies.align_runner import COPY_BUFFERS, RunnerStep, runner_steps
from properties.strategies.align_steps import afters, befores, far_afters, far_befores
from properties.strategies.orders import orders

CREATE = f"{CONTEXT}.create"
INITIALIZE = f"{CONTEXT}.initialize_from_forward_context"
LAUNCH = "harness.launch"
V1 = (CREATE, INITIALIZE, POSTPROCESS)
V2 = (CREATE, INITIALIZE, POSTPROCESS_ALIGN)
BEFORE = (CREATE, INITIALIZE, PRECOPY)
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


@prop("byte-exact", *V1, batch=afters(mapped=False))
def test_an_accepted_state_on_a_boundary_is_stored_in_the_column_of_its_block(
    trial: Trial, batch: After
) -> None:
    trial.agrees(*batch.prepared(), *batch.rowwise())


@prop("byte-exact", *V2, batch=afters())
def test_an_accepted_state_on_a_boundary_is_stored_for_requests_in_slots(trial: Trial, batch: After) -> None:
    trial.agrees(*batch.prepared(), *batch.slotwise())


@prop("byte-exact", *BEFORE, batch=befores())
def test_a_state_is_brought_to_the_column_where_its_request_goes_on(trial: Trial, batch: Before) -> None:
    trial.agrees(*batch.prepared(), *batch.slotwise())


@prop("agreement", PREPROCESS_KERNEL, LAUNCH, batch=befores(uncounted=True))
def test_a_request_goes_to_the_column_of_its_last_token_and_remembers_where_it_comes_from(
    trial: Trial, batch: Before
) -> None:
    trial.agrees(*batch.advance())


@prop("byte-exact", PREPROCESS_KERNEL, LAUNCH, *BEFORE, batch=befores())
def test_what_the_preprocess_kernel_decides_is_what_the_precopy_does(trial: Trial, batch: Before) -> None:
    trial.agrees(*batch.prepared(), *batch.advance(), batch.precopy())


@prop("byte-exact", *V1, batch=afters(mapped=False, crowded=True))
def test_states_behind_dozens_of_idle_rows_are_stored(trial: Trial, batch: After) -> None:
    trial.agrees(*batch.prepared(), *batch.rowwise())


@prop("byte-exact", *V2, batch=afters(crowded=True))
def test_states_behind_dozens_of_idle_rows_are_stored_for_requests_in_slots(
    trial: Trial, batch: After
) -> None:
    trial.agrees(*batch.prepared(), *batch.slotwise())


@prop("byte-exact", *BEFORE, PREPROCESS_KERNEL, LAUNCH, batch=befores(crowded=True))
def test_states_behind_dozens_of_idle_rows_are_brought_along(trial: Trial, batch: Before) -> None:
    trial.agrees(*batch.prepared(), *batch.advance(), batch.precopy())


@prop("order-free", *V1, batch=afters(mapped=False, reordered=True), chosen=orders())
def test_no_order_of_programs_shows_in_what_is_stored_by_row(
    trial: Trial, batch: After, chosen: list[str]
) -> None:
    in_each_order(trial, batch, batch.rowwise(), chosen)


@prop(
    "order-free", *V2, batch=afters(reordered=True) | afters(in_place=True, reordered=True), chosen=orders()
)
def test_no_order_of_programs_shows_in_what_is_stored_by_slot(
    trial: Trial, batch: After, chosen: list[str]
) -> None:
    """Counts are reset in place, while other programs still have to decide from the counts before."""
    in_each_order(trial, batch, batch.slotwise(), chosen)


@prop("order-free", *BEFORE, batch=befores(moving=True, reordered=True), chosen=orders())
def test_no_order_of_programs_shows_in_what_is_brought_along(
    trial: Trial, batch: Before, chosen: list[str]
) -> None:
    in_each_order(trial, batch, batch.slotwise(), chosen)


@prop("order-free", PREPROCESS_KERNEL, LAUNCH, batch=befores(tiles=(1,)), chosen=orders())
def test_no_order_of_programs_shows_in_the_columns_of_the_step(
    trial: Trial, batch: Before, chosen: list[str]
) -> None:
    *named, last = batch.advance()
    assert isinstance(last, Call)
    for schedule in chosen:
        trial.agrees(*named, replace(last, schedule=schedule))


def in_each_order(trial: Trial, batch: After | Before, steps: Sequence[Step], chosen: Sequence[str]) -> None:
    """Take `steps`, that end in a launch, from the same state of memory with each of the schedules."""
    *named, last = steps
    assert isinstance(last, Call)
    trial.agrees(*batch.prepared())
    for schedule in chosen:
        trial.agrees(*batch.cache.refill(), *named, replace(last, schedule=schedule))


@prop("byte-exact", POSTPROCESS_KERNEL, LAUNCH, CREATE, INITIALIZE, batch=afters(mapped=False))
def test_the_kernel_that_stores_states_may_be_launched_as_documented(trial: Trial, batch: After) -> None:
    """A program for each row and each state of every layer, on the vectors of a context."""
    *named, _ = batch.rowwise()
    trial.agrees(*batch.prepared(), *named, batch.launched())


@prop("byte-exact", PRECOPY_KERNEL, LAUNCH, CREATE, INITIALIZE, batch=befores())
def test_the_kernel_that_brings_states_along_may_be_launched_as_documented(
    trial: Trial, batch: Before
) -> None:
    """A program for each row and each state of every layer, on the vectors of a context."""
    *named, _ = batch.slotwise()
    trial.agrees(*batch.prepared(), *named, batch.launched())


@prop("memmove", *V1, batch=afters(in_place=True, mapped=False))
def test_rows_move_within_their_block_as_through_a_temporary(trial: Trial, batch: After) -> None:
    trial.agrees(*batch.prepared(), *batch.rowwise())


@prop("memmove", *V2, batch=afters(in_place=True))
def test_rows_move_within_their_block_as_through_a_temporary_for_requests_in_slots(
    trial: Trial, batch: After
) -> None:
    trial.agrees(*batch.prepared(), *batch.slotwise())


@prop("red zone", *V1, batch=afters(flawed=True, mapped=False))
def test_nothing_is_stored_through_a_null_block_or_a_column_that_is_not_there(
    trial: Trial, batch: After
) -> None:
    trial.agrees(*batch.prepared(), *batch.rowwise())


@prop("red zone", *V2, batch=afters(flawed=True))
def test_nothing_is_stored_for_a_row_without_a_slot_a_null_block_or_a_missing_column(
    trial: Trial, batch: After
) -> None:
    trial.agrees(*batch.prepared(), *batch.slotwise())


@prop("red zone", *BEFORE, batch=befores(flawed=True))
def test_nothing_is_brought_along_through_a_sentinel(trial: Trial, batch: Before) -> None:
    trial.agrees(*batch.prepared(), *batch.slotwise())


@prop("width", *V1, batch=far_afters())
def test_blocks_beyond_32_bits_are_stored_in_their_place(trial: Trial, batch: After) -> None:
    trial.agrees(*batch.prepared(), *batch.rowwise())


@prop("width", *BEFORE, batch=far_befores())
def test_blocks_beyond_32_bits_are_brought_along(trial: Trial, batch: Before) -> None:
    trial.agrees(*batch.prepared(), *batch.slotwise())


@prop("agreement", CREATE, INITIALIZE, setup=setups(), spare=st.integers(0, 2))
def test_a_context_describes_every_state_of_every_layer(trial: Trial, setup: Setup, spare: int) -> None:
    batch = After(setup, ())
    *named, bound = with_context(batch.cache, 1 + spare)
    assert isinstance(bound, Call)
    trial.agrees(*named, replace(bound, observes=(*METADATA, OUT)))


@prop("width", CREATE, INITIALIZE, setup=setups(), address=addresses())
def test_an_address_keeps_all_64_bits(trial: Trial, setup: Setup, address: int) -> None:
    batch = After(setup, ())
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


@prop("ownership", *V1, batch=afters(mapped=False))
def test_a_context_is_bound_once(trial: Trial, batch: After) -> None:
    """Later bindings change nothing: copies go on where the first one said."""
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


@prop("ownership", *V1, batch=afters(mapped=False))
def test_a_context_that_is_not_bound_copies_nothing(trial: Trial, batch: After) -> None:
    *named, _ = batch.prepared()
    trial.agrees(*named, *batch.rowwise())


@prop("ownership", *V1, batch=afters(mapped=False))
def test_storing_the_same_step_twice_is_storing_it_once(trial: Trial, batch: After) -> None:
    """Where no state is shifted in its own block, everything that a copy reads is still there after it."""
    size = batch.setup.block_size
    assume(not any(one.bias(size) > 0 and one.published(size) == one.running(size) for one in batch.requests))
    trial.agrees(*batch.prepared(), *batch.rowwise())
    once = trial.run(batch.postprocess())
    twice = trial.run(batch.postprocess())
    trial.holds(once == twice, "the second time left something else than the first", place="the second time")


def left(trial: Trial, batch: After | Before, steps: Sequence[Step]) -> dict[str, Value]:
    """What `steps` leave in all that their last call observes, not compared with anything."""
    return trial.leaves(*batch.prepared(), *steps)


def same_states(
    trial: Trial, one: After | Before, left_one: Any, other: After | Before, left_other: Any
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


@prop("metamorphic", *V1, batch=afters(mapped=False).map(seeded), shuffle=st.integers(1, 9))
def test_relabelled_blocks_get_the_same_states(trial: Trial, batch: After, shuffle: int) -> None:
    other = replace(batch, filling=replace(batch.filling, shuffle=batch.filling.shuffle + shuffle))
    one, two = left(trial, batch, batch.rowwise()), left(trial, other, other.rowwise())
    same_states(trial, batch, one, other, two)


@prop("metamorphic", *BEFORE, batch=befores().map(seeded), shuffle=st.integers(1, 9))
def test_relabelled_blocks_get_the_same_states_before_a_step(
    trial: Trial, batch: Before, shuffle: int
) -> None:
    other = replace(batch, filling=replace(batch.filling, shuffle=batch.filling.shuffle + shuffle))
    one, two = left(trial, batch, batch.slotwise()), left(trial, other, other.slotwise())
    same_states(trial, batch, one, other, two)


@prop("metamorphic", *V1, batch=afters(mapped=False).map(seeded), order=st.integers(1, 9))
def test_rows_may_stand_in_any_order(trial: Trial, batch: After, order: int) -> None:
    other = replace(batch, rows=replace(batch.rows, order=batch.rows.order + order))
    one, two = left(trial, batch, batch.rowwise()), left(trial, other, other.rowwise())
    same_states(trial, batch, one, other, two)
    counts, found = by_row(batch, one), by_row(other, two)
    trial.holds(
        found == counts,
        f"accepted counts by request = {found}",
        f"should be {counts}",
        place="accepted counts",
    )


def by_row(batch: After, left: Mapping[str, Value]) -> dict[int, int]:
    """The accepted count of each request."""
    return dict(zip(batch.row_order, left[OUT].values(), strict=False))


@prop("metamorphic", *V2, batch=afters().map(seeded), order=st.integers(0, 9), slots=st.integers(0, 9))
def test_rows_and_slots_may_be_in_any_order(trial: Trial, batch: After, order: int, slots: int) -> None:
    assume(order or slots)
    other = replace(
        batch, rows=replace(batch.rows, order=batch.rows.order + order, slots=batch.rows.slots + slots)
    )
    one, two = left(trial, batch, batch.slotwise()), left(trial, other, other.slotwise())
    same_states(trial, batch, one, other, two)
    counts, found = by_slot(batch, one), by_slot(other, two)
    trial.holds(
        found == counts,
        f"accepted counts by request = {found}",
        f"should be {counts}",
        place="accepted counts",
    )


def by_slot(batch: After, left: Mapping[str, Value]) -> dict[int, int]:
    """The accepted count of each request."""
    counts, pairs = left["counts"].values(), zip(batch.row_order, batch.slots, strict=True)
    return {request: counts[slot] for request, slot in pairs if slot >= 0}


@prop("metamorphic", *V2, batch=afters().map(seeded), more=st.integers(1, 3))
def test_rows_without_a_slot_change_nothing(trial: Trial, batch: After, more: int) -> None:
    assume(not batch.setup.shared and batch.requests)
    count = len(batch.requests)
    added = tuple(range(count, count + more))
    other = replace(
        batch,
        requests=(*batch.requests, *batch.requests[:1] * more),
        rows=replace(batch.rows, skipped=(*batch.rows.skipped, *added)),
    )
    one, two = left(trial, batch, batch.slotwise()), left(trial, other, other.slotwise())
    same_states(trial, batch, one, other, two)


@prop("metamorphic", *BEFORE, batch=befores().map(seeded), padding=st.integers(1, 70))
def test_padding_of_pages_changes_no_state(trial: Trial, batch: Before, padding: int) -> None:
    groups = tuple(replace(group, padding=group.padding + padding) for group in batch.setup.groups)
    other = replace(batch, setup=replace(batch.setup, groups=groups))
    one, two = left(trial, batch, batch.slotwise()), left(trial, other, other.slotwise())
    same_states(trial, batch, one, other, two)


@prop("metamorphic", *V1, batch=afters(mapped=False).map(seeded), states=st.integers(1, 2))
def test_another_group_changes_no_state_of_the_others(trial: Trial, batch: After, states: int) -> None:
    assume(not batch.setup.shared)
    first = batch.setup.groups[0]
    more = (*batch.setup.groups, Group(first.states[:1] if states == 1 else first.states, layers=states))
    other = replace(batch, setup=replace(batch.setup, groups=more, attention=not batch.setup.attention))
    one, two = left(trial, batch, batch.rowwise()), left(trial, other, other.rowwise())
    same_states(trial, batch, one, other, two)


@prop("byte-exact", COLLECT, DO_COPY, COPY_BUFFERS, step=runner_steps(pointers=True))
def test_what_is_written_down_is_what_is_copied(trial: Trial, step: RunnerStep) -> None:
    """A request whose state stays where it is writes nothing down."""
    size, cache = step.setup.block_size, step.cache
    trial.agrees(*step.prepared())
    for number, one in enumerate(step.requests):
        if one.previous(size) >= 0:
            move = one.previous(size), one.running(size), one.bias if one.moves(size) else 0
            trial.agrees(collect_request(cache, number, *move))
    trial.agrees(do_copies(cache.observes, schedule=step.schedule))


@prop("memmove", COLLECT, DO_COPY, MEMCPY, COPY_BUFFERS, runs=runs())
def test_runs_that_overlap_themselves_move_as_through_a_temporary(trial: Trial, runs: Runs) -> None:
    trial.agrees(*runs.steps(), runs.collect(), do_copies(["pool0"], schedule=runs.schedule))
    trial.agrees(copy_again(["pool0"], schedule=runs.schedule))


@prop("order-free", COLLECT, DO_COPY, MEMCPY, COPY_BUFFERS, runs=runs(reordered=True), chosen=orders())
def test_no_order_of_programs_shows_in_copied_runs(trial: Trial, runs: Runs, chosen: list[str]) -> None:
    trial.agrees(*runs.steps(), runs.collect(), do_copies(["pool0"]))
    for schedule in chosen:
        trial.agrees(copy_again(["pool0"], schedule=schedule))


@prop("width", COLLECT, COPY_BUFFERS, runs=runs(), address=addresses())
def test_pointers_keep_all_64_bits(trial: Trial, runs: Runs, address: int) -> None:
    *named, made = runs.steps()
    layers = {
        f"layer{number}": record("Layer", kv_cache=[Fake("uint8", (2**30, 1, 1, run.size), None, address)])
        for number, run in enumerate(runs.runs)
    }
    written = collect(runs.setup, runs.places, 0, 1, 0, forward_context=layers, observes=(*LISTS, *POINTERS))
    trial.agrees(*named, made, written)


@prop("ownership", COLLECT, DO_COPY, COPY_BUFFERS, runs=runs(), column=st.integers(0, 1))
def test_a_state_that_stays_is_not_written_down_and_nothing_written_is_nothing_copied(
    trial: Trial, runs: Runs, column: int
) -> None:
    stays = collect(runs.setup, runs.places, column, column, 0)
    trial.agrees(*runs.steps(), stays, do_copies(["pool0"]))


@prop("cost", *V1, device="cuda", batch=afters(mapped=False))
def test_storing_by_row_never_waits_for_the_device(trial: Trial, batch: After) -> None:
    *named, last = batch.rowwise()
    trial.agrees(*batch.prepared(), *named)
    trial.agrees_without_waiting(last)


@prop("cost", *V2, device="cuda", batch=afters())
def test_storing_by_slot_never_waits_for_the_device(trial: Trial, batch: After) -> None:
    *named, last = batch.slotwise()
    trial.agrees(*batch.prepared(), *named)
    trial.agrees_without_waiting(last)


@prop("cost", *BEFORE, device="cuda", batch=befores())
def test_bringing_states_along_never_waits_for_the_device(trial: Trial, batch: Before) -> None:
    *named, last = batch.slotwise()
    trial.agrees(*batch.prepared(), *named)
    trial.agrees_without_waiting(last)
