"""The release's own engine: its scheduler, its cache manager and its worker, in scenarios of requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import currently_in_test_context
from hypothesis import event as hypothesis_event

from properties.releases.live_marks import LiveMarks, Marks
from properties.strategies.releases.live import (
    EngineStory,
    LiveAbort,
    LiveAdd,
    LivePause,
    LiveReset,
    LiveStory,
    LiveTurns,
    LiveWorld,
)
from properties.strategies.releases.live_connectors import connected_stories
from properties.strategies.releases.live_situations import stories_with_situations
from properties.strategies.releases.live_stages import staged_stories
from statecheck.case.failure import stated
from statecheck.case.values import Call, Name, Record, Returned, Value, call
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

ENGINE = "LiveEngine"


@dataclass(eq=False)
class LiveRun:
    """A scenario on its way: the tokens of each request so far, and those that live."""

    trial: Example
    story: EngineStory
    engine: str = ENGINE
    tokens: dict[str, list[int]] = field(default_factory=dict)
    alive: list[str] = field(default_factory=list)
    fresh: int = 0
    quiet: list[bool] = field(default_factory=list)
    """Of each step, whether nothing was scheduled."""

    def __post_init__(self) -> None:
        self.marks = self.new_marks()

    def new_marks(self) -> Marks:
        """What notes the situations that the scenario comes to."""
        assert isinstance(self.story.world, LiveWorld)
        return LiveMarks(self.story.world)

    def run(self) -> None:
        try:
            self.run_through()
        finally:
            for mark in sorted(self.marks.seen) if currently_in_test_context() else ():
                hypothesis_event(mark)

    def run_through(self) -> None:
        """The events, and then steps until all requests have ended."""
        self.call(
            call(self.engine, settings=self.story.world.settings_with(self.trial.inside), bind="engine")
        )
        for event in self.story.events:
            self.happens(event)
        self.drain()

    def happens(self, event: object) -> None:
        if isinstance(event, LiveAdd):
            self.add(event)
        elif isinstance(event, LiveAbort):
            if self.alive:
                self.abort(self.alive.pop(event.number % len(self.alive)))
        elif isinstance(event, LivePause):
            self.call(call(f"{self.engine}.pause", self=Name("engine"), retract=event.retract))
        elif isinstance(event, LiveReset):
            self.marks.resets()
            self.call(call(f"{self.engine}.reset_prefix_cache", self=Name("engine"), preempt=event.preempt))
        else:
            assert isinstance(event, LiveTurns)
            for _ in range(event.times):
                self.step(event)

    @property
    def room(self) -> int:
        """Tokens of a prompt and of what a request says, at most."""
        return self.story.world.max_model_len - 2 * self.story.world.num_spec - 2

    def add(self, event: LiveAdd) -> None:
        """A request whose prompt begins like the tokens of another one so far."""
        before = list(self.tokens.values())
        shared = before[event.like % len(before)][: event.shared] if before else []
        prompt = (*shared, *range(self.fresh + 1, self.fresh + event.own + 1))
        self.fresh += event.own
        room = self.room
        prompt = prompt[: room - 1]
        name = f"r{len(self.tokens)}"
        self.tokens[name] = list(prompt)
        self.alive.append(name)
        self.marks.adds(name, len(prompt))
        most = min(event.max_tokens, room - len(prompt))
        given: dict[str, Value] = {"id": name, "prompt": prompt, "max_tokens": most}
        given |= self.added_with(event, most)
        self.call(call(f"{self.engine}.add_request", self=Name("engine"), **given))

    def added_with(self, event: LiveAdd, most: int) -> dict[str, Value]:  # noqa: ARG002 - of other kinds of scenarios
        """What a request of another kind of scenario is added with, besides; `most` are the tokens that it may say."""
        return {}

    def abort(self, name: str) -> None:
        """A client goes away."""
        self.marks.aborts(name)
        self.call(call(f"{self.engine}.abort", self=Name("engine"), id=name))

    def step(self, event: LiveTurns) -> bool:
        """Whether there is nothing left to do."""
        accepted = event.accepted
        turns = {name: accepted[at] for at, name in enumerate(self.alive[: len(accepted)]) if accepted[at]}
        value = self.call(call(f"{self.engine}.step", self=Name("engine"), turns=turns))
        assert isinstance(value, Record)
        self.quiet.append(not value["scheduled"])
        self.marks.step(value, self.alive)
        for name, tokens in value["outputs"].items():
            self.tokens[name] += tokens
        self.alive = [name for name in self.alive if name not in value["finished"]]
        self.stepped(value)
        return bool(value["idle"])

    def stepped(self, value: Record) -> None:
        """A step is over, of which a scenario of another kind may remember something."""

    def drain(self) -> None:
        """Nothing more comes in, until all requests are gone."""
        before = len(self.quiet)
        if self.all_end():
            return
        left = ", ".join(self.alive)
        seen = f"after {len(self.quiet) - before} steps without arrivals, requests {left} are not finished"
        self.trial.finds(stated(seen, "should be", place="progress", function=f"{self.engine}.step"))

    def all_end(self) -> bool:
        """Whether all requests are gone after some steps; not, if nothing was scheduled for longer than any of them may wait."""
        late, before = self.story.world.late_steps, len(self.quiet)
        most = 4 + 2 * self.story.world.max_model_len * len(self.alive)
        for _ in range(most + late * (1 + len(self.alive))):
            if self.step(LiveTurns()):
                return True
            if all(self.quiet[before:][-late:]) and len(self.quiet) - before >= late:
                return False
        return False

    def call(self, made: Call) -> Value:
        """Make it in the engine's environment. What it returns breaks no law, or else the scenario ends here."""
        environment = tuple(self.story.world.environment.items())
        outcome = self.trial.agrees(replace(made, environment=environment))
        assert isinstance(outcome, Returned)
        return outcome.value


