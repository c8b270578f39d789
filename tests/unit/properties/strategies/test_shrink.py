"""The strategies shrink to what a person would write down, as Hypothesis tests of its own (test_shrink_quality.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis.strategies import SearchStrategy

from properties.situations.align import decisions, pointers, runner
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
from properties.strategies.layout import (
    HUGE_STRIDE,
    Copy,
    PaddedState,
    conv_copies,
    layouts,
    temporal_copies,
)
from properties.strategies.shapes import ShapeArguments, models
from properties.strategies.situations import Situated
from tests.unit.properties.strategies.drawing import minimal

pytestmark = pytest.mark.slow
Condition = str | Callable[[Any], bool]
"""A situation by its name, or what has to hold of the value."""
Rows = tuple[tuple[Condition, object], ...]
DECODE, PREFILL, DRAFTED = RequestRow(1, 1), RequestRow(1, 0, prefilling=True), RequestRow(2, 1)
SMALLEST = PaddedState(2, (1, 1))
TEMPORAL = Group((Kept("temporal", (1, 1, 1)),))
PLAIN = Setup((TEMPORAL,))
DRAFTING = Setup((TEMPORAL,), block_size=2, num_spec=1)
TWO_DRAFTS = replace(DRAFTING, block_size=3, num_spec=2)
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


SEQUENCES: Rows = (
    ("several chunks in a sequence", Packed((2,), 1)),
    ("an empty sequence between others", Packed((1, 0, 1), 1)),
    ("zero-length rows at the back", Packed((1, 0), 1)),
    ("a start inside a physical chunk", Packed((1, 1), 2)),
    ("a length at k * chunk_size + 1", Packed((3,), 2)),
    (lambda packed: max(packed.lens, default=0) > 7, Packed((8,), 3)),
    (lambda packed: packed.chunk_size > 8, Packed((), 16)),
    (lambda packed: packed.starts[-1] >= 10, Packed((10,), 3)),
)
VECTORS: Rows = ((lambda form: form[1] == "spread", ("int32", "spread")),)
BATCHES: Rows = (
    ("decodes before prefills", Batch((DECODE, PREFILL))),
    ("chunked prefill", Batch((RequestRow(1, 1, prefilling=True),))),
    ("uniform speculative decodes", Batch((DRAFTED, DRAFTED))),
    ("uniform speculative decodes before padding", Batch((DRAFTED, DRAFTED), padded_rows=1)),
    ("zero-length rows at the back", Batch((DECODE,), padded_rows=1)),
    ("padded tokens", Batch((), padded_tokens=1)),
    (lambda batch: max(batch.query_lens, default=0) >= 12, Batch((RequestRow(12, 0, prefilling=True),))),
    (lambda batch: max(batch.seq_lens, default=0) > 15, Batch((RequestRow(1, 15),))),
    (lambda batch: len(batch.requests) == 3, Batch((DECODE,) * 3)),
)
SHUFFLED: Rows = (("a prefill before a decode", Batch((PREFILL, DECODE))),)
SPLITTINGS: Rows = (
    (
        "uneven decodes where uniform ones are required",
        Splitting(Batch((DECODE, DRAFTED)), decode_threshold=2, require_uniform=True),
    ),
    (
        "a short prompt chunk where those are prefills",
        Splitting(Batch((PREFILL,)), treat_short_extends_as_decodes=False),
    ),
    ("a bound above the threshold that no query reaches", Splitting(Batch((DECODE,)), slack=1)),
)
TABLES: Rows = (
    (lambda table: len(table.rows) == 2, BlockTable(((1,), (2,)), (0, 0), block_size=1)),
    (
        lambda table: table.extra_stride > 0 and len(table.rows) > 0,
        BlockTable(((1,),), (0,), block_size=1, extra_stride=1),
    ),
    ("null blocks before the running one", BlockTable(((0, 1, 2),), (3,), block_size=1, width=3)),
    ("wider than needed", BlockTable(((1,),), (0,), block_size=1, width=2)),
    ("a length at k * block_size + 1", BlockTable(((1, 2),), (3,), block_size=2, width=2)),
    (
        lambda table: table.num_speculative_blocks > 0 and len(table.rows) > 0,
        BlockTable(((1, 2),), (0,), block_size=1, num_speculative_blocks=1, width=2),
    ),
    ("fewer lengths than rows", BlockTable(((1,),), (), block_size=1)),
    ("ids above 2^30", BlockTable(((2**31 - 2**12,),), (0,), block_size=1)),
)
CONV_COPIES: Rows = (
    (
        lambda copy: copy.num_accepted_tokens > 1,
        Copy(PaddedState(3, (2, 1)), (1, 2), num_accepted_tokens=2, num_spec=1),
    ),
    ("no draft accepted", Copy(PaddedState(3, (2, 1)), (1, 2), num_spec=1)),
    ("channel-first layout", Copy(SMALLEST, (1,), layout="DS")),
    (
        "channel-first layout with accepted drafts",
        Copy(PaddedState(3, (1, 2)), (1, 2), num_accepted_tokens=2, num_spec=1, layout="DS"),
    ),
    (lambda copy: min(copy.state.block_shape) == 2, Copy(PaddedState(2, (2, 2)), (1,))),
    ("page padding", Copy(PaddedState(2, (1, 1), padding=1), (1,))),
    ("behind another state of the page", Copy(PaddedState(2, (1, 1), padding=1, offset=1), (1,))),
    ("addresses above 2^31", Copy(PaddedState(2, (1, 1), "float8_e4m3fn", HUGE_STRIDE), (1,))),
    *(
        (f"dtype {dtype}", Copy(PaddedState(2, (1, 1), dtype), (1,)))
        for dtype in ("bfloat16", "float16", "float8_e5m2", "int8")
    ),
)
TEMPORAL_COPIES: Rows = (
    (
        lambda copy: copy.num_accepted_tokens > 1,
        Copy(PaddedState(3, (1,)), (1, 2), num_accepted_tokens=2, num_spec=1),
    ),
    ("null blocks before the running one", Copy(PaddedState(2, (1,)), (0, 1), cur_block_idx=1)),
)
MODELS: Rows = (
    ("several ranks", sizes("linear_attention_state_shape", 2, num_heads=2, head_dim=1)),
    ("groups replicated", mamba2(shared=2, groups=1, tp_size=2)),
    ("groups shared", mamba2(shared=2, groups=2, tp_size=2)),
    ("speculative tokens", sizes("short_conv_state_shape", num_spec=1, intermediate_size=1, conv_kernel=2)),
    ("gated_delta_net_state_shape", GDN),
    ("kda_state_shape", sizes("kda_state_shape", num_heads=1, head_dim=1)),
    ("published model", PUBLISHED),
)
SETUPS: Rows = (
    ("channel-first layout", Setup((TEMPORAL,), layout="DS")),
    ("two groups", Setup((TEMPORAL, TEMPORAL))),
    ("shared pool", Setup((TEMPORAL, TEMPORAL), shared=True)),
    ("several layers in a group", Setup((replace(TEMPORAL, layers=2),))),
    ("page padding", Setup((replace(TEMPORAL, padding=1),))),
    ("speculation", DRAFTING),
    ("several tiles", Setup((Group((Kept("temporal", (1, 1, 17003)),)),))),
    *((f"dtype {name}", Setup((Group((Kept("temporal", (1, 1, 1), name),)),))) for name in DTYPES),
)
AFTERS: Rows = (
    (decisions.PUBLISHED.name, BatchAfterForward(DRAFTING, (RequestAfterStep(1, 2, 1),))),
    (decisions.PUBLISHED_BIAS.name, BatchAfterForward(TWO_DRAFTS, (RequestAfterStep(1, 3, 2, 2),))),
    (decisions.COLLAPSED.name, BatchAfterForward(DRAFTING, (RequestAfterStep(2, 2, 1, 2),))),
    (
        "conv rows shifted in place",
        BatchAfterForward(
            Setup((Group((Kept("conv", (2, 1)),)),), ("conv",), 2, 1), (RequestAfterStep(2, 2, 1, 2),)
        ),
    ),
    ("no boundary", BatchAfterForward(Setup((TEMPORAL,), block_size=2), (FRESH,))),
    (decisions.ONE_BEHIND.name, BatchAfterForward(DRAFTING, (RequestAfterStep(1, 2, 1, 2),))),
    (decisions.NO_SLOT.name, BatchAfterForward(PLAIN, (FRESH,), BatchLayout(skipped=(0,)))),
    ("relabelled blocks", BatchAfterForward(PLAIN, (FRESH,), filling=Filling(shuffle=1))),
    ("programs interleaved", BatchAfterForward(PLAIN, (FRESH,), schedule="switches:0>0")),
    ("spare rows", BatchAfterForward(PLAIN, (FRESH,), BatchLayout(spare=1))),
    (decisions.OUT_OF_ORDER.name, BatchAfterForward(PLAIN, (FRESH, FRESH), BatchLayout(slots=1))),
)
FLAWED: Rows = tuple((flaw, BatchAfterForward(PLAIN, (replace(FRESH, flaw=flaw),))) for flaw in FLAWS[1:])
CROWDED: Rows = (("more rows than a vector", BatchAfterForward(PLAIN, (FRESH,), BatchLayout(ahead=32))),)
BEFORES: Rows = (
    (decisions.COMES_OFFSET.name, BatchBeforeForward(DRAFTING, (RequestBeforeStep(1, 1, 2),))),
    ("self copy of the temporal state", BatchBeforeForward(DRAFTING, (RequestBeforeStep(1, 1, 2),))),
    ("stays", BatchBeforeForward(Setup((TEMPORAL,), block_size=2), (RequestBeforeStep(1),))),
    ("request with a hit", BatchBeforeForward(PLAIN, (RequestBeforeStep(1, remembered=False),))),
    (decisions.BACK.name, BatchBeforeForward(TWO_DRAFTS, (RequestBeforeStep(2, rejected=2),))),
)
RUNNER_STEPS: Rows = (
    ("resumed request with a column of before", RunnerStep(PLAIN, (NEW,), resumed=True)),
    ("remembers one that is gone, finished", RunnerStep(PLAIN, (NEW,), gone=("finished",))),
    (runner.SOME_MOVE.name, RunnerStep(PLAIN, (NEW, RequestBeforeStep(1)))),
    (decisions.COMES_OFFSET.name, RunnerStep(DRAFTING, (RequestBeforeStep(1, 1, 2),))),
)
RUNS: Rows = (
    (pointers.TO_FRONT.name, MovedRuns((MovedRun(2, -1),))),
    (pointers.TO_BACK.name, MovedRuns((MovedRun(2, 1),))),
    ("adjacent", MovedRuns((MovedRun(1, 1),))),
    ("several tiles, overlapping", MovedRuns((MovedRun(17000, 1),))),
    ("unused entries", MovedRuns((MovedRun(1),), spare=1)),
)
SHRUNK: tuple[tuple[str, SearchStrategy[Any], Rows], ...] = (
    ("sequences", packed_sequences(), SEQUENCES),
    ("vectors", vector_forms(), VECTORS),
    ("batches", batches(), BATCHES),
    ("shuffled batches", shuffled_batches(), SHUFFLED),
    ("splittings", splittings(), SPLITTINGS),
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


def holds(condition: Condition) -> Callable[[Any], bool]:
    if isinstance(condition, str):
        return found_in(condition)
    return condition


def found_in(situation: str) -> Callable[[Situated], bool]:
    return lambda value: situation in value.situations()


@pytest.mark.parametrize(
    ("strategy", "condition", "simplest"),
    [
        pytest.param(
            strategy,
            condition,
            simplest,
            id=f"{name}, {condition if isinstance(condition, str) else simplest}",
        )
        for name, strategy, rows in SHRUNK
        for condition, simplest in rows
    ],
)
def test_a_value_has_nothing_that_its_condition_does_not_need(
    strategy: SearchStrategy[Any], condition: Condition, simplest: object
) -> None:
    assert minimal(strategy, holds(condition)) == simplest


@pytest.mark.parametrize("length", range(12))
def test_a_length_around_a_unit_is_the_least_that_the_condition_allows(length: int) -> None:
    assert minimal(lengths_around(4), lambda found: found >= length) == length


def test_a_layer_with_fewer_states_is_the_first_or_beside_a_whole_one() -> None:
    found = minimal(setups(), found_in("fewer states than copy functions"))
    assert sum(len(group.states) for group in found.groups) <= 3


def test_a_move_is_by_one_column() -> None:
    (one,) = minimal(batches_before_forward(), found_in("moves, bias 0")).requests
    assert (one.first_state, one.length, one.accepted) == (1, 1, 1)


@pytest.mark.parametrize(
    ("situation", "most"),
    [
        ("several requests", 2),
        ("a request ends before another", 2),
        ("stored in another column", 1),
        (decisions.COMES_OFFSET.name, 1),
        (decisions.BACK.name, 1),
    ],
)
def test_a_history_has_no_request_and_no_draft_too_many(situation: str, most: int) -> None:
    # A shrinker may stop at a larger block that allows a smaller number elsewhere; one of two starts does not.
    tried = [minimal(histories(min_spec=0), found_in(situation), start) for start in range(2)]
    found = min(tried, key=lambda history: history.setup.block_size)
    assert len(found.requests) == most
    assert found.setup.block_size <= 3
    assert sum(len(request.turns) for request in found.requests) <= 4
