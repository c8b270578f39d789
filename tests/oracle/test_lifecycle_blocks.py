"""Which blocks requests hold and what these are registered as: by hand, and what a request can hit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from oracle.lifecycle.blocks import BlockPool
from oracle.lifecycle.prefixes import Prefixes
from oracle.lifecycle.requests import Geometry, Request, ScheduledRequest
from tests.oracle.lifecycle_scenarios import (
    ALIGN,
    ALL,
    EVERY_BOUNDARY,
    LONG,
    NONE,
    THREE_BLOCKS,
    UP_TO_THE_BOUNDARY,
    Scenario,
    Turn,
    after,
    registered,
)
from tests.oracle.worked import case

# Prefixes.


@pytest.mark.parametrize(("rows", "lengths"), [(2, [2, 3]), (3, [1, 2, 3]), (5, [0, 0, 1, 2, 3])])
def test_rows_before_the_first_token_are_those_of_the_empty_prefix(rows: int, lengths: list[int]) -> None:
    prefixes = Prefixes()
    last = prefixes.last(prefixes.path(0, (5, 6, 7))[-1], rows)
    assert [prefixes.length(prefix) for prefix in last] == lengths


# Blocks.


def test_the_blocks_that_have_been_free_for_longest_are_taken_first() -> None:
    pool = BlockPool(5)
    pool.take(3)
    pool.release(2)
    pool.release(1)
    assert pool.take(3) == [4, 2, 1]


def registered_pool() -> BlockPool:
    """Of blocks 1 to 3, block 1 is registered, and no request holds any."""
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.register(block, (0, 9))
    pool.release(block)
    return pool


def test_a_registered_block_without_holder_can_be_hit() -> None:
    pool = registered_pool()
    assert (pool.find((0, 9)), pool.num_free, pool.drain()) == (1, 3, [])


def test_a_registered_block_that_is_used_again_is_lost_and_no_longer_found() -> None:
    pool = registered_pool()
    assert pool.take(3) == [2, 3, 1]
    assert (pool.drain(), pool.find((0, 9)), pool.registered) == ([1], None, {})


def test_a_registered_block_keeps_its_first_key() -> None:
    pool = registered_pool()
    pool.register(1, (0, 10))
    assert (pool.find((0, 9)), pool.find((0, 10))) == (1, None)


def test_of_two_blocks_with_one_key_the_older_is_found_while_it_lasts() -> None:
    pool = registered_pool()
    pool.take(1)
    pool.register(2, (0, 9))
    assert pool.find((0, 9)) == 1
    pool.take(2)
    assert pool.find((0, 9)) == 2


def test_a_reset_forgets_everything_and_loses_blocks_without_holder() -> None:
    pool = registered_pool()
    pool.register(pool.take(1)[0], (0, 10))
    pool.forget_all()
    assert (pool.drain(), pool.find((0, 9)), pool.find((0, 10)), pool.num_free) == ([1], None, None, 2)


# Block lists: contract 2.8.


def chunks(*lengths: int) -> Scenario:
    """A prompt of 21 tokens, with blocks of 4 and 2 drafts, after chunks of these lengths."""
    scenario = Scenario().arrive("a", 21)
    for length in lengths:
        scenario.step(Turn(tokens=length))
    return scenario


@pytest.mark.parametrize(
    ("lengths", "blocks", "worker_blocks"),
    [
        case("to 4", (4,), [1, 2, 3], [1, 2, 3]),
        case("to 12", (4, 8), [1, 0, 3, 2, 4], [1, 2, 3, 2, 4]),
        case("to 20", (4, 8, 8), [0, 0, 3, 0, 4, 2, 5], [1, 2, 3, 2, 4, 2, 5]),
    ],
)
def test_speculative_columns_move_behind_the_running_one_and_leave_aliases(
    lengths: tuple[int, ...], blocks: list[int], worker_blocks: list[int]
) -> None:
    scenario = chunks(*lengths)
    assert (scenario.blocks(), scenario.worker_blocks()) == (blocks, worker_blocks)


@pytest.mark.parametrize(
    ("lengths", "columns"), [((4,), {0: 4}), ((4, 8), {2: 12}), ((4, 8, 8), {4: 20}), ((8,), {1: 8})]
)
def test_full_columns_are_registered_and_null_ones_are_not(
    lengths: tuple[int, ...], columns: dict[int, int]
) -> None:
    scenario = chunks(*lengths[:-1])
    assert registered(scenario, scenario.step(Turn(tokens=lengths[-1])), "a") == columns


def test_a_freed_column_that_is_registered_stays_in_the_prefix_cache() -> None:
    scenario = chunks(4, 8, 8)
    key = 0, scenario.scheduler.requests["a"].prefixes[4]
    assert (scenario.scheduler.pool.holders(1), scenario.scheduler.pool.find(key)) == (0, 1)


@pytest.mark.parametrize(("number", "held"), [*enumerate([3, 4, 5, 4, 5, 4, 4], 1)])
def test_old_columns_are_held_until_no_step_can_need_them(number: int, held: int) -> None:
    scenario = after(LONG[:number], 10)
    assert len(set(scenario.blocks()) - {0}) == held == 63 - scenario.scheduler.pool.num_free
    assert scenario.scheduler.pool.holders(0) == 0


def test_a_decoding_request_holds_its_running_and_speculative_columns_at_least() -> None:
    scenario = after(LONG, 10)
    for drafts in (1, 1, 1, 0):
        scenario.step(Turn(drafts=drafts))
    assert [column for column, block in enumerate(scenario.blocks()) if block] == [5, 6, 7]


def test_a_boundary_behind_accepted_drafts_is_registered_with_the_next_step() -> None:
    scenario = after(UP_TO_THE_BOUNDARY[:3], 5)
    assert registered(scenario, scenario.step(Turn()), "a") == {1: 8}


# Hits.


def alike(tokens: int, *lengths: int, more: int = 0) -> tuple[Scenario, ScheduledRequest]:
    """The row of request b, whose first tokens are those of a, after a has been computed in chunks."""
    scenario = chunks(*lengths)
    scenario.arrive("b", [*scenario.scheduler.requests["a"].tokens[:tokens], *scenario.new(more)])
    (row,) = scenario.step(Turn("b")).rows
    return scenario, row


@pytest.mark.parametrize(
    ("tokens", "more", "lengths", "hit"),
    [
        case("the longest", 21, 0, (4, 8, 8), 5),
        case("a token has to be left", 12, 0, (4, 8), 1),
        case("one is left", 12, 1, (4, 8), 3),
        case("other tokens behind", 13, 4, (4, 8, 8), 3),
        case("within a block", 7, 9, (4, 8), 1),
        case("column 1 was null", 8, 4, (4, 8), 1),
        case("nothing in common", 0, 9, (4, 8), 0),
        case("a boundary on the way is not kept", 8, 0, (8,), 0),
    ],
)
def test_a_hit_is_the_longest_registered_prefix_that_leaves_a_token(
    tokens: int, more: int, lengths: tuple[int, ...], hit: int
) -> None:
    scenario, row = alike(tokens, *lengths, more=more)
    assert (row.hit, row.computed) == (hit, 4 * hit)
    assert scenario.blocks("b")[: max(0, hit - 1)] == [0] * max(0, hit - 1)


def test_only_the_last_block_of_a_hit_is_held() -> None:
    scenario, row = alike(13, 4, 8, 8)
    assert [scenario.scheduler.pool.holders(block) for block in (1, 3)] == [0, 2]
    assert row.new_blocks[0][:3] == (0, 0, 3)


def test_null_columns_of_a_hit_take_no_block() -> None:
    scenario = Scenario(Geometry(block_size=4, num_spec=1, num_blocks=4)).arrive("a", 13)
    for tokens in (4, 8):
        scenario.step(Turn(tokens=tokens))
    scenario.scheduler.finish("a")
    scenario.arrive("b", scenario.scheduler.requests["a"].tokens)
    assert [row.hit for row in scenario.step(Turn("b")).rows] == [3]


def test_the_column_of_a_hit_is_held_until_the_request_has_gone_on_from_it() -> None:
    scenario, row = alike(4, 4, more=17)
    assert (row.computed, row.end, scenario.scheduler.pool.holders(1)) == (4, 20, 2)
    scenario.step(Turn("b"))
    assert (scenario.blocks("b")[0], scenario.scheduler.pool.holders(1)) == (0, 1)
    scenario.step(Turn("b"))
    assert (scenario.scheduler.pool.holders(0), scenario.scheduler.pool.holders(1)) == (0, 1)


def test_a_hit_in_the_step_that_registers_it_waits_for_the_next_one() -> None:
    scenario = Scenario().arrive("a", 10)
    scenario.arrive("b", scenario.scheduler.requests["a"].tokens)
    assert [row.id for row in scenario.step(Turn(), Turn("b")).rows] == ["a"]
    assert [(row.id, row.computed) for row in scenario.step(Turn(), Turn("b")).rows] == [("a", 8), ("b", 8)]


def test_a_hit_is_what_all_groups_have() -> None:
    scenario = Scenario(replace(ALIGN, num_groups=2)).arrive("a", 10)
    scenario.step(Turn(tokens=4))
    scenario.step(Turn(tokens=4))
    scenario.scheduler.pool._forget(scenario.scheduler.requests["a"].lists[1].columns[1])
    scenario.arrive("b", scenario.scheduler.requests["a"].tokens)
    assert scenario.step(Turn("b")).rows[0].computed == 4


def test_in_mode_all_every_column_of_a_hit_is_there() -> None:
    scenario = after(EVERY_BOUNDARY, 9, ALL)
    scenario.arrive("b", [*scenario.scheduler.requests["a"].tokens[:12], *scenario.new(1)])
    assert scenario.step(Turn("b")).rows[0].new_blocks == ((1, 2, 3, 5),)


@pytest.mark.parametrize(
    ("number", "blocks"), [(1, [1, 2]), (2, [0, 2, 3]), (3, [0, 0, 3]), (6, [0, 0, 3, 4])]
)
def test_in_mode_all_columns_that_are_over_are_freed(number: int, blocks: list[int]) -> None:
    scenario = after(EVERY_BOUNDARY[:number], 9, ALL)
    assert (scenario.blocks(), scenario.scheduler.pool.holders(0)) == (blocks, 0)


def test_in_mode_all_several_columns_may_be_over_at_once() -> None:
    scenario = after(THREE_BLOCKS, 13, ALL)
    scenario.step(Turn())
    assert scenario.blocks() == [0, 0, 0, 4]


def test_in_mode_none_a_request_has_its_columns_at_once_and_nothing_is_registered() -> None:
    scenario = Scenario(NONE).arrive("a", 10)
    seen = [
        (scenario.blocks()[:], step.registered) for step in (scenario.step(Turn(drafts=2)) for _ in range(4))
    ]
    scenario.arrive("b", scenario.scheduler.requests["a"].tokens)
    assert seen == [([1, 2, 3], {})] * 4
    assert scenario.step(Turn("b")).rows[0].hit == 0


# What a step may write.


def writable(scenario: Scenario, *turns: Turn) -> set[int]:
    return {block for _, block in scenario.scheduler.writable(scenario.step(*turns))}


def test_a_step_may_not_write_blocks_of_requests_that_are_not_in_it() -> None:
    scenario = Scenario().arrive("a", 5).arrive("b", 5)
    scenario.step(Turn(tokens=4), Turn("b", tokens=4))
    assert writable(scenario, Turn("b")) == set(scenario.blocks("b")[1:])


# Coming and going.


def small(num_blocks: int, *prompts: int, max_num_seqs: int = 8) -> Scenario:
    """Requests a, b, c, ... in an engine with few blocks; with blocks of 4 and a draft."""
    geometry = Geometry(block_size=4, num_spec=1, num_blocks=num_blocks, max_num_seqs=max_num_seqs)
    scenario = Scenario(geometry)
    for name, prompt in zip("abc", prompts, strict=False):
        scenario.arrive(name, prompt)
    return scenario


EACH_REQUEST = (Turn("a"), Turn("b"), Turn("c"))


def ids(rows: Iterable[ScheduledRequest | Request]) -> str:
    return "".join(row.id for row in rows)


def test_requests_come_in_as_long_as_there_are_blocks() -> None:
    assert ids(small(5, 4, 4, 4).step(*EACH_REQUEST).rows) == "ab"
    # Of three columns in front of the running one only that of a state takes a block.
    scenario = small(4, 12)
    assert [ids(scenario.step(Turn("a")).rows) for _ in range(2)] == ["a", "a"]
    # All blocks are taken, and no other is needed.
    scenario = small(3, 3)
    assert [ids(scenario.step(Turn("a")).rows) for _ in range(2)] == ["a", "a"]


def test_requests_come_in_as_long_as_there_are_seats() -> None:
    assert ids(small(64, 4, 4, 4, max_num_seqs=2).step(*EACH_REQUEST).rows) == "ab"


@pytest.mark.parametrize("geometry", [ALIGN, replace(NONE, block_size=16), ALL])
def test_a_row_says_its_tokens_its_prefixes_and_what_is_new(geometry: Geometry) -> None:
    scenario, spec = Scenario(geometry).arrive("a", 5), geometry.num_spec
    request, size = scenario.scheduler.requests["a"], geometry.block_size
    rows = [scenario.step(Turn(tokens=tokens, drafts=spec)).rows[0] for tokens in (4, 64, 64)]
    tokens = [*request.tokens[:6], *rows[2].drafts]
    assert [row.tokens for row in rows] == [tuple(tokens[:4]), tuple(tokens[4:5]), tuple(tokens[5:])]
    assert [row.is_prefilling for row in rows] == [True, True, False]
    assert [(row.is_new, row.is_resumed) for row in rows] == [(True, False), (False, False), (False, False)]
    assert [row.hit for row in rows] == [0, 0, 0]
    lengths = scenario.scheduler.prefixes.length
    assert [lengths(prefix) for prefix in request.prefixes] == list(range(8))
    assert [lengths(prefix) for row in rows for prefix in row.prefixes] == list(range(1, 7 + spec))
    assert [len(row.new_blocks[0]) for row in rows] == [1 + spec, int(size == 4), 0]


def test_the_last_running_request_is_preempted_and_none_is_admitted() -> None:
    scenario = small(6, 4, 4, 1)
    scenario.step(*EACH_REQUEST)
    step = scenario.step(*EACH_REQUEST)
    assert (ids(step.rows), step.preempted, scenario.scheduler.pool.num_free) == ("a", ("b",), 2)
    assert ids(scenario.scheduler.waiting) == "bc"
    assert ids(scenario.step(Turn("c")).rows) == "c"


def test_a_request_that_lacks_blocks_and_is_the_last_is_preempted_itself() -> None:
    scenario = small(5, 4, 4)
    scenario.step(*EACH_REQUEST)
    step = scenario.step(Turn("b"))
    assert (step.rows, step.preempted, scenario.blocks("b")) == ((), ("b",), [])


def test_unregistered_states_of_a_preempted_request_are_lost() -> None:
    scenario = chunks(4, 8)
    assert set(scenario.step(preempted=["a"]).lost) == {2, 4}


def test_a_resumed_request_replays_what_it_has_sampled() -> None:
    scenario = after(UP_TO_THE_BOUNDARY[:3], 5)
    scenario.step(preempted=["a"])
    (row,) = scenario.step(Turn()).rows
    assert (row.computed, row.length, row.is_resumed, row.is_prefilling, row.samples) == (
        4,
        4,
        True,
        True,
        False,
    )
    (row,) = scenario.step(Turn(drafts=2)).rows
    assert (row.computed, row.length, row.is_resumed, row.drafts != ()) == (8, 3, False, True)


def test_a_request_that_ends_frees_its_blocks_and_leaves_registered_blocks_behind() -> None:
    scenario = chunks(4, 8)
    scenario.scheduler.finish("a")
    first, second = scenario.step(), scenario.step()
    assert (first.finished, second.finished, scenario.scheduler.pool.num_free) == (("a",), (), 63)
    assert scenario.blocks() == []
    assert sorted(scenario.scheduler.pool.registered) == [1, 3]


def test_a_reset_preempts_everybody_unsaid_and_nothing_is_hit() -> None:
    scenario = small(64, 9, 9)
    scenario.step(*EACH_REQUEST)
    scenario.scheduler.reset()
    step = scenario.step(*EACH_REQUEST)
    assert (step.preempted, step.reset, step.resumed) == ((), ("a", "b"), ("a", "b"))
    assert [(row.computed, row.hit) for row in step.rows] == [(0, 0), (0, 0)]


def test_a_request_that_sits_a_step_out_keeps_its_blocks() -> None:
    scenario = small(64, 4, 4)
    scenario.step(*EACH_REQUEST)
    before = scenario.blocks("b")[:]
    assert ids(scenario.step(Turn("a")).rows) == "a"
    assert (scenario.blocks("b"), ids(scenario.scheduler.running)) == (before, "ab")


@pytest.mark.parametrize(
    ("prompt", "wished", "drafts"),
    [case("none in a prompt", 21, 2, 0), case("not more than configured", 5, 3, 2), case("fewer", 5, 1, 1)],
)
def test_decoding_requests_have_the_drafts_that_are_wished_for(prompt: int, wished: int, drafts: int) -> None:
    scenario = Scenario().arrive("a", prompt)
    scenario.step(Turn(tokens=4))
    scenario.step(Turn(tokens=4))
    assert len(scenario.step(Turn(drafts=wished)).rows[0].drafts) == drafts


def test_drafts_end_where_the_longest_request_does() -> None:
    scenario = Scenario(replace(ALIGN, max_model_len=7)).arrive("a", 5)
    scenario.step(Turn())
    scenario.step(Turn())
    assert [len(scenario.step(Turn(drafts=2)).rows[0].drafts) for _ in range(2)] == [1, 0]


def test_a_resumed_request_has_no_drafts_before_its_sampled_tokens_are_replayed() -> None:
    scenario = Scenario().arrive("a", 7)
    for drafts, accepts in ((0, 1), (0, 1), (2, 3), (0, 1), (0, 1)):
        scenario.step(Turn(drafts=drafts, accepts=accepts))
    scenario.step(preempted=["a"])
    scenario.arrive("b", 4)
    step = scenario.step(Turn(drafts=2), Turn("b"))
    assert [(row.id, row.computed, row.length, row.drafts) for row in step.rows] == [
        ("a", 12, 1, ()),
        ("b", 0, 4, ()),
    ]
    assert step.resumed == ("a",)
    scenario.scheduler.reset()
    scenario.step(Turn(tokens=8))
    (row,) = scenario.step(Turn(drafts=2)).rows
    assert (row.computed, row.length, row.drafts) == (8, 4, ())
