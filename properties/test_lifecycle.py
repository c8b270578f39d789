"""Requests on their way through a whole engine: what they read and publish stands for exactly their tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from hypothesis import currently_in_test_context, event
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from oracle.lifecycle.requests import Request
from properties.engine.driver import Engine
from properties.engine.flaws import Violation
from properties.engine.scenarios import Scenario, Turn
from properties.strategies.bounds import crowded
from properties.strategies.builders import CLASSES
from properties.strategies.lifecycle import FEW_SEQS, parts, worlds
from properties.test_align_sessions import CALLS_BY_ROW, CALLS_BY_SLOT
from statecheck.execution.example import Example, ExampleEnded, OutsideDomain
from statecheck.execution.property import ExampleMachine
from statecheck.execution.registry import prop

BUILDERS = tuple(f"{name}.build" for name in CLASSES.values())
WAYS = ("exactly", "by one", "by several")
OF_COPIES = (
    "boundary crossed by several",
    "all accepted up to the boundary",
    "backward move",
    "no drafts in the whole batch after several accepted",
    "sits a step out after several accepted",
    "prefix hit then speculation",
    "preemption for want of blocks",
    "resume with a hit",
    "resume after a reset",
    "replay as short as a decode",
    "slot reuse",
    "block recycled",
    "rows of padding",
    "a step has more requests than eight",
    "a scheduled request has five drafts or more",
)
"""Where states are copied between blocks, and accepted counts carried from step to step, each of these is a case of its own."""
WITHOUT_COPIES = (
    "prefix hit of several blocks",
    "resume with a hit",
    "no drafts after several accepted",
    "sits a step out after several accepted",
    "block recycled",
)
"""In the modes none and all there is no state to copy, and the metadata have to find it."""


class Scenarios(ExampleMachine):
    """Requests that arrive, are computed in steps, are preempted, come back and end; every step is held against the laws."""

    steps: ClassVar[int] = 30
    follows_requests: ClassVar[bool] = True
    modes: ClassVar[tuple[str, ...]] = ("align",)
    runners: ClassVar[tuple[str, ...]] = ("V1", "V2")
    purposes: ClassVar[tuple[str, ...]]
    """Situations that the property is for, by their marks: a few hundred scenarios come to each of them."""
    scenario: Scenario | None = None

    @initialize(data=st.data(), lengths=st.lists(st.integers(1, 12), min_size=1, max_size=3))
    def begin(self, data: st.DataObject, lengths: list[int]) -> None:
        """An engine with requests, since a scenario may go on without any others."""
        self.arrived = 0
        try:
            with self.trial.reading():
                self.scenario = self.drawn_scenario(data)
        except Violation as error:
            self.trial.finds(error.flaw.failure)
        except OutsideDomain:
            self.known_failure, lengths = True, []
        else:
            # Where many may run together, many arrive at once: one a step would take most of a scenario.
            many = self.scenario.world.max_num_seqs
            lengths = crowded(lengths, many) if many > FEW_SEQS else lengths
        for length in lengths:
            self.send(self.new_prompt(length))

    def drawn_scenario(self, data: st.DataObject) -> Scenario:
        world = data.draw(worlds(modes=self.modes, runners=self.runners), label="world")
        return Scenario(replace(world, profile=self.trial.profile), self.trial.keep)

    @property
    def engine(self) -> Engine:
        assert self.scenario is not None
        return self.scenario.engine

    @property
    def num_spec(self) -> int:
        assert self.scenario is not None
        return self.scenario.world.num_spec

    @property
    def alive(self) -> list[Request]:
        return [] if self.scenario is None else self.scenario.live

    @property
    def running(self) -> list[Request]:
        return [] if self.scenario is None else self.engine.scheduler.running

    def new_prompt(self, length: int) -> tuple[int, ...]:
        assert self.scenario is not None
        return self.scenario.new_tokens(length)

    @precondition(lambda self: self.scenario is None)
    @rule()
    def nothing_happens(self) -> None:
        """The subject does not offer what such an engine needs."""

    @precondition(
        lambda self: self.scenario is not None and len(self.alive) < self.scenario.world.max_num_seqs + 2
    )
    @rule(own=st.integers(1, 12), like=st.none() | st.integers(0, 7), shared=st.integers(1, 24))
    def arrive(self, own: int, like: int | None, shared: int) -> None:
        """A request whose prompt begins like another one's."""
        known = list(self.engine.scheduler.requests.values())
        first = known[like % len(known)].tokens[:shared] if like is not None else []
        self.send((*first, *self.new_prompt(own)))

    def send(self, prompt: tuple[int, ...]) -> None:
        request = f"r{self.arrived}"
        self.arrived += 1
        self.happens(lambda scenario: scenario.arrive(request, prompt))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), order=st.permutations(range(4)), padding=st.integers(0, 2))
    def step(self, data: st.DataObject, order: list[int], padding: int) -> None:
        """Each request takes a turn of its own."""
        drawn = data.draw(parts(self.num_spec), label="turns")
        ids = [request.id for request in self.alive]
        ordered = sorted(ids, key=lambda request: order[ids.index(request) % len(order)])
        self.take(lambda number, _: drawn[number % len(drawn)], tuple(ordered), padding)

    @precondition(lambda self: self.alive)
    @rule()
    def compute_without_drafts(self) -> None:
        self.take()

    @precondition(lambda self: self.alive and self.num_spec)
    @rule(rejected=st.integers(0, 3))
    def speculate(self, rejected: int) -> None:
        """All requests draft as much as possible."""
        self.take(lambda *_: Turn(drafts=self.num_spec, accepted=max(0, self.num_spec - rejected)))

    @precondition(lambda self: self.alive and self.num_spec)
    @rule(way=st.sampled_from(WAYS), rejected=st.integers(0, 3))
    def cross_a_boundary(self, way: str, rejected: int) -> None:
        """Accept just so many drafts that the last one lies on a boundary or a few tokens behind it, where that can be."""
        behind = WAYS.index(way)
        size = self.engine.world.block_size

        def turn(_: int, request: Request) -> Turn:
            accepted = min((behind - len(request.tokens)) % size, self.num_spec)
            return Turn(drafts=min(self.num_spec, accepted + rejected), accepted=accepted)

        self.take(turn)

    @precondition(lambda self: self.alive and self.num_spec)
    @rule()
    def draft_in_vain(self) -> None:
        """All requests draft as much as possible, for nothing, and then not at all: some go back a column."""
        self.take(lambda *_: Turn(drafts=self.num_spec))
        self.take()

    @precondition(lambda self: len(self.running) > 1)
    @rule(number=st.integers(0, 3))
    def leave_out(self, number: int) -> None:
        """A request has no tokens in a step."""
        left_out = self.running[number % len(self.running)].id
        self.take(lambda _, request: Turn(skipped=request.id == left_out, drafts=self.num_spec))

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 3))
    def preempt(self, number: int) -> None:
        """A request is preempted, and comes back in a later step."""
        self.take(preempted=(self.running[number % len(self.running)].id,))

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 3))
    def finish(self, number: int) -> None:
        request = self.alive[number % len(self.alive)].id
        self.happens(lambda scenario: scenario.engine.finish(request))
        self.take()

    @precondition(lambda self: self.running)
    @rule()
    def reset(self) -> None:
        self.happens(lambda scenario: scenario.engine.reset())
        self.take()

    def take(
        self,
        turn: Callable[[int, Request], Turn] = lambda *_: Turn(),
        order: tuple[str, ...] = (),
        padding: int = 0,
        preempted: tuple[str, ...] = (),
    ) -> None:
        """A step in which each request takes its turn."""
        chosen = {request.id: turn(number, request) for number, request in enumerate(self.alive)}
        self.happens(lambda scenario: scenario.step(chosen, preempted, order, padding), len(chosen))

    def happens(self, event: Callable[[Scenario], None], rows: int = 0) -> None:
        """Let it happen, and report what breaks a law."""
        if self.known_failure:
            return
        assert self.scenario is not None
        try:
            with self.trial.reading():
                event(self.scenario)
            self.trial.kept_compared(rows)
        except OutsideDomain:
            self.known_failure = True
        except Violation as error:
            try:
                found(self.trial, self.scenario, error)
            except ExampleEnded:
                self.known_failure = True

    def follow(self, **given: Any) -> None:
        """Let `events` happen in an engine like `world`, in place of drawn ones."""
        try:
            self.scenario = Scenario(replace(given["world"], profile=self.trial.profile), self.trial.keep)
        except Violation as error:
            self.trial.finds(error.flaw.failure)
        for change in given["events"]:
            self.happens(change, len(self.alive))

    def teardown(self) -> None:
        if self.scenario is not None:
            for mark in sorted(self.engine.marks.seen) if currently_in_test_context() else ():
                event(mark)
            self.scenario = None
        super().teardown()


