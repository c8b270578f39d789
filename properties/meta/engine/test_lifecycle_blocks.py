"""Which blocks requests hold and what these are registered as: by hand, and what a request can hit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from oracle.lifecycle.blocks import BlockPool, OutOfBlocks
from oracle.lifecycle.prefixes import Prefixes
from oracle.lifecycle.requests import Geometry, Request, ScheduledRequest, Stage
from properties.meta.strategies.test_lifecycle_examples import (
    ALIGN,
    ALL,
    EVERY_BOUNDARY,
    LONG,
    NONE,
    UP_TO_THE_BOUNDARY,
    Lives,
    Turn,
    after,
    case,
    registered,
)

# Prefixes.


def numbered(*texts: Sequence[int]) -> list[int]:
    prefixes = Prefixes()
    return [prefixes.path(0, text)[-1] for text in texts]


def test_equal_tokens_have_equal_numbers() -> None:
    first, second = numbered((5, 6, 7), (5, 6, 7))
    assert first == second


@pytest.mark.parametrize("other", [(5, 6), (5, 7, 6), (6, 6, 7), (5, 6, 7, 7), (6, 7)])
def test_other_tokens_have_other_numbers(other: tuple[int, ...]) -> None:
    first, second = numbered((5, 6, 7), other)
    assert first != second


def test_a_prefix_knows_its_length_and_what_is_before_its_last_token() -> None:
    prefixes = Prefixes()
    path = prefixes.path(0, (5, 6, 5))
    assert [prefixes.length(prefix) for prefix in (0, *path)] == [0, 1, 2, 3]
    assert [prefixes.parent(prefix) for prefix in path] == [0, *path[:2]]


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


def test_nothing_is_taken_where_there_are_too_few() -> None:
    pool = BlockPool(5)
    with pytest.raises(OutOfBlocks):
        pool.take(5)
    assert pool.num_free == 4


def registered_pool() -> BlockPool:
    """Of blocks 1 to 3, block 1 is registered, and nobody holds any."""
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.register(block, (0, 9))
    pool.release(block)
    return pool


def test_a_registered_block_that_nobody_holds_can_be_hit() -> None:
    pool = registered_pool()
    assert (pool.find((0, 9)), pool.num_free, pool.drain()) == (1, 3, [])


def test_a_block_that_is_hit_is_not_taken() -> None:
    pool = registered_pool()
    pool.hold(1)
    pool.hold(1)
    assert (pool.take(2), pool.num_free, pool.holders(1)) == ([2, 3], 0, 2)


def test_a_block_is_free_when_its_last_holder_has_let_go() -> None:
    pool = registered_pool()
    pool.hold(1)
    pool.hold(1)
    pool.release(1)
    assert (pool.holders(1), pool.num_free) == (1, 2)
    pool.release(1)
    assert (pool.holders(1), pool.num_free) == (0, 3)


def test_a_registered_block_that_is_used_again_is_lost_and_no_longer_found() -> None:
    pool = registered_pool()
    assert pool.take(3) == [2, 3, 1]
    assert (pool.drain(), pool.find((0, 9)), pool.registered) == ([1], None, {})


def test_a_block_that_is_freed_unregistered_is_lost() -> None:
    pool = BlockPool(3)
    pool.release(pool.take(1)[0])
    assert (pool.drain(), pool.drain()) == ([1], [])


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


def test_groups_have_keys_of_their_own() -> None:
    assert registered_pool().find((1, 9)) is None


def test_a_reset_forgets_everything_and_loses_what_nobody_holds() -> None:
    pool = registered_pool()
    pool.register(pool.take(1)[0], (0, 10))
    pool.forget_all()
    assert (pool.drain(), pool.find((0, 9)), pool.find((0, 10)), pool.num_free) == ([1], None, None, 2)


# Block lists: contract 2.8.


def chunks(*lengths: int) -> Lives:
    """A prompt of 21 tokens, with blocks of 4 and 2 drafts, after chunks of these lengths."""
    lives = Lives().arrive("a", 21)
    for length in lengths:
        lives.step(Turn(tokens=length))
    return lives


@pytest.mark.parametrize(
    ("lengths", "blocks", "told"),
    [
        case("to 4", (4,), [1, 2, 3], [1, 2, 3]),
        case("to 12", (4, 8), [1, 0, 3, 2, 4], [1, 2, 3, 2, 4]),
        case("to 20", (4, 8, 8), [0, 0, 3, 0, 4, 2, 5], [1, 2, 3, 2, 4, 2, 5]),
    ],
)
def test_speculative_columns_move_behind_the_running_one_and_leave_aliases(
    lengths: tuple[int, ...], blocks: list[int], told: list[int]
) -> None:
    lives = chunks(*lengths)
    assert (lives.blocks(), lives.told()) == (blocks, told)


@pytest.mark.parametrize(
    ("lengths", "columns"), [((4,), {0: 4}), ((4, 8), {2: 12}), ((4, 8, 8), {4: 20}), ((8,), {1: 8})]
)
def test_full_columns_are_registered_and_null_ones_are_not(
    lengths: tuple[int, ...], columns: dict[int, int]
) -> None:
    lives = chunks(*lengths[:-1])
    assert registered(lives, lives.step(Turn(tokens=lengths[-1])), "a") == columns


def test_a_freed_column_that_is_registered_stays_in_the_prefix_cache() -> None:
    lives = chunks(4, 8, 8)
    key = 0, lives.scheduler.requests["a"].prefixes[4]
    assert (lives.scheduler.pool.holders(1), lives.scheduler.pool.find(key)) == (0, 1)


@pytest.mark.parametrize(("number", "held"), [*enumerate([3, 4, 5, 4, 5, 4, 4], 1)])
def test_old_columns_are_held_until_no_step_can_need_them(number: int, held: int) -> None:
    lives = after(LONG[:number], 10)
    assert len(set(lives.blocks()) - {0}) == held == 63 - lives.scheduler.pool.num_free


def test_a_decoding_request_holds_its_running_and_speculative_columns_at_least() -> None:
    lives = after(LONG, 10)
    for drafts in (1, 1, 1, 0):
        lives.step(Turn(drafts=drafts))
    assert [column for column, block in enumerate(lives.blocks()) if block] == [5, 6, 7]


def test_without_drafts_a_decoding_request_holds_one_column_behind_a_boundary() -> None:
    lives = Lives(replace(ALIGN, num_spec=0)).arrive("a", 4)
    held = [len(set(lives.blocks()) - {0}) for _ in range(6) if lives.step(Turn())]
    assert held == [1, 2, 1, 1, 1, 2]


def test_drafts_are_not_registered() -> None:
    lives = after(UP_TO_THE_BOUNDARY[:2], 5)
    lives.step(Turn())
    step = lives.step(Turn(drafts=2, accepts=3))
    assert (step.rows[0].end, step.registered) == (9, {})


def test_a_boundary_behind_accepted_drafts_is_registered_with_the_next_step() -> None:
    lives = after(UP_TO_THE_BOUNDARY[:3], 5)
    assert registered(lives, lives.step(Turn()), "a") == {1: 8}


# Hits.


def alike(tokens: int, *lengths: int, more: int = 0) -> tuple[Lives, ScheduledRequest]:
    """The row of request b, whose first tokens are those of a, after a has been computed in chunks."""
    lives = chunks(*lengths)
    lives.arrive("b", [*lives.scheduler.requests["a"].tokens[:tokens], *lives.new(more)])
    (row,) = lives.step(Turn("b")).rows
    return lives, row


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
    lives, row = alike(tokens, *lengths, more=more)
    assert (row.hit, row.computed) == (hit, 4 * hit)
    assert lives.blocks("b")[: max(0, hit - 1)] == [0] * max(0, hit - 1)


def test_only_the_last_block_of_a_hit_is_held() -> None:
    lives, row = alike(13, 4, 8, 8)
    assert [lives.scheduler.pool.holders(block) for block in (1, 3)] == [0, 2]
    assert row.new_blocks[0][:3] == (0, 0, 3)


def test_the_column_of_a_hit_is_held_until_the_request_has_gone_on_from_it() -> None:
    lives, row = alike(4, 4, more=17)
    assert (row.computed, row.end, lives.scheduler.pool.holders(1)) == (4, 20, 2)
    lives.step(Turn("b"))
    assert (lives.blocks("b")[0], lives.scheduler.pool.holders(1)) == (0, 1)


def test_a_hit_in_the_step_that_registers_it_waits_for_the_next_one() -> None:
    lives = Lives().arrive("a", 10)
    lives.arrive("b", lives.scheduler.requests["a"].tokens)
    assert [row.id for row in lives.step(Turn(), Turn("b")).rows] == ["a"]
    assert [(row.id, row.computed) for row in lives.step(Turn(), Turn("b")).rows] == [("a", 8), ("b", 8)]


def test_others_come_in_beside_what_is_registered() -> None:
    lives = Lives().arrive("a", 10)
    lives.arrive("b", lives.scheduler.requests["a"].tokens).arrive("c", 5)
    assert [row.id for row in lives.step(Turn(), Turn("b"), Turn("c")).rows] == ["a", "c"]


def test_a_hit_is_what_all_groups_have() -> None:
    lives = Lives(replace(ALIGN, num_groups=2)).arrive("a", 10)
    lives.step(Turn(tokens=4))
    lives.step(Turn(tokens=4))
    lives.scheduler.pool._forget(lives.scheduler.requests["a"].lists[1].columns[1])
    lives.arrive("b", lives.scheduler.requests["a"].tokens)
    assert lives.step(Turn("b")).rows[0].computed == 4


def test_in_mode_all_every_column_of_a_hit_is_there() -> None:
    lives = after(EVERY_BOUNDARY, 9, ALL)
    lives.arrive("b", [*lives.scheduler.requests["a"].tokens[:12], *lives.new(1)])
    assert lives.step(Turn("b")).rows[0].new_blocks == ((1, 2, 3, 5),)


def test_in_mode_all_a_column_that_is_missing_ends_the_hit() -> None:
    lives = after(EVERY_BOUNDARY, 9, ALL)
    lives.scheduler.pool._forget(2)
    lives.arrive("b", lives.scheduler.requests["a"].tokens[:13])
    assert lives.step(Turn("b")).rows[0].hit == 1


@pytest.mark.parametrize(
    ("number", "blocks"), [(1, [1, 2]), (2, [0, 2, 3]), (3, [0, 0, 3]), (6, [0, 0, 3, 4])]
)
def test_in_mode_all_columns_that_are_over_are_freed(number: int, blocks: list[int]) -> None:
    assert after(EVERY_BOUNDARY[:number], 9, ALL).blocks() == blocks


def test_in_mode_none_a_request_has_its_columns_at_once_and_nothing_is_registered() -> None:
    lives = Lives(NONE).arrive("a", 10)
    seen = [(lives.blocks()[:], step.registered) for step in (lives.step(Turn(drafts=2)) for _ in range(4))]
    lives.arrive("b", lives.scheduler.requests["a"].tokens)
    assert seen == [([1, 2, 3], {})] * 4
    assert lives.step(Turn("b")).rows[0].hit == 0


# What a step may write.


def writable(lives: Lives, *turns: Turn) -> set[int]:
    return {block for _, block in lives.scheduler.writable(lives.step(*turns))}


def test_a_step_may_write_its_own_blocks_those_that_it_registers_among_them() -> None:
    assert writable(chunks(), Turn(tokens=8)) == {1, 2, 3}


def test_a_step_may_not_write_what_was_registered_before_it() -> None:
    lives = chunks(8)
    assert lives.blocks() == [0, 1, 2, 3]
    assert writable(lives, Turn(tokens=8)) == {2, 3, 4}


def test_a_step_may_not_write_a_block_that_it_has_hit() -> None:
    lives, _ = alike(13, 4, 8, 8)
    assert lives.blocks("b") == [0, 0, 3, 6, 7, 8]
    assert writable(lives, Turn("b")) == {6, 7, 8}


def test_a_step_may_not_write_blocks_of_requests_that_are_not_in_it() -> None:
    lives = Lives().arrive("a", 5).arrive("b", 5)
    lives.step(Turn(tokens=4), Turn("b", tokens=4))
    assert writable(lives, Turn("b")) == set(lives.blocks("b")[1:])


# Coming and going.


def small(num_blocks: int, *prompts: int, max_num_seqs: int = 8) -> Lives:
    """Requests a, b, c, ... in an engine with few blocks; with blocks of 4 and a draft."""
    geometry = Geometry(block_size=4, num_spec=1, num_blocks=num_blocks, max_num_seqs=max_num_seqs)
    lives = Lives(geometry)
    for name, prompt in zip("abc", prompts, strict=False):
        lives.arrive(name, prompt)
    return lives


EVERYBODY = (Turn("a"), Turn("b"), Turn("c"))


def ids(rows: Iterable[ScheduledRequest | Request]) -> str:
    return "".join(row.id for row in rows)


def test_requests_come_in_as_long_as_there_are_blocks() -> None:
    assert ids(small(5, 4, 4, 4).step(*EVERYBODY).rows) == "ab"


def test_requests_come_in_as_long_as_there_is_room_in_the_batch() -> None:
    assert ids(small(64, 4, 4, 4, max_num_seqs=2).step(*EVERYBODY).rows) == "ab"


def test_the_last_running_request_makes_way_and_nobody_comes_in() -> None:
    lives = small(6, 4, 4, 1)
    lives.step(*EVERYBODY)
    step = lives.step(*EVERYBODY)
    assert (ids(step.rows), step.preempted, lives.scheduler.pool.num_free) == ("a", ("b",), 2)
    assert ids(lives.scheduler.waiting) == "bc"
    assert ids(lives.step(Turn("c")).rows) == "c"


def test_a_request_that_lacks_blocks_and_is_the_last_makes_way_itself() -> None:
    lives = small(5, 4, 4)
    lives.step(*EVERYBODY)
    step = lives.step(Turn("b"))
    assert (step.rows, step.preempted, lives.blocks("b")) == ((), ("b",), [])


def test_a_request_that_makes_way_has_nothing_computed_and_holds_nothing() -> None:
    lives = chunks(4, 8)
    lives.step(preempted=["a"])
    one = lives.scheduler.requests["a"]
    assert (one.stage, one.computed, lives.blocks()) == (Stage.WAITING, 0, [])
    assert lives.scheduler.pool.num_free == 63


def test_what_a_request_that_makes_way_has_not_registered_is_lost() -> None:
    lives = chunks(4, 8)
    assert set(lives.step(preempted=["a"]).lost) == {2, 4}


def test_a_resumed_request_replays_what_it_has_sampled() -> None:
    lives = after(UP_TO_THE_BOUNDARY[:3], 5)
    lives.step(preempted=["a"])
    (row,) = lives.step(Turn()).rows
    assert (row.computed, row.length, row.is_resumed, row.is_prefilling, row.samples) == (
        4,
        4,
        True,
        True,
        False,
    )
    (row,) = lives.step(Turn(drafts=2)).rows
    assert (row.computed, row.length, row.is_resumed, row.drafts != ()) == (8, 3, False, True)


def test_a_request_that_ends_is_told_once_and_leaves_its_registered_blocks_behind() -> None:
    lives = chunks(4, 8)
    lives.scheduler.finish("a")
    first, second = lives.step(), lives.step()
    assert (first.finished, second.finished, lives.scheduler.pool.num_free) == (("a",), (), 63)
    assert sorted(lives.scheduler.pool.registered) == [1, 3]


def test_the_last_columns_are_free_first() -> None:
    lives = chunks(4)
    lives.scheduler.finish("a")
    assert lives.scheduler.pool.take(63)[-3:] == [3, 2, 1]


def test_nobody_is_told_of_the_end_of_a_request_that_never_came_in() -> None:
    lives = chunks()
    lives.scheduler.finish("a")
    assert lives.step().finished == ()


def test_a_reset_preempts_everybody_unsaid_and_nothing_is_hit() -> None:
    lives = small(64, 9, 9)
    lives.step(*EVERYBODY)
    lives.scheduler.reset()
    step = lives.step(*EVERYBODY)
    assert (step.preempted, step.reset, step.resumed) == ((), ("a", "b"), ("a", "b"))
    assert [(row.computed, row.hit) for row in step.rows] == [(0, 0), (0, 0)]


def test_a_reset_loses_every_block() -> None:
    lives = chunks(4, 8, 8)
    lives.scheduler.reset()
    assert set(lives.step().lost) == {1, 2, 3, 4, 5}


def test_a_request_that_sits_a_step_out_keeps_its_blocks() -> None:
    lives = small(64, 4, 4)
    lives.step(*EVERYBODY)
    before = lives.blocks("b")[:]
    assert ids(lives.step(Turn("a")).rows) == "a"
    assert (lives.blocks("b"), ids(lives.scheduler.running)) == (before, "ab")


@pytest.mark.parametrize(
    ("prompt", "wished", "drafts"),
    [case("none in a prompt", 21, 2, 0), case("not more than configured", 5, 3, 2), case("fewer", 5, 1, 1)],
)
def test_decoding_requests_have_the_drafts_that_are_wished_for(prompt: int, wished: int, drafts: int) -> None:
    lives = Lives().arrive("a", prompt)
    lives.step(Turn(tokens=4))
    lives.step(Turn(tokens=4))
    assert len(lives.step(Turn(drafts=wished)).rows[0].drafts) == drafts


def test_drafts_end_where_the_longest_request_does() -> None:
    lives = Lives(replace(ALIGN, max_model_len=7)).arrive("a", 5)
    lives.step(Turn())
    lives.step(Turn())
    assert [len(lives.step(Turn(drafts=2)).rows[0].drafts) for _ in range(2)] == [1, 0]