@prop("real-engine/v2", "provenance", ENGINE, device="cpu", story=stories_with_situations("V2"))
def test_requests_in_the_second_runner_read_the_state_of_their_tokens(
    trial: Example, story: LiveStory
) -> None:
    """Requests in the second runner read the state of their tokens.

    In the release's own engine every forward reads the state of exactly the computed tokens, every block that may be hit holds
    the state at its end, and nothing is owned twice or lost, whatever requests do.
    """
    LiveRun(trial, story).run()


@prop("real-engine/v1", "provenance", ENGINE, device="cpu", story=stories_with_situations("V1"))
def test_requests_in_the_first_runner_read_the_state_of_their_tokens(
    trial: Example, story: LiveStory
) -> None:
    """Requests in the first runner read the state of their tokens.

    With the first runner, too, every forward reads the state of exactly the computed tokens, every block that may be hit holds the
    state at its end, and nothing is owned twice or lost.
    """
    LiveRun(trial, story).run()


@prop("real-engine/connector-v2", "provenance", ENGINE, device="cpu", story=connected_stories("V2"))
def test_connected_requests_in_the_second_runner_read_the_state_of_their_tokens(
    trial: Example, story: LiveStory
) -> None:
    """Connected requests in the second runner read the state of their tokens.

    Every forward reads the state of exactly the computed tokens. A block that is being loaded is its request's alone until that is
    done, a block that is being saved is not written before that is done, and what is saved is the state of exactly its tokens.
    """
    LiveRun(trial, story).run()


@prop("real-engine/connector-v1", "provenance", ENGINE, device="cpu", story=connected_stories("V1"))
def test_connected_requests_in_the_first_runner_read_the_state_of_their_tokens(
    trial: Example, story: LiveStory
) -> None:
    """Connected requests in the first runner read the state of their tokens.

    With the first runner, too: what a forward reads and what a connector saves is the state of exactly the computed tokens, and a
    block is not used while it is loaded or saved.
    """
    LiveRun(trial, story).run()


@prop("real-engine/stages-v2", "provenance", ENGINE, device="cpu", story=staged_stories())
def test_requests_in_stages_with_batches_in_flight_read_the_state_of_their_tokens(
    trial: Example, story: LiveStory
) -> None:
    """Requests in stages with batches in flight read the state of their tokens.

    Layers are divided among stages, each of which comes to a batch late: every forward reads the state of exactly the computed tokens,
    and no stage reads rows, tables or host memory of a later batch.
    """
    LiveRun(trial, story).run()
