"""The engine notices what it is there for: each thing that can go wrong, one at a time, and what it says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.engine.world import NEVER, World
from properties.strategies.align.runner import POSTPROCESS_GPU, PREPROCESS
from properties.strategies.align.setup import Group, Kept, Setup
from statecheck.case.values import Outcome, Raised, Returned, Tensor, record
from statecheck.execution.example import ExecutionContext
from tests.unit.properties.engine.driven import (
    ACCEPTED,
    BUILD,
    CONV,
    COPIES,
    EVERY_BOUNDARY,
    GDN,
    IN_ONE_COLUMN,
    PADDED,
    PADDING,
    PAGE,
    POOL,
    TEMPORAL,
    TEN,
    TWO,
    Tamper,
    answered,
    case,
    copied,
    drives,
    flipped,
    nothing_copied,
    rewritten,
    says,
    world,
)

# Without tampering.


@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.parametrize("kept", [world(), GDN, IN_ONE_COLUMN, EVERY_BOUNDARY, PADDED])
def test_nothing_is_said_where_everything_is_right(trial: ExecutionContext, kept: World, runner: str) -> None:
    words = f"{TWO}; step a+2=3 b+2=1; step b+1; pad a b; end b; out a; step a"
    driven = drives(trial, replace(kept, runner=runner), words)
    assert driven.engine.steps == 7


@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_the_null_block_may_hold_anything(trial: ExecutionContext, runner: str) -> None:
    driven = drives(trial, world(runner=runner), TEN, COPIES[runner][0], 1, flipped(0, 3))
    assert driven.engine.steps == 2


def test_the_contents_of_a_lost_block_are_gone_for_the_subject_too(trial: ExecutionContext) -> None:
    driven = drives(trial, world(), "new a 4; step a; step a+2")
    assert set(driven.subject.pool[2 * PAGE :][: CONV.stop]) != {NEVER}
    driven.goes("end a; step")
    assert set(driven.subject.pool[2 * PAGE : 5 * PAGE]) == {NEVER}
    assert set(driven.subject.pool[PAGE : 2 * PAGE]) != {NEVER}


# Copies.


@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.parametrize(
    ("words", "which", "number", "tamper", "said"),
    [
        case(
            "a copy in front of the forward is not made",
            TEN,
            0,
            1,
            nothing_copied(),
            "in step 1, before the forward, row 0 of layer0's conv state in block 2, column 2 of a = "
            "memory that was never written, but should be that of the last of 6 tokens of a",
        ),
        case(
            "windows are copied from another request",
            TWO,
            0,
            1,
            copied(4, 2, CONV),
            "in step 1, before the forward, row 0 of layer0's conv state in block 2, column 2 of a = "
            "that of the last of 6 tokens of b, but should be that of the last of 6 tokens of a",
        ),
        case(
            "a temporal state is copied from another request",
            TWO,
            0,
            1,
            copied(4, 2, TEMPORAL),
            "in step 1, before the forward, layer0's temporal state in block 2, column 2 of a = "
            "the state after 8 tokens of b, but should be the state after 8 tokens of a",
        ),
        case(
            "a copy behind the forward is not made",
            ACCEPTED,
            1,
            2,
            nothing_copied(),
            "in step 2, after the step, row 0 of layer0's conv state in block 2, column 2 of a = "
            "that of the last of 8 tokens of a, but should be that of the last of 10 tokens of a",
        ),
        case(
            "the state of the wrong draft is kept",
            ACCEPTED,
            1,
            2,
            copied(5, 2, TEMPORAL),
            "in step 2, after the step, layer0's temporal state in block 2, column 2 of a = "
            "the state after 13 tokens of a and its drafts, "
            "but should be the state after 12 tokens of a and its drafts",
        ),
        case(
            "a column that was not to change",
            ACCEPTED,
            0,
            2,
            flipped(2, CONV[0]),
            " which is no state, but should be that of the last of 8 tokens of a",
        ),
    ],
)
def test_a_block_that_holds_something_else_is_named(
    trial: ExecutionContext, runner: str, words: str, which: int, number: int, tamper: Tamper, said: str
) -> None:
    assert says(trial, world(runner=runner), words, COPIES[runner][which], number, tamper).endswith(said)


@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.parametrize(
    ("words", "block", "byte", "said"),
    [
        case("padding of an own block", TEN, 2, PADDING[3], "but is no part of a state"),
        case("padding of a free block", TEN, 9, PADDING[-1], "but is no part of a state"),
        case(
            "a published block", TEN, 1, CONV[0], "but is column 1 of a, which the prefix cache has published"
        ),
        case("another request's block", f"{TWO}; step a", 6, TEMPORAL[0], "but is column 3 of b"),
        case("a free block", TEN, 9, CONV[3], "but is free"),
        case(
            "a published block of a request that sits out",
            f"{TWO}; step a",
            4,
            TEMPORAL[-1],
            "but is column 1 of b, which the prefix cache has published",
        ),
        case(
            "a published block that no request holds",
            "new b 4; step b; out b; new a 4; step a",
            1,
            TEMPORAL[0],
            "but is published by the prefix cache, and held by no request",
        ),
    ],
)
def test_a_block_that_must_not_be_written_is_named(
    trial: ExecutionContext, runner: str, words: str, block: int, byte: int, said: str
) -> None:
    number = words.count("step") - 1
    message = says(trial, world(runner=runner), words, COPIES[runner][0], number, flipped(block, byte))
    assert message.endswith(f"before the forward, byte {byte} of block {block} in pool0 was written, {said}")


def test_another_groups_bytes_of_an_own_block_are_not_its_own(trial: ExecutionContext) -> None:
    narrow = Group((Kept("temporal", (1, 2, 2), "float32"),))
    wide = Group((Kept("temporal", (1, 2, 3), "float32"),))
    setup = Setup((narrow, wide), ("temporal",), 4, 2, shared=True)
    kept = replace(world(), setup=setup, kinds=("mamba2", "mamba2"))
    change = rewritten(lambda pool, _: pool.__setitem__(2 * 24 + 20, 1))
    message = says(trial, kept, TEN, PREPROCESS, 1, change)
    assert message.startswith("in step 1, before the forward, byte 20 of block 2 in pool0 was written, but")


def test_two_requests_that_share_a_block_are_both_named(trial: ExecutionContext) -> None:
    words = "new a 4; step a; like b a 4 1; step b; step a b"
    message = says(trial, world(), words, PREPROCESS, 2, flipped(1, 0))
    assert message.endswith("but is column 0 of a and column 0 of b, which the prefix cache has published")


@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        case("raises", answered(Raised("ValueError", "no")), "{} raised ValueError: no"),
        case(
            "writes to an argument",
            lambda outcome, _: replace(outcome, changed=("table0", "starts")),
            "{} wrote to table0, starts, but should leave it as it is",
        ),
        case(
            "writes beside a pool",
            lambda outcome, _: replace(
                outcome, after=tuple({**dict(outcome.after), POOL: record("Damaged")}.items())
            ),
            "bytes beside pool0 were written",
        ),
    ],
)
def test_a_call_that_does_what_it_should_not_is_named(
    trial: ExecutionContext, runner: str, tamper: Tamper, said: str
) -> None:
    function = COPIES[runner][0]
    message = says(trial, world(runner=runner), TEN, function, 1, tamper)
    assert message == f"in step 1, {said.format(function)}"


def test_a_builder_that_raises_is_named(trial: ExecutionContext) -> None:
    message = says(trial, world(), TEN, BUILD, 1, answered(Raised("ValueError", "no")))
    assert message == f"in step 1, {BUILD} raised ValueError: no"


def test_an_accepted_count_that_the_runner_is_handed_wrongly_is_noticed(trial: ExecutionContext) -> None:
    def tamper(outcome: Returned, _: bytes) -> Outcome:
        after = {**dict(outcome.after), "accepted": Tensor("int32", (4,), (1, 1, 1, 1), on="host")}
        return replace(outcome, after=tuple(after.items()))

    message = says(trial, world(), f"{ACCEPTED}; step a+2", POSTPROCESS_GPU, 2, tamper)
    assert "but should" in message
    assert "of a" in message
