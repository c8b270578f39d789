"""Scenarios of an engine's requests: what happens to them, one thing after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from oracle.lifecycle.requests import Request, ScheduledRequest, ScheduleRequest, Stage
from properties.engine.driver import Engine
from properties.engine.flaws import Flaw, Violation
from properties.engine.models import Recurrences
from properties.engine.report import token_count
from properties.engine.runners import Execute
from properties.engine.world import World

if TYPE_CHECKING:
    # It takes torch, which scenarios of other kinds can do without.
    from properties.engine.recurrent import Recurrent

FIRST_SAMPLE = 1_000_000
"""Tokens from here on are in no prompt."""


@dataclass(frozen=True)
class Turn:
    """A request's part in a step: whether it has one, blocks of its prompt at most, drafts, and how many it accepts."""

    skipped: bool = False
    blocks: int = 32
    drafts: int = 0
    accepted: int = 0


@dataclass(eq=False)
class Scenario:
    """An engine, and what happens to its requests, which raises Violation where it breaks a law.

    Of a model without tokens, requests accept as many drafts as their turns say.
    """

    world: World
    execute: Execute

    def __post_init__(self) -> None:
        self.engine = self.make_engine()
        self.tokens = FIRST_SAMPLE

    def make_engine(self) -> Engine:
        return Engine(self.world, self.execute)

    @property
    def live(self) -> list[Request]:
        """Requests that have not ended, in the order of their arrival."""
        requests = self.engine.scheduler.requests.values()
        return [request for request in requests if request.stage is not Stage.FINISHED]

    def arrive(self, request: str, prompt: tuple[int, ...]) -> None:
        """There is room left for a token and its drafts."""
        self.engine.arrive(request, prompt[: self.world.max_model_len - self.world.num_spec - 2])

    def step(
        self,
        turns: Mapping[str, Turn],
        preempted: Sequence[str] = (),
        order: Sequence[str] = (),
        padding: int = 0,
    ) -> None:
        """The engine takes a step, in which requests take their turns; others take a plain one.

        `preempted` are preempted before. `order` decides about rows among equals; `padding` rows are added if the engine pads.
        """
        for request in self.live:
            if len(request.tokens) >= self.world.max_model_len - self.world.num_spec:
                self.engine.finish(request.id)
        chosen = {request.id: turns.get(request.id, Turn()) for request in self.live}
        wishes = [
            self.wish(request, chosen[request.id]) for request in self.live if not chosen[request.id].skipped
        ]
        running = {request.id for request in self.engine.scheduler.running}
        priority = {name: order.index(name) if name in order else len(order) for name in chosen}

        def sampler(row: ScheduledRequest, following: Sequence[int]) -> Sequence[int]:
            return self.sample(row, following, chosen[row.id])

        preempted = [request for request in preempted if request in running]
        self.engine.step(wishes, sampler, preempted=preempted, priority=priority, padding=padding)
        self.look()

    def new_tokens(self, count: int) -> tuple[int, ...]:
        """Tokens that no request has had before."""
        self.tokens += count
        return tuple(range(self.tokens - count, self.tokens))

    def wish(self, request: Request, turn: Turn) -> ScheduleRequest:
        return ScheduleRequest(request.id, self.prompt_tokens(turn), self.new_tokens(turn.drafts))

    def prompt_tokens(self, turn: Turn) -> int:
        """Tokens of a prompt that a turn computes at most; in mode none a block is as long as a request may get."""
        return turn.blocks * self.world.setup.block_size

    def sample(self, row: ScheduledRequest, following: Sequence[int], turn: Turn) -> Sequence[int]:  # noqa: ARG002
        """The drafts that are accepted and a token more."""
        return (*row.drafts[: turn.accepted], *self.new_tokens(1))

    def look(self) -> None:
        """Further laws that hold after a step."""


@dataclass(eq=False)
class GreedyScenario(Scenario):
    """Requests of a real model: its own tokens decide which drafts are accepted, and what comes next.

    What it says has to be what it says in one run, without batches, chunks, drafts and caches.
    """

    recurrent: Recurrent = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._one_runs: dict[str, tuple[Iterator[int], list[int]]] = {}

    def make_engine(self) -> Engine:
        return Engine(self.world, self.execute, partial(Recurrences, recurrent=self.recurrent), checked=False)

    def one_run(self, request: Request, count: int) -> list[int]:
        """The first `count` tokens that the model says after the request's prompt, without an engine."""
        if request.id not in self._one_runs:
            self._one_runs[request.id] = self.recurrent.continued(request.tokens[: request.num_prompt]), []
        coming, said = self._one_runs[request.id]
        said += islice(coming, max(0, count - len(said)))
        return said[:count]

    def wish(self, request: Request, turn: Turn) -> ScheduleRequest:
        """Drafts of which the first ones are right, as many as are to be accepted."""
        said = len(request.tokens) - request.num_prompt
        coming = self.one_run(request, said + turn.drafts)[said:]
        right = coming[: turn.accepted]
        wrong = [(token + 1) % self.recurrent.vocabulary for token in coming[turn.accepted :]]
        return ScheduleRequest(request.id, self.prompt_tokens(turn), (*right, *wrong))

    def sample(self, row: ScheduledRequest, following: Sequence[int], turn: Turn) -> Sequence[int]:  # noqa: ARG002
        """The drafts that the model would have said itself, and what it says then."""
        first = row.length - len(row.drafts) - 1
        accepted = 0
        while accepted < len(row.drafts) and following[first + accepted] == row.drafts[accepted]:
            accepted += 1
        return (*row.drafts[:accepted], following[first + accepted])

    def look(self) -> None:
        for request in self.live:
            said = request.tokens[request.num_prompt :]
            one_run = self.one_run(request, len(said))
            for number, (token, wanted) in enumerate(zip(said, one_run, strict=True)):
                if token != wanted:
                    after = token_count(request.num_prompt + number)
                    raise Violation(
                        Flaw(
                            f"after step {self.engine.steps - 1}, what {request.id} says after {after} = {token}",
                            wanted=f"should be {wanted}, as in one run without batches, chunks, drafts and caches",
                            place="output",
                            request=request.id,
                        )
                    )
