"""Strategies of align mode: they reach every named situation, often enough, and shrink to what one would write down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis.strategies import SearchStrategy

from oracle.situations.align import decisions, pointers, runner
from properties.harness.case.values import View
from properties.meta.strategies.drawing import drawn, minimal
from properties.strategies.align import DTYPES, Group, Kept, Setup, setups
from properties.strategies.align_batches import After, BatchLayout, Before
from properties.strategies.align_cache import Cache, Filling
from properties.strategies.align_pointers import MovedRun, MovedRuns, runs
from properties.strategies.align_requests import FLAWS, Sampled, Starting
from properties.strategies.align_runner import RunnerStep, runner_steps
from properties.strategies.align_sessions import History, SessionRequest, SessionStep, histories
from properties.strategies.align_steps import afters, befores, far_afters, far_befores
from properties.strategies.situations import Situated, all_situations

T = TypeVar("T")
ANYTIME = -1.0
"""A situation that the strategy neither aims at nor rules out."""
NEVER = 0.0
"""A situation that the strategy rules out, although the dataclass can name it."""

SETUPS: dict[str, float] = {
    "channel-first layout": 20,
    "conv states": 30,
    "temporal states": 30,
    "two conv states in a layer": 6,
    "several layers in a group": 12,
    "two groups": 20,
    "shared pool": 7,
    "a group of another kind before": 8,
    "fewer states than copy functions": 6,
    "page padding": 25,
    "state behind another one": 15,
    "unaligned": 15,
    "several channels": 15,
    "several lanes": 8,
    "several tiles": 1,
    "speculation": 30,
    "block as long as the drafts allow": 6,
    **{f"dtype {name}": 6 for name in DTYPES},
}
MODELS = {f"model: {name}": least for name, least in SETUPS.items()}
NO_MODELS = dict.fromkeys(MODELS, ANYTIME)
SOUND = dict.fromkeys(("ids and strides above 2^31", *FLAWS[1:]), NEVER)
BATCHES: dict[str, float] = {
    "no request": 0.4,
    "more rows than a vector": NEVER,
    "more rows than two vectors": NEVER,
    "spare rows": 15,
    decisions.NO_SLOT.name: 10,
    decisions.OUT_OF_ORDER.name: 5,
    "stale blocks in a row": 10,
    "relabelled blocks": 25,
    "programs in another order": 15,
    "programs interleaved": 8,
}
AFTERS: dict[str, float] = {
    decisions.PUBLISHED.name: 8,
    decisions.PUBLISHED_BIAS.name: 4,
    decisions.AT_FRONT.name: 25,
    decisions.COLLAPSED.name: 8,
    "conv rows shifted in place": 5,
    "no boundary": 15,
    decisions.ON_BOUNDARY.name: 30,
    decisions.ONE_BEHIND.name: 7,
    decisions.PROMPT_CHUNK.name: 12,
    "all drafts accepted": 12,
    "some drafts accepted": 4,
    "no draft accepted": 4,
    "fresh request": 6,
}
BEFORES: dict[str, float] = {
    "moves, bias 0": 25,
    decisions.COMES_OFFSET.name: 10,
    "stays": 6,
    decisions.STAYS_OFFSET.name: 2,
    decisions.FRESH.name: 10,
    "request with a hit": 10,
    decisions.BACK.name: 3,
    decisions.LEAPS.name: 8,
    "self copy of the temporal state": 5,
    decisions.UNCOUNTED.name: 8,
    "several programs": 6,
}
FLAWED = dict.fromkeys(FLAWS[1:], 8.0)
FAR = dict.fromkeys(BATCHES, NEVER) | NO_MODELS | dict.fromkeys(FLAWS[1:], NEVER)
LEAST_PERCENT: dict[str, Mapping[str, float]] = {
    "setups": SETUPS,
    "afters": AFTERS | BATCHES | SOUND | MODELS,
    "afters in place": dict.fromkeys(AFTERS, NEVER)
    | BATCHES
    | SOUND
    | NO_MODELS
    | {
        "conv rows shifted in place": 80,
        decisions.COLLAPSED.name: 80,
        decisions.ON_BOUNDARY.name: 80,
        "all drafts accepted": 80,
        "model: channel-first layout": 20,
        "model: several channels": 15,
        "model: several lanes": 8,
    },
    "flawed afters": dict.fromkeys(AFTERS, ANYTIME)
    | BATCHES
    | {"ids and strides above 2^31": NEVER}
    | NO_MODELS
    | FLAWED,
    "far afters": dict.fromkeys(AFTERS, ANYTIME)
    | FAR
    | {
        "ids and strides above 2^31": 100,
        decisions.PUBLISHED.name: 7,
        decisions.PUBLISHED_BIAS.name: 4,
        "conv rows shifted in place": 5,
        "model: conv states": 15,
        "model: temporal states": 15,
    },
    "crowded afters": dict.fromkeys(AFTERS, ANYTIME)
    | BATCHES
    | SOUND
    | NO_MODELS
    | {
        "more rows than a vector": 50,
        "more rows than two vectors": 25,
        decisions.PUBLISHED.name: 5,
        decisions.PUBLISHED_BIAS.name: 2,
    },
    "befores": BEFORES | BATCHES | SOUND | MODELS,
    "moving befores": dict.fromkeys(BEFORES, ANYTIME)
    | BATCHES
    | SOUND
    | NO_MODELS
    | {
        "stays": NEVER,
        decisions.FRESH.name: NEVER,
        "moves, bias 0": 40,
        decisions.COMES_OFFSET.name: 10,
        decisions.BACK.name: 5,
    },
    "flawed befores": dict.fromkeys(BEFORES, ANYTIME)
    | BATCHES
    | {"ids and strides above 2^31": NEVER}
    | NO_MODELS
    | FLAWED,
    "far befores": dict.fromkeys(BEFORES, ANYTIME)
    | FAR
    | {
        "ids and strides above 2^31": 100,
        "moves, bias 0": 20,
        decisions.COMES_OFFSET.name: 15,
        "model: conv states": 15,
        "model: temporal states": 15,
    },
    "runner steps": {
        runner.NO_ROW.name: 0.4,
        "nobody moves": 8,
        runner.SOME_MOVE.name: 8,
        decisions.COMES_OFFSET.name: 8,
        "self copy of the temporal state": 4,
        decisions.BACK.name: 3,
        decisions.FRESH.name: 12,
        "resumed request with a column of before": 7,
        "remembers one that is gone, finished": 6,
        "remembers one that is gone, preempted": 6,
        "remembers one that is gone, resumed": 6,
        "remembers one that is gone, nothing": 6,
        "spare rows": 20,
        "pointer lists": 10,
        "channel-first layout": 20,
        "channel-first layout with a bias": 2,
        "two groups": 15,
        "shared pool": 6,
        "a group of another kind before": 8,
        "stale blocks in a row": 10,
    },
    "histories": {
        "several steps": 30,
        "several requests": 15,
        "a request ends before another": 8,
        "a prefix hit": 12,
        "stored in another column": 10,
        "shifted in place": 2,
        decisions.COMES_OFFSET.name: 3,
        decisions.STAYS_OFFSET.name: 4,
        decisions.BACK.name: 0.6,
        "channel-first layout": 20,
        "two groups": 15,
        "slots out of order": 20,
    },
    "runs": {
        pointers.TO_FRONT.name: 15,
        pointers.TO_BACK.name: 15,
        "by one byte": 10,
        pointers.ONTO_ITSELF.name: 5,
        "apart": 10,
        "adjacent": 4,
        "several tiles, overlapping": 4,
        "several runs": 20,
        "unused entries": 7,
        "aligned": 1.5,
    },
}
STRATEGIES: dict[str, SearchStrategy[Any]] = {
    "setups": setups(),
    "afters": afters(),
    "crowded afters": afters(crowded=True),
    "afters in place": afters(in_place=True),
    "flawed afters": afters(flawed=True),
    "far afters": far_afters(),
    "befores": befores(uncounted=True),
    "moving befores": befores(moving=True),
    "flawed befores": befores(flawed=True),
    "far befores": far_befores(),
    "runner steps": runner_steps(),
    "histories": histories(),
    "runs": runs(),
}


@cache
def drawn_by(strategy: str) -> tuple[Any, ...]:
    return drawn(STRATEGIES[strategy])


@pytest.fixture(scope="module", params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> str:
    """Each of the names; tests of the same one run after each other, so that its values are drawn once."""
    return request.param


def percent(strategy: str) -> dict[str, float]:
    values = drawn_by(strategy)
    counted = Counter(name for value in values for name in value.situations())
    return {name: 100 * count / len(values) for name, count in counted.items()}


@pytest.mark.slow
def test_every_situation_that_a_value_can_name_has_its_least_frequency(strategy: str) -> None:
    assert all_situations(drawn_by(strategy)[0]) == set(LEAST_PERCENT[strategy])


@pytest.mark.slow
def test_every_situation_is_reached_often_enough(strategy: str) -> None:
    seen = percent(strategy)
    missed = {
        name: (seen.get(name, 0), least)
        for name, least in LEAST_PERCENT[strategy].items()
        if seen.get(name, 0) < least
    }
    assert not missed, f"{missed} % seen, wanted [{strategy}]"


@pytest.mark.slow
def test_a_situation_that_a_strategy_rules_out_never_happens(strategy: str) -> None:
    ruled_out = {name for name, least in LEAST_PERCENT[strategy].items() if least == NEVER}
    assert not ruled_out & percent(strategy).keys()


@given(setups())
def test_a_page_has_room_for_its_states_at_multiples_of_their_item_sizes(setup: Setup) -> None:
    pages = setup.pages()
    for group, pools in zip(setup.groups, setup.pool_names, strict=True):
        for pool in pools:
            end = 0
            for state, offset in zip(group.states, group.offsets, strict=True):
                assert offset % state.itemsize == pages[pool] % state.itemsize == 0
                assert offset >= end
                end = offset + state.nbytes
            assert end <= pages[pool]


@given(setups())
def test_drafts_have_room_in_a_block_and_in_every_conv_state(setup: Setup) -> None:
    assert 1 + setup.num_spec <= setup.block_size <= 8
    for group in setup.groups:
        for kind, state in zip(setup.kinds, group.states, strict=False):
            assert state.kind == kind
            if kind == "conv":
                assert state.shape[0 if setup.layout == "SD" else 1] > setup.num_spec


@given(afters(crowded=True) | befores())
def test_blocks_of_requests_are_distinct_and_inside_their_pool(batch: After | Before) -> None:
    cache = batch.cache
    for group in range(cache.num_groups):
        owned = [cache.labels[number] for (g, *_), number in cache.owned.items() if g == group]
        assert len(set(owned)) == len(owned)
        assert all(0 < block < cache.num_blocks for block in owned)
    if batch.setup.shared:
        assert len(set(cache.owned.values())) == len(cache.owned)


@given(afters() | befores())
def test_tables_name_the_blocks_that_requests_own_in_the_rows_where_these_are(batch: After | Before) -> None:
    cache = batch.cache
    for group in range(cache.num_groups):
        rows = cache.table(group).rows()
        for row, request in enumerate(batch.row_order):
            for column in cache.columns[request]:
                assert rows[row][column] == cache.block(group, request, column) > 0


@given(afters(crowded=True) | befores())
def test_slots_are_unique_and_the_rest_of_the_mapping_belongs_to_nobody(batch: After | Before) -> None:
    slots = [slot for slot in batch.slots if slot >= 0]
    assert len(set(slots)) == len(slots)
    assert not set(slots) & set(batch.mapping.values()[batch.num_reqs :])


@given(afters())
def test_decodes_have_their_drafts_and_prompts_have_none(batch: After) -> None:
    for one in batch.requests:
        assert 1 <= one.accepted <= 1 + one.drafts <= 1 + batch.setup.num_spec
        assert one.length == 1 + one.drafts if one.drafts else one.length >= 1


@given(befores())
def test_a_request_before_a_step_comes_from_a_step_that_can_have_been(batch: Before) -> None:
    for one in batch.requests:
        assert one.length >= 1
        assert one.accepted - 1 + one.rejected <= batch.setup.num_spec
        assert one.first_state >= 1 or not one.remembered


@given(afters(), afters())
def test_contents_depend_on_whose_block_it_is_and_not_on_its_label(batch: After, other: After) -> None:
    shuffle = 1 + other.filling.shuffle
    filling = replace(batch.filling, seed=1)
    one, two = (
        replace(batch, filling=filling).cache,
        replace(batch, filling=replace(filling, shuffle=shuffle)).cache,
    )
    assert one.states(memory(one)) == two.states(memory(two))


def memory(cache: Cache) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for step in cache.steps():
        name, value = getattr(step, "name", ""), getattr(step, "value", None)
        if name in cache.setup.pools and not isinstance(value, View):
            found[name] = value
    return found


def found_in(situation: str) -> Callable[[Situated], bool]:
    return lambda value: situation in value.situations()


TEMPORAL = Group((Kept("temporal", (1, 1, 1)),))
PLAIN = Setup((TEMPORAL,))
DRAFTING = Setup((TEMPORAL,), block_size=2, num_spec=1)
FRESH, NEW = Sampled(), Starting(remembered=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "simplest"),
    [
        (setups(), PLAIN),
        (afters(), After(PLAIN, (FRESH,))),
        (befores(), Before(PLAIN, (NEW,))),
        (runner_steps(), RunnerStep(PLAIN, (NEW,))),
        (histories(min_spec=0), History(PLAIN, (SessionRequest((SessionStep(),)),))),
        (runs(), MovedRuns((MovedRun(1),))),
        (far_afters(), After(PLAIN, (Sampled(1),), filling=Filling(far=2**31 + 2**12))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_in_particular_is_the_simplest_value(strategy: SearchStrategy[Any], simplest: object) -> None:
    assert minimal(strategy) == simplest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("situation", "simplest"),
    [
        ("channel-first layout", Setup((TEMPORAL,), layout="DS")),
        ("two groups", Setup((TEMPORAL, TEMPORAL))),
        ("shared pool", Setup((TEMPORAL, TEMPORAL), shared=True)),
        ("several layers in a group", Setup((replace(TEMPORAL, layers=2),))),
        ("page padding", Setup((replace(TEMPORAL, padding=1),))),
        ("speculation", DRAFTING),
        ("several tiles", Setup((Group((Kept("temporal", (1, 1, 17003)),)),))),
        *((f"dtype {name}", Setup((Group((Kept("temporal", (1, 1, 1), name),)),))) for name in DTYPES),
    ],
)
def test_a_model_has_nothing_that_its_situation_does_not_need(situation: str, simplest: Setup) -> None:
    assert minimal(setups(), found_in(situation)) == simplest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("situation", "simplest"),
    [
        (decisions.PUBLISHED.name, After(DRAFTING, (Sampled(1, 2, 1),))),
        (
            decisions.PUBLISHED_BIAS.name,
            After(replace(DRAFTING, block_size=3, num_spec=2), (Sampled(1, 3, 2, 2),)),
        ),
        (decisions.COLLAPSED.name, After(DRAFTING, (Sampled(2, 2, 1, 2),))),
        (
            "conv rows shifted in place",
            After(Setup((Group((Kept("conv", (2, 1)),)),), ("conv",), 2, 1), (Sampled(2, 2, 1, 2),)),
        ),
        ("no boundary", After(Setup((TEMPORAL,), block_size=2), (FRESH,))),
        (decisions.ONE_BEHIND.name, After(DRAFTING, (Sampled(1, 2, 1, 2),))),
        (decisions.NO_SLOT.name, After(PLAIN, (FRESH,), BatchLayout(skipped=(0,)))),
        ("relabelled blocks", After(PLAIN, (FRESH,), filling=Filling(shuffle=1))),
        ("programs interleaved", After(PLAIN, (FRESH,), schedule="switches:0>0")),
        ("spare rows", After(PLAIN, (FRESH,), BatchLayout(spare=1))),
    ],
)
def test_a_batch_after_a_forward_is_one_request(situation: str, simplest: After) -> None:
    assert minimal(afters(), found_in(situation)) == simplest


@pytest.mark.slow
@pytest.mark.parametrize("flaw", FLAWS[1:])
def test_a_flaw_is_that_of_one_request_without_drafts(flaw: str) -> None:
    assert minimal(afters(flawed=True), found_in(flaw)) == After(PLAIN, (replace(FRESH, flaw=flaw),))


@pytest.mark.slow
def test_a_layer_with_fewer_states_is_the_first_or_beside_a_whole_one() -> None:
    found = minimal(setups(), found_in("fewer states than copy functions"))
    assert sum(len(group.states) for group in found.groups) <= 3


@pytest.mark.slow
def test_a_move_is_by_one_column() -> None:
    (one,) = minimal(befores(), found_in("moves, bias 0")).requests
    assert (one.first_state, one.length, one.accepted) == (1, 1, 1)


@pytest.mark.slow
def test_two_slots_out_of_order_are_two_requests() -> None:
    found = minimal(afters(), found_in(decisions.OUT_OF_ORDER.name))
    assert found == After(PLAIN, (FRESH, FRESH), BatchLayout(slots=1))


@pytest.mark.slow
def test_more_rows_than_a_vector_are_one_behind_as_many_idle_ones() -> None:
    assert minimal(afters(crowded=True), found_in("more rows than a vector")) == After(
        PLAIN, (FRESH,), BatchLayout(ahead=32)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("situation", "simplest"),
    [
        (decisions.COMES_OFFSET.name, Before(DRAFTING, (Starting(1, 1, 2),))),
        ("self copy of the temporal state", Before(DRAFTING, (Starting(1, 1, 2),))),
        ("stays", Before(Setup((TEMPORAL,), block_size=2), (Starting(1),))),
        ("request with a hit", Before(PLAIN, (Starting(1, remembered=False),))),
        (
            decisions.BACK.name,
            Before(replace(DRAFTING, block_size=3, num_spec=2), (Starting(2, rejected=2),)),
        ),
    ],
)
def test_a_batch_before_a_forward_is_one_request(situation: str, simplest: Before) -> None:
    assert minimal(befores(), found_in(situation)) == simplest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("situation", "simplest"),
    [
        ("resumed request with a column of before", RunnerStep(PLAIN, (NEW,), resumed=True)),
        ("remembers one that is gone, finished", RunnerStep(PLAIN, (NEW,), gone=("finished",))),
        (runner.SOME_MOVE.name, RunnerStep(PLAIN, (NEW, Starting(1)))),
        (decisions.COMES_OFFSET.name, RunnerStep(DRAFTING, (Starting(1, 1, 2),))),
    ],
)
def test_a_step_of_the_runner_has_the_requests_that_it_needs(situation: str, simplest: RunnerStep) -> None:
    assert minimal(runner_steps(), found_in(situation)) == simplest


@pytest.mark.slow
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
    found = min(tried, key=lambda one: one.setup.block_size)
    assert len(found.requests) == most
    assert found.setup.block_size <= 3
    assert sum(len(request.turns) for request in found.requests) <= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("situation", "simplest"),
    [
        (pointers.TO_FRONT.name, MovedRuns((MovedRun(2, -1),))),
        (pointers.TO_BACK.name, MovedRuns((MovedRun(2, 1),))),
        ("adjacent", MovedRuns((MovedRun(1, 1),))),
        ("several tiles, overlapping", MovedRuns((MovedRun(17000, 1),))),
        ("unused entries", MovedRuns((MovedRun(1),), spare=1)),
    ],
)
def test_a_run_is_as_short_as_its_situation_allows(situation: str, simplest: MovedRuns) -> None:
    assert minimal(runs(), found_in(situation)) == simplest


CLASSES = {
    one.__name__: one
    for one in (
        After,
        Before,
        Filling,
        Group,
        History,
        Kept,
        SessionRequest,
        MovedRun,
        RunnerStep,
        MovedRuns,
        Sampled,
        Setup,
        BatchLayout,
        Starting,
        SessionStep,
    )
}


@given(afters(flawed=True) | befores(flawed=True) | far_afters() | runner_steps() | histories() | runs())
def test_the_repr_of_a_drawn_value_evaluates_to_an_equal_one(value: object) -> None:
    assert eval(repr(value), CLASSES) == value  # noqa: S307 - what a reader pastes into an @example
