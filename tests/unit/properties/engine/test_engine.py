"""The engine notices what it is there for: each thing that can go wrong, one at a time, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from oracle.lifecycle.requests import ScheduledRequest, ScheduleRequest, SchedulerStep
from properties.engine.driver import Engine
from properties.engine.flaws import Violation
from properties.engine.world import NEVER, World
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.launches import POSTPROCESS_ALIGN, PRECOPY
from properties.strategies.align.runner import POSTPROCESS_GPU, PREPROCESS
from properties.strategies.align.setup import Setup
from statecheck.case.values import Call, Outcome, Overwrite, Raised, Record, Returned, Tensor, record
from statecheck.case.values import Step as Executed
from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from subjects import load

POOL = "pool0"
CONV, TEMPORAL, PADDING = range(20), range(20, 44), range(44, 52)
"""Bytes of a page: 5 rows of 2 channels of 2 bytes, 2 × 3 numbers of 4 bytes, and what is no state."""
PAGE = 52
COPIES = {"V1": (PREPROCESS, POSTPROCESS_GPU), "V2": (PRECOPY, POSTPROCESS_ALIGN)}
BUILD = "Mamba2AttentionMetadataBuilder.build"


def case(name: str, *values: object) -> Any:
    return pytest.param(*values, id=name)


def world(*, num_spec: int = 2, **changes: Any) -> World:
    """An engine with one layer, blocks of 4 tokens, and a conv kernel of 4 taps."""
    states = Kept("conv", (3 + num_spec, 2), "bfloat16"), Kept("temporal", (2, 3), "float32")
    setup = Setup((Group(states, padding=8),), ("conv", "temporal"), 4, num_spec)
    return World(setup, ("mamba2",), **changes)


GDN = replace(world(), kinds=("gdn",))
PADDED = world(num_spec=0, full_graphs=True)
IN_ONE_COLUMN = world(mode="none")
EVERY_BOUNDARY = world(num_spec=0, mode="all")


@dataclass(eq=False)
class Tampered:
    """A subject whose `number`-th outcome of a function is tampered with; `pool` is what the pool held before."""

    execute: Callable[[Executed], Outcome | None]
    function: str = ""
    number: int = 0
    tamper: Callable[[Returned, bytes], Outcome] = lambda outcome, pool: outcome
    pool: bytes = b""
    calls: int = 0

    def __call__(self, step: Executed) -> Outcome | None:
        outcome = self.execute(step)
        if isinstance(step, Overwrite) and step.name == POOL:
            assert isinstance(step.elements, bytes)
            self.pool = step.elements
        if isinstance(step, Call) and step.function == self.function:
            self.calls += 1
            if self.calls == self.number + 1:
                assert isinstance(outcome, Returned)
                return self.tamper(outcome, self.pool)
        return outcome


Tamper = Callable[[Returned, bytes], Outcome]


def rewritten(change: Callable[[bytearray, bytes], None]) -> Tamper:
    """The pool holds something else after the call; `change` is given what it holds, and what it held before."""

    def tamper(outcome: Returned, before: bytes) -> Outcome:
        pool = bytearray(dict(outcome.after)[POOL].elements)
        change(pool, before)
        tensor = Tensor("uint8", (len(pool),), bytes(pool))
        return replace(outcome, after=tuple({**dict(outcome.after), POOL: tensor}.items()))

    return tamper


def nothing_copied() -> Tamper:
    return rewritten(lambda pool, before: pool.__setitem__(slice(None), before))


def copied(source: int, target: int, part: range = range(PAGE)) -> Tamper:
    """A part of block `target` holds what is in block `source`."""

    def change(pool: bytearray, _: bytes) -> None:
        for byte in part:
            pool[target * PAGE + byte] = pool[source * PAGE + byte]

    return rewritten(change)


def flipped(block: int, byte: int) -> Tamper:
    return rewritten(lambda pool, _: pool.__setitem__(block * PAGE + byte, pool[block * PAGE + byte] ^ 255))


def edited(name: str, at: int, value: int) -> Tamper:
    """One element of the metadata is another one; of numbers, `at` does not count."""

    def tamper(outcome: Returned, _: bytes) -> Outcome:
        fields = dict(outcome.value.fields)
        kept = fields[name]
        if isinstance(kept, Tensor):
            elements = list(kept.values())
            elements[at] = value
            fields[name] = replace(kept.dense(), elements=tuple(elements))
        else:
            fields[name] = value
        return replace(outcome, value=Record(outcome.value.type, tuple(fields.items())))

    return tamper


def answered(outcome: Outcome) -> Tamper:
    return lambda *_: outcome


@dataclass(frozen=True)
class Part:
    """A request's part in a step."""

    id: str
    tokens: int = 64
    drafts: int = 0
    accepts: int = 1


