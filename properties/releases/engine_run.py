"""A scenario of a release's own engine on its way: requests come in, take steps, are aborted, and all of them end."""

from __future__ import annotations

from dataclasses import dataclass, field

from properties.releases.marks import Marks
from properties.strategies.releases.live import (
    LiveAbort,
    LiveAdd,
    LivePause,
    LiveReset,
    LiveSleep,
    LiveStory,
    LiveTurns,
    LiveWeights,
    with_items,
)
from properties.strategies.releases.radix import RadixStory
from statecheck.case.failure import stated
from statecheck.case.values import Name, Record, Returned, Value, call
from statecheck.execution.example import Example


@dataclass(eq=False)
class EngineRun:
    """Makes the calls of a scenario's events on the class `engine` of the subject, each of which breaks no law, or else the scenario ends there.

    A request of the scenario whose prompt is `remote` is two, as on two servers: the first one computes the prompt, and when it ends the second one comes in, which loads
    what the first one computed.

    `marks` notes the situations that the scenario comes to. `tokens` has the tokens of each request so far, `alive` the requests that have not
    ended, `stops` by request the number of the token that it says that is its stop token, and `quiet` of each step whether nothing was scheduled.
    """

    trial: Example
    story: LiveStory | RadixStory
    engine: str
    marks: Marks
    tokens: dict[str, list[int]] = field(default_factory=dict)
    alive: list[str] = field(default_factory=list)
    stops: dict[str, int] = field(default_factory=dict)
    quiet: list[bool] = field(default_factory=list)
    aborted: set[str] = field(default_factory=set)
    """Requests whose clients have gone away. The engine may still compute their prompts."""
    fresh: int = 0
    remote: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """By request that computes a prompt for another one: the prompt, and the tokens that the other one may say."""

    def run(self) -> None:
        """The events, and then steps until all requests have ended."""
        settings = self.story.world.settings_with(self.trial.inside)
        self.make_call(self.engine, settings=settings, bind="engine")
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
            self.call("pause", retract=event.retract)
        elif isinstance(event, LiveReset):
            self.marks.resets()
            external: dict[str, Value] = {"external": True} if event.external else {}
            self.call("reset_prefix_cache", preempt=event.preempt, **external)
        elif isinstance(event, LiveWeights):
            self.marks.updates()
            self.call("update_weights", sleep=event.sleep)
        elif isinstance(event, LiveSleep):
            self.marks.sleeps(event.level)
            if event.aborts:
                self.aborted.update(self.alive)
                self.alive.clear()
            anew: dict[str, Value] = {"anew": True} if event.anew else {}
            self.call("sleep", level=event.level, mode="abort" if event.aborts else "keep", **anew)
        else:
            assert isinstance(event, LiveTurns)
            for _ in range(event.times):
                self.step(event)

    def add(self, event: LiveAdd) -> None:
        """A request whose prompt begins like the tokens of another one so far."""
        before = list(self.tokens.values())
        shared = before[event.like % len(before)][: event.shared] if before else []
        room = self.story.world.room
        prompt = with_items((*shared, *self.own_tokens(event.own))[: room - 1], self.story.world.items)
        most = min(event.max_tokens, room - len(prompt))
        if event.remote:
            self.remote[self.comes_in(prompt, 1, sends=True)] = prompt, most
        elif event.stop_after:
            stop = min(event.stop_after, most)
            self.stops[self.comes_in(prompt, most, stop_after=stop)] = stop
        else:
            self.comes_in(prompt, most)

    def comes_in(self, prompt: tuple[int, ...], most: int, **given: Value) -> str:
        """Let a request come in that says at most so many tokens, and return its name."""
        name = f"r{len(self.tokens)}"
        self.tokens[name] = list(prompt)
        self.alive.append(name)
        self.marks.adds(name, len(prompt))
        self.call("add_request", id=name, prompt=prompt, max_tokens=most, **given)
        return name

    def own_tokens(self, count: int) -> range:
        """Tokens that no other prompt has."""
        first, self.fresh = self.fresh + 1, self.fresh + count
        return range(first, self.fresh + 1)

    def abort(self, name: str) -> None:
        """A client goes away."""
        self.marks.aborts(name)
        self.aborted.add(name)
        self.call("abort", id=name)

    def step(self, event: LiveTurns) -> bool:
        """Whether there is nothing left to do."""
        accepted = event.accepted
        turns = {name: accepted[at] for at, name in enumerate(self.alive[: len(accepted)]) if accepted[at]}
        value = self.call("step", turns=turns)
        assert isinstance(value, Record)
        self.quiet.append(not value["scheduled"])
        self.marks.step(value, self.alive)
        self.trial.reached(*self.marks.seen)
        for name, tokens in value["outputs"].items():
            self.tokens[name] += tokens
        self.alive = [name for name in self.alive if name not in value["finished"]]
        for name in value["finished"]:
            if name in self.remote:
                # Arguments of a call are in the order of its parameters, without a gap.
                self.comes_in(*self.remote.pop(name), sends=False, loads=name)
        self.stepped(value)
        return bool(value["idle"])

    def stepped(self, value: Record) -> None:
        """A step is over, of which a scenario of another kind may remember something."""

    def drain(self) -> None:
        """Nothing more comes in, until all requests are gone."""
        before = len(self.quiet)
        if self.all_end():
            return
        left = (
            f"requests {', '.join(self.alive)} are not finished" if self.alive else "the engine is not idle"
        )
        seen = f"after {len(self.quiet) - before} steps without arrivals, {left}"
        self.trial.finds(stated(seen, "should be", place="progress", function=f"{self.engine}.step"))

    def all_end(self) -> bool:
        """Whether all requests are gone after some steps; not, if nothing was scheduled for longer than any of them may wait."""
        late, before = self.story.world.late_steps, len(self.quiet)
        left = len(self.alive) + len(self.aborted)
        for _ in range(4 + 2 * self.story.world.max_model_len * left + late * (1 + left)):
            if self.step(LiveTurns()):
                # An engine that has lost a request has nothing to do, either.
                return not self.alive
            if all(self.quiet[before:][-late:]) and len(self.quiet) - before >= late:
                return False
        return False

    def call(self, method: str, **given: Value) -> Value:
        """Call a method of the engine."""
        return self.make_call(f"{self.engine}.{method}", self=Name("engine"), **given)

    def make_call(self, function: str, /, **given: Value) -> Value:
        """Call a function in the engine's environment."""
        outcome = self.trial.agrees(call(function, environment=self.story.world.environment, **given))
        assert isinstance(outcome, Returned)
        return outcome.value