def found(trial: Example, scenario: Scenario, error: Violation) -> NoReturn:
    engine, flaw = scenario.engine, error.flaw
    wrong_bytes = replace(flaw.wrong_bytes, steps=tuple(engine.calls)) if flaw.wrong_bytes else None
    trial.finds(flaw.failure, engine.story.timeline(flaw), wrong_bytes)


@prop("lifecycle/v1-provenance", "provenance", *BUILDERS, *CALLS_BY_ROW)
class RequestsInRowsReadTheStateOfTheirTokens(Scenarios):
    """Requests in rows read the state of their tokens.

    Through a whole engine in the V1 order, every forward reads the state of exactly the computed tokens, and every
    block that is published holds the state at its end, whatever requests do.
    """

    runners = ("V1",)
    purposes = OF_COPIES


@prop("lifecycle/v2-provenance", "provenance", *BUILDERS, *CALLS_BY_SLOT)
class RequestsInSlotsReadTheStateOfTheirTokens(Scenarios):
    """Requests in slots read the state of their tokens.

    Through a whole engine in the V2 order, every forward reads the state of exactly the computed tokens, and every
    block that is published holds the state at its end, whatever requests do.
    """

    runners = ("V2",)
    purposes = OF_COPIES


@prop("lifecycle/no-copies", "provenance", *BUILDERS)
class RequestsWithoutCopiesReadTheStateOfTheirTokens(Scenarios):
    """Requests without copies read the state of their tokens.

    In the modes none and all, the metadata alone bring every forward to the state of exactly the computed tokens.
    """

    modes = ("none", "all")
    purposes = WITHOUT_COPIES
