"""Simulated engines that are driven by short words, around a subject whose outcomes are tampered with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from oracle.lifecycle.requests import ScheduledRequest, ScheduleRequest, SchedulerStep
from properties.engine.driver import Engine
from properties.engine.flaws import Violation
from properties.engine.world import World
from properties.strategies.align.batches import RUN_FUSED_POSTPROCESS_ALIGN, RUN_FUSED_PRECOPY
from properties.strategies.align.runner import POSTPROCESS_GPU, PREPROCESS
from properties.strategies.align.setup import Group, Kept, Setup
from statecheck.case.values import Call, Outcome, Overwrite, Record, Returned, Tensor
from statecheck.case.values import Step as Executed
from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from subjects import load

POOL = "pool0"
CONV, TEMPORAL, PADDING = range(20), range(20, 44), range(44, 52)
"""Bytes of a page: 5 rows of 2 channels of 2 bytes, 2 × 3 numbers of 4 bytes, and what is no state."""
PAGE = 52
COPIES = {"V1": (PREPROCESS, POSTPROCESS_GPU), "V2": (RUN_FUSED_PRECOPY, RUN_FUSED_POSTPROCESS_ALIGN)}
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
    """Replace an element of the metadata; of numbers, `at` does not count."""

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
                self.step(verb, [part(text) for text in rest])

    def tokens(self, number: int) -> list[int]:
        return [next(self.fresh) for _ in range(number)]

    def step(self, verb: str, parts: Sequence[Part]) -> SchedulerStep:
        wishes = [ScheduleRequest(row.id, row.tokens, tuple(self.tokens(row.drafts))) for row in parts]
        ranks = {row.id: -number if verb == "swap" else number for number, row in enumerate(parts)}
        return self.engine.step(wishes, self.sampler(parts), priority=ranks, padding=verb == "pad")

    def sampler(self, parts: Sequence[Part]) -> Callable[[ScheduledRequest, Sequence[int]], Sequence[int]]:
        accepts = {row.id: row.accepts for row in parts}
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