@dataclass(eq=False)
class Driven:
    """An engine that is driven by short words.

    `new a 10`: a prompt of 10 tokens. `like b a 8 2`: b's prompt begins with 8 tokens of a. `step a b-4 c+2=3`: a step in
    which b computes at most 4 tokens, and c has 2 drafts and an accepted count of 3. `pad` and `swap` are steps with a row of padding and
    with the rows in the other order, `out a` one in which a is preempted and no other request does anything. `end a`, `reset`.
    """

    engine: Engine
    subject: Tampered
    fresh: Any = field(default_factory=lambda: count(1000))

    def goes(self, words: str) -> Driven:
        for sentence in filter(None, map(str.strip, words.split(";"))):
            self.does(*sentence.split())
        return self

    def does(self, verb: str, *rest: str) -> None:
        match verb:
            case "new":
                self.engine.arrive(rest[0], self.tokens(int(rest[1])))
            case "like":
                first = self.engine.scheduler.requests[rest[1]].tokens[: int(rest[2])]
                self.engine.arrive(rest[0], [*first, *self.tokens(int(rest[3]))])
            case "end":
                self.engine.finish(rest[0])
            case "reset":
                self.engine.reset()
            case "out":
                self.engine.step([], self.sampler([]), preempted=rest)
            case _:
                self.step(verb, [part(one) for one in rest])

    def tokens(self, number: int) -> list[int]:
        return [next(self.fresh) for _ in range(number)]

    def step(self, verb: str, parts: Sequence[Part]) -> SchedulerStep:
        wishes = [ScheduleRequest(one.id, one.tokens, tuple(self.tokens(one.drafts))) for one in parts]
        ranks = {one.id: -number if verb == "swap" else number for number, one in enumerate(parts)}
        return self.engine.step(wishes, self.sampler(parts), priority=ranks, padding=verb == "pad")

    def sampler(self, parts: Sequence[Part]) -> Callable[[ScheduledRequest, Sequence[int]], Sequence[int]]:
        accepts = {one.id: one.accepts for one in parts}
        return lambda row, _: [*row.drafts[: accepts[row.id] - 1], *self.tokens(1)]


def part(words: str) -> Part:
    name, _, drafts = words.partition("+")
    name, _, tokens = name.partition("-")
    drafts, _, accepts = drafts.partition("=")
    return Part(name, int(tokens or 64), int(drafts or 0), int(accepts or 1))


def drives(
    trial: ExecutionContext,
    world: World,
    words: str = "",
    function: str = "",
    number: int = 0,
    tamper: Tamper | None = None,
) -> Driven:
    """Makes an engine around the subject, whose outcomes may be tampered with."""
    port = InProcess(load("impl"), trial.port.device)
    tampered = Tampered(port.execute, function, number, tamper or (lambda outcome, _: outcome))
    return Driven(Engine(world, tampered), tampered).goes(words)


def violates(
    trial: ExecutionContext, world: World, words: str, function: str, number: int, tamper: Tamper
) -> tuple[Driven, Violation]:
    """The engine, and what it finds once the words have led it to what was tampered with."""
    *before, last = words.split(";")
    driven = drives(trial, world, ";".join(before), function, number, tamper)
    with pytest.raises(Violation) as caught:
        driven.goes(last)
    return driven, caught.value


def says(
    trial: ExecutionContext, world: World, words: str, function: str, number: int, tamper: Tamper
) -> str:
    """The message of what it finds."""
    return str(violates(trial, world, words, function, number, tamper)[1])


TEN = "new a 10; step a; step a"
TWO = "new a 10; new b 10; step a b; step a b"
ACCEPTED = f"{TEN}; step a+2=3"


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


def test_what_a_lost_block_has_held_is_gone_for_the_subject_too(trial: ExecutionContext) -> None:
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
            "a copy of the temporal state is not made",
            TEN,
            0,
            1,
            copied(0, 2, TEMPORAL),
            "in step 1, before the forward, layer0's temporal state in block 2, column 2 of a = "
            "memory that was never written, but should be the state after 8 tokens of a",
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
        case(
            "bytes that are no state",
            TEN,
            0,
            1,
            flipped(2, CONV[0]),
            " which is no state, but should be that of the last of 6 tokens of a",
        ),
    ],
)
def test_a_block_that_holds_something_else_is_named(
    trial: ExecutionContext,
    runner: str,
    words: str,
    which: int,
    number: int,
    tamper: Tamper,
    said: str,
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
