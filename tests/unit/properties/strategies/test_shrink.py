"""The strategies shrink to what a person would write down, as Hypothesis tests of its own (test_shrink_quality.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis.strategies import SearchStrategy

from properties.strategies.align.batches import (
    BatchAfterForward,
    BatchBeforeForward,
    BatchLayout,
    batches_after_forward,
    batches_before_forward,
    far_batches_after_forward,
)
from properties.strategies.align.cache import Filling
from properties.strategies.align.pointers import MovedRun, MovedRuns, runs
from properties.strategies.align.requests import FLAWS, RequestAfterStep, RequestBeforeStep
from properties.strategies.align.runner import RunnerStep, runner_steps
from properties.strategies.align.sessions import History, SessionRequest, SessionStep, histories
from properties.strategies.align.setup import DTYPES, Group, Kept, Setup, setups
from properties.strategies.batch import (
    Batch,
    BlockTable,
    RequestRow,
    Splitting,
    batches,
    block_tables,
    decodes,
    prefills,
    shuffled_batches,
    splittings,
)
from properties.strategies.chunks import DENSE, Packed, lengths_around, packed_sequences, vector_forms
from properties.strategies.layout import HUGE_STRIDE, Copy, PaddedState, conv_copies, layouts, temporal_copies
from properties.strategies.shapes import ShapeArguments, models
from tests.unit.properties.strategies.drawing import minimal

pytestmark = pytest.mark.slow
Rows = tuple[tuple[Callable[[Any], bool], object], ...]
"""What has to hold of the value, and the simplest such value."""
DECODE, PREFILL = RequestRow(1, 1), RequestRow(1, 0, prefilling=True)
SMALLEST = PaddedState(2, (1, 1))
TEMPORAL = Group((Kept("temporal", (1, 1, 1)),))
PLAIN = Setup((TEMPORAL,))
DRAFTING = Setup((TEMPORAL,), block_size=2, num_spec=1)
FRESH, NEW = RequestAfterStep(), RequestBeforeStep(remembered=False)


def sizes(family: str, tp_size: int = 1, num_spec: int = 0, **arguments: int) -> ShapeArguments:
    return ShapeArguments(family, tuple(arguments.items()), tp_size, num_spec=num_spec)


def mamba2(shared: int, groups: int, tp_size: int) -> ShapeArguments:
    return sizes(
        "mamba2_state_shape",
        tp_size,
        intermediate_size=shared,
        n_groups=groups,
        num_heads=shared,
        head_dim=1,
        state_size=1,
        conv_kernel=2,
    )


LINEAR = sizes("linear_attention_state_shape", num_heads=1, head_dim=1)
GDN = sizes(
    "gated_delta_net_state_shape",
    num_k_heads=1,
    num_v_heads=1,
    head_k_dim=1,
    head_v_dim=1,
    conv_kernel_size=2,
)
PUBLISHED = replace(
    sizes("linear_attention_state_shape", num_heads=64, head_dim=128), published="MiniMax-Text-01"
)
SIMPLEST: tuple[tuple[SearchStrategy[Any], object], ...] = (
    (packed_sequences(), Packed((), 1)),
    (batches(), Batch(())),
    (shuffled_batches(), Batch(())),
    (splittings(), Splitting(Batch(()))),
    (block_tables(), BlockTable((), (), block_size=1)),
    (conv_copies(), Copy(SMALLEST, (1,))),
    (temporal_copies(), Copy(PaddedState(2, (1,)), (1,))),
    (models(), LINEAR),
    (decodes(num_spec=3), DECODE),
    (prefills(), PREFILL),
    (layouts(), "SD"),
    (lengths_around(4), 0),
    (vector_forms(), DENSE),
    (setups(), PLAIN),
    (batches_after_forward(), BatchAfterForward(PLAIN, (FRESH,))),
    (batches_before_forward(), BatchBeforeForward(PLAIN, (NEW,))),
    (runner_steps(), RunnerStep(PLAIN, (NEW,))),
    (histories(min_spec=0), History(PLAIN, (SessionRequest((SessionStep(),)),))),
    (runs(), MovedRuns((MovedRun(1),))),
    (
        far_batches_after_forward(),
        BatchAfterForward(PLAIN, (RequestAfterStep(1),), filling=Filling(far=2**31 + 2**12)),
    ),
)


@pytest.mark.parametrize(("strategy", "simplest"), SIMPLEST, ids=lambda value: type(value).__name__)
def test_nothing_in_particular_is_the_simplest_value(strategy: SearchStrategy[Any], simplest: object) -> None:
    assert minimal(strategy) == simplest


def has_dtype(name: str) -> Callable[[Setup], bool]:
    return lambda setup: any(state.dtype == name for group in setup.groups for state in group.states)


def has_flaw(flaw: str) -> Callable[[BatchAfterForward], bool]:
    return lambda batch: any(row.flaw == flaw for row in batch.requests)


def overlaps_by(sign: int) -> Callable[[MovedRuns], bool]:
    return lambda moved: any(0 < sign * run.distance < run.size for run in moved.runs)


SEQUENCES: Rows = (
    (lambda packed: max(packed.lens, default=0) > packed.chunk_size, Packed((2,), 1)),
    (lambda packed: 0 in packed.lens[1:-1] and packed.lens[0] * packed.lens[-1] > 0, Packed((1, 0, 1), 1)),
    (lambda packed: max(packed.lens, default=0) > 7, Packed((8,), 3)),
    (lambda packed: packed.chunk_size > 8, Packed((), 16)),
    (lambda packed: packed.starts[-1] >= 10, Packed((10,), 3)),
)
VECTORS: Rows = ((lambda form: form[1] == "spread", ("int32", "spread")),)
BATCHES: Rows = (
    (lambda batch: {row.prefilling for row in batch.requests} == {True, False}, Batch((DECODE, PREFILL))),
    (lambda batch: batch.padded_rows > 0 and len(batch.requests) > 0, Batch((DECODE,), padded_rows=1)),
    (lambda batch: batch.padded_tokens > 0, Batch((), padded_tokens=1)),
    (lambda batch: max(batch.query_lens, default=0) >= 12, Batch((RequestRow(12, 0, prefilling=True),))),
    (lambda batch: max(batch.seq_lens, default=0) > 15, Batch((RequestRow(1, 15),))),
    (lambda batch: len(batch.requests) == 3, Batch((DECODE,) * 3)),
)
TABLES: Rows = (
    (lambda table: len(table.rows) == 2, BlockTable(((1,), (2,)), (0, 0), block_size=1)),
    (
        lambda table: table.extra_stride > 0 and len(table.rows) > 0,
        BlockTable(((1,),), (0,), block_size=1, extra_stride=1),
    ),
    (
        lambda table: any(row[0] == 0 for row in table.rows),
        BlockTable(((0, 1, 2),), (3,), block_size=1, width=3),
    ),
    (
        lambda table: table.num_speculative_blocks > 0 and len(table.rows) > 0,
        BlockTable(((1, 2),), (0,), block_size=1, num_speculative_blocks=1, width=2),
    ),
    (lambda table: len(table.seq_lens) < len(table.rows), BlockTable(((1,),), (), block_size=1)),
)
CONV_COPIES: Rows = (
    (
        lambda copy: copy.num_accepted_tokens > 1,
        Copy(PaddedState(3, (2, 1)), (1, 2), num_accepted_tokens=2, num_spec=1),
    ),
    (lambda copy: copy.layout == "DS", Copy(SMALLEST, (1,), layout="DS")),
    (lambda copy: min(copy.state.block_shape) == 2, Copy(PaddedState(2, (2, 2)), (1,))),
    (lambda copy: copy.state.padding > 0, Copy(PaddedState(2, (1, 1), padding=1), (1,))),
    (lambda copy: copy.state.offset > 0, Copy(PaddedState(2, (1, 1), padding=1, offset=1), (1,))),
    (lambda copy: copy.state.dtype == "float16", Copy(PaddedState(2, (1, 1), "float16"), (1,))),
    (
        lambda copy: copy.state.padding >= HUGE_STRIDE,
        Copy(PaddedState(2, (1, 1), "float8_e4m3fn", HUGE_STRIDE), (1,)),
    ),
)
TEMPORAL_COPIES: Rows = (
    (lambda copy: copy.cur_block_idx > 0, Copy(PaddedState(2, (1,)), (0, 1), cur_block_idx=1)),
)
MODELS: Rows = (
    (lambda model: model.tp_size > 1, sizes("linear_attention_state_shape", 2, num_heads=2, head_dim=1)),
    (
        lambda model: model.tp_size > dict(model.arguments).get("n_groups", model.tp_size),
        mamba2(shared=2, groups=1, tp_size=2),
    ),
    (
        lambda model: model.num_spec > 0,
        sizes("short_conv_state_shape", num_spec=1, intermediate_size=1, conv_kernel=2),
    ),
    (lambda model: model.family == GDN.family, GDN),
    (lambda model: bool(model.published), PUBLISHED),
)
SETUPS: Rows = (
    (lambda setup: setup.layout == "DS", Setup((TEMPORAL,), layout="DS")),
    (lambda setup: len(setup.groups) > 1, Setup((TEMPORAL, TEMPORAL))),
    (lambda setup: setup.groups[0].layers > 1, Setup((replace(TEMPORAL, layers=2),))),
    (lambda setup: any(group.padding for group in setup.groups), Setup((replace(TEMPORAL, padding=1),))),
    (lambda setup: setup.num_spec > 0, DRAFTING),
    *((has_dtype(name), Setup((Group((Kept("temporal", (1, 1, 1), name),)),))) for name in DTYPES),
)
AFTERS: Rows = (
    (lambda batch: bool(batch.rows.skipped), BatchAfterForward(PLAIN, (FRESH,), BatchLayout(skipped=(0,)))),
    (lambda batch: batch.filling.shuffle > 0, BatchAfterForward(PLAIN, (FRESH,), filling=Filling(shuffle=1))),
    (
        lambda batch: batch.schedule.startswith("switches"),
        BatchAfterForward(PLAIN, (FRESH,), schedule="switches:0>0"),
    ),
    (lambda batch: batch.rows.spare > 0, BatchAfterForward(PLAIN, (FRESH,), BatchLayout(spare=1))),
)
FLAWED: Rows = tuple(
    (has_flaw(flaw), BatchAfterForward(PLAIN, (replace(FRESH, flaw=flaw),))) for flaw in FLAWS[1:]
)
CROWDED: Rows = (
    (lambda batch: batch.num_reqs > 32, BatchAfterForward(PLAIN, (FRESH,), BatchLayout(ahead=32))),
)
BEFORES: Rows = (
    (
        lambda batch: any(row.bias and row.moves(batch.setup.block_size) for row in batch.requests),
        BatchBeforeForward(DRAFTING, (RequestBeforeStep(1, 1, 2),)),
    ),
    (
        lambda batch: any(row.computed and not row.remembered for row in batch.requests),
        BatchBeforeForward(PLAIN, (RequestBeforeStep(1, remembered=False),)),
    ),
)
RUNNER_STEPS: Rows = (
    (lambda step: bool(step.gone), RunnerStep(PLAIN, (NEW,), gone=("finished",))),
    (lambda step: step.resumed, RunnerStep(PLAIN, (NEW,), resumed=True)),
)
RUNS: Rows = (
    (overlaps_by(-1), MovedRuns((MovedRun(2, -1),))),
    (overlaps_by(1), MovedRuns((MovedRun(2, 1),))),
    (lambda moved: moved.spare > 0, MovedRuns((MovedRun(1),), spare=1)),
)
SHRUNK: tuple[tuple[str, SearchStrategy[Any], Rows], ...] = (
    ("sequences", packed_sequences(), SEQUENCES),
    ("vectors", vector_forms(), VECTORS),
    ("batches", batches(), BATCHES),
    ("block tables", block_tables(), TABLES),
    ("conv copies", conv_copies(), CONV_COPIES),
    ("temporal copies", temporal_copies(), TEMPORAL_COPIES),
    ("models", models(), MODELS),
    ("setups", setups(), SETUPS),
    ("afters", batches_after_forward(), AFTERS),
    ("flawed afters", batches_after_forward(flawed=True), FLAWED),
    ("crowded afters", batches_after_forward(crowded=True), CROWDED),
    ("befores", batches_before_forward(), BEFORES),
    ("runner steps", runner_steps(), RUNNER_STEPS),
    ("runs", runs(), RUNS),
)


@pytest.mark.parametrize(
    ("strategy", "condition", "simplest"),
    [
        pytest.param(strategy, condition, simplest, id=f"{name}, {simplest}")
        for name, strategy, rows in SHRUNK
        for condition, simplest in rows
    ],
)
def test_a_value_has_nothing_that_its_condition_does_not_need(
    strategy: SearchStrategy[Any], condition: Callable[[Any], bool], simplest: object
) -> None:
    # What is drawn first depends on the modules that are loaded, and a value may be the smallest around it and no smaller one be near.
    assert any(minimal(strategy, condition, start) == simplest for start in range(10))


@pytest.mark.parametrize("length", range(12))
def test_a_length_around_a_unit_is_the_least_that_the_condition_allows(length: int) -> None:
    assert minimal(lengths_around(4), lambda found: found >= length) == length


def test_a_layer_with_fewer_states_is_the_first_or_beside_a_whole_one() -> None:
    fewer = minimal(
        setups(), lambda setup: any(len(group.states) < len(setup.kinds) for group in setup.groups)
    )
    assert sum(len(group.states) for group in fewer.groups) <= 3


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        (lambda history: len(history.requests) > 1, 2),
        (lambda history: len({len(request.turns) for request in history.requests}) > 1, 2),
    ],
)
def test_a_history_has_no_request_and_no_draft_too_many(
    condition: Callable[[History], bool], most: int
) -> None:
    # A shrinker may stop at a larger block that allows a smaller number elsewhere; one of two starts does not.
    tried = [minimal(histories(min_spec=0), condition, start) for start in range(2)]
    found = min(tried, key=lambda history: history.setup.block_size)
    assert len(found.requests) == most
    assert found.setup.block_size <= 3
    assert sum(len(request.turns) for request in found.requests) <= 4
