"""A scenario of an engine with a radix tree on its way: requests as in any engine, late copies to host memory, and sessions."""

from __future__ import annotations

from dataclasses import dataclass, field

from properties.releases.engine_run import EngineRun
from properties.releases.marks import RadixMarks
from properties.strategies.releases.live import LivePause, LiveTurns
from properties.strategies.releases.radix import (
    MOST_SESSIONS,
    CloseSession,
    LateCopies,
    OpenSession,
    RadixStory,
    SecondPasses,
    SessionTurn,
    StorageFails,
)
from statecheck.case.values import Record, Value
from statecheck.execution.example import Example

REFUSED = (0,)
"""Tokens that the engine computes for a request that it refuses."""


@dataclass(eq=False)
class _Session:
    """A session as its user knows it: its requests in their order, and which of them ended well."""

    name: str
    streaming: bool
    turns: list[str] = field(default_factory=list)


class RadixRun(EngineRun):
    """A scenario of such an engine.

    `ended` has the requests that ended, and whether they came to their last token; `aborted` those whose client went away: one in the queue ends
    before the next input comes, and one that runs does not. `paused`: there was a pause since the last step, which takes in results, so that a
    turn may end before the next input comes.
    """

    def __init__(self, trial: Example, story: RadixStory) -> None:
        stops: dict[str, int] = {}
        super().__init__(trial, story, "RadixEngine", RadixMarks(story.world, stops), stops=stops)
        self.has_sessions = story.world.sessions
        self.sessions: list[_Session] = []
        self.opened = 0
        self.ended: dict[str, bool] = {}
        self.paused = False
        self.prompts: dict[str, int] = {}
        self.parents: dict[str, str] = {}

    def happens(self, event: object) -> None:
        if isinstance(event, LateCopies):
            # Engines without a storage are not asked for one.
            storage: dict[str, Value] = {"storage": event.storage} if event.storage else {}
            self.call("delay_copies", to_host=event.to_host, from_host=event.from_host, **storage)
        elif isinstance(event, StorageFails):
            self.call(
                "fail_storage",
                pages=event.pages,
                states=event.states,
                saves=event.saves,
                raises=event.raises,
            )
        elif isinstance(event, OpenSession):
            self.open(event.streaming)
        elif isinstance(event, SessionTurn):
            if self.sessions:
                self.turn(self.sessions[event.session % len(self.sessions)], event)
        elif isinstance(event, CloseSession):
            if self.sessions:
                self.close(event.number % len(self.sessions))
        elif isinstance(event, SecondPasses):
            self.call("second_passes")
        else:
            self.paused = self.paused or isinstance(event, LivePause)
            super().happens(event)

    def open(self, streaming: bool) -> None:
        if len(self.sessions) == MOST_SESSIONS:
            return
        name = f"s{self.opened}"
        self.opened += 1
        self.sessions.append(_Session(name, streaming))
        self.call("open_session", id=name, streaming=streaming)

    def close(self, number: int) -> None:
        self.call("close_session", id=self.sessions.pop(number).name)

    def turn(self, session: _Session, event: SessionTurn) -> None:
        """A request behind those of the session, if it may come now and is not too long."""
        open_turns = [name for name in session.turns if name not in self.ended]
        if open_turns and (self.paused or (session.streaming and not self.aborted.isdisjoint(open_turns))):
            return
        if open_turns and event.eager:
            # Behind a request that has not ended: the engine computes a token 0 in its place.
            own = tuple(self.own_tokens(event.own))
            after = "" if session.streaming else open_turns[-1]
            self.add_turn(session, REFUSED, own, event.max_tokens, after=after)
            return
        if session.streaming and open_turns:
            return
        done = [name for name in session.turns if self.ended.get(name)]
        branches = not session.streaming
        after = ["", *done][event.after % (1 + len(done)) if branches else -1]
        drops, replaces = branches and event.drops_output, branches and event.replaces
        kept = self.tokens[after] if after else []
        if drops and after:
            kept = kept[: self.prompts[after]]
        offset = min(event.offset, len(kept)) if branches and after else -1
        kept = kept[:offset] if offset > 0 else kept
        # The first turn of a session begins with the first tokens of another request.
        known = [tokens for tokens in self.tokens.values() if tuple(tokens[:1]) != REFUSED]
        begun = known[event.like % len(known)][: event.shared] if known and not session.turns else []
        room = self.story.world.room
        if len(kept) + len(begun) + event.own >= room:
            return
        own = (*begun, *self.own_tokens(event.own))
        name, prompt = f"r{len(self.tokens)}", (*kept, *own)
        if replaces:
            session.turns = [turn for turn in session.turns if after and not self.is_behind(turn, after)]
        self.prompts[name], self.parents[name] = len(prompt), after
        session.turns.append(name)
        most = min(event.max_tokens, room - len(prompt))
        stop: dict[str, Value] = {}
        if event.stop_after:
            stop["stop_after"] = self.stops[name] = min(event.stop_after, most)
        after = "" if session.streaming else after
        self.add_turn(
            session, prompt, own, most, after, offset, drops_output=drops, replaces=replaces, **stop
        )

    def add_turn(
        self,
        session: _Session,
        prompt: tuple[int, ...],
        sent: tuple[int, ...],
        max_tokens: int,
        after: str,
        offset: int = -1,
        *,
        drops_output: bool = False,
        replaces: bool = False,
        **stop: Value,
    ) -> None:
        """The next request, behind request `after` of the session: the engine computes `prompt`, of which the client sends the end."""
        name = f"r{len(self.tokens)}"
        self.tokens[name] = list(prompt)
        self.alive.append(name)
        self.call(
            "add_turn",
            id=name,
            prompt=prompt,
            sent=sent,
            max_tokens=max_tokens,
            session=session.name,
            after=after,
            offset=offset,
            drops_output=drops_output,
            replaces=replaces,
            **stop,
        )

    def is_behind(self, name: str, other: str) -> bool:
        """Whether a request continues another one, or one that does."""
        above = self.parents[name]
        return bool(above) and (above == other or self.is_behind(above, other))

    def stepped(self, value: Record) -> None:
        self.paused = False
        for name in value["finished"]:
            self.ended[name] = name not in value["aborted"]

    def drain(self) -> None:
        """Until all requests are gone, and then the sessions, too."""
        super().drain()
        if self.has_sessions:
            self.close_all()
            for _ in range(2):
                self.call("second_passes")
                self.step(LiveTurns())

    def all_end(self) -> bool:
        """Whether all requests are gone after some steps. A request may wait for rows and slots that sessions keep between their turns, so that
        sessions are closed if none is scheduled.
        """
        if super().all_end():
            return True
        if not self.has_sessions:
            return False
        self.close_all()
        self.call("second_passes")
        return super().all_end()

    def close_all(self) -> None:
        while self.sessions:
            self.close(0)
