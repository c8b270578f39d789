"""An engine's sessions: requests that continue what the engine keeps of earlier ones, in scenarios."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from properties.releases.test_radix_engine import ENGINE, RadixRun
from properties.strategies.releases.live import LivePause, LiveTurns
from properties.strategies.releases.radix import RadixWorld
from properties.strategies.releases.radix_sessions import (
    MOST_SESSIONS,
    CloseSession,
    OpenSession,
    SecondPasses,
    SessionStory,
    SessionTurn,
    session_stories,
)
from statecheck.case.values import Name, Record, Value, call
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

REFUSED = (0,)
"""What the engine computes of a request that it refuses."""
_PLAIN = RadixWorld(
    max_total_tokens=160,
    max_mamba_cache_size=24,
    max_running_requests=5,
    chunked_prefill_size=16,
    sessions=True,
)
SESSIONS = replace(_PLAIN, strategy="extra_buffer", overlap=True)
_DRAFTS = replace(SESSIONS, mamba_track_interval=8, num_draft_tokens=3)


@dataclass(eq=False)
class _Session:
    """A session as its user knows it: its requests in their order, and which of them ended well."""

    name: str
    streaming: bool
    turns: list[str] = field(default_factory=list)


@dataclass(eq=False)
class SessionRun(RadixRun):
    """A scenario with sessions on its way."""

    sessions: list[_Session] = field(default_factory=list)
    opened: int = 0
    ended: dict[str, bool] = field(default_factory=dict)
    """Of requests that ended, whether they came to their last token."""
    aborted: set[str] = field(default_factory=set)
    """Requests whose client went away. One in the queue ends before the next input comes, and one that runs does not."""
    paused: bool = False
    """Whether there was a pause since the last step: it takes in results, which may end a turn before the next input comes."""
    prompts: dict[str, int] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)

    def happens(self, event: object) -> None:
        if isinstance(event, OpenSession):
            self.open(event.streaming)
        elif isinstance(event, SessionTurn):
            if self.sessions:
                self.turn(self.sessions[event.session % len(self.sessions)], event)
        elif isinstance(event, CloseSession):
            if self.sessions:
                self.close(event.number % len(self.sessions))
        elif isinstance(event, SecondPasses):
            self.second_passes()
        else:
            self.paused = self.paused or isinstance(event, LivePause)
            super().happens(event)

    def abort(self, name: str) -> None:
        super().abort(name)
        self.aborted.add(name)

    def open(self, streaming: bool) -> None:
        if len(self.sessions) == MOST_SESSIONS:
            return
        name = f"s{self.opened}"
        self.opened += 1
        self.sessions.append(_Session(name, streaming))
        self.call(call(f"{self.engine}.open_session", self=Name("engine"), id=name, streaming=streaming))

    def close(self, number: int) -> None:
        name = self.sessions.pop(number).name
        self.call(call(f"{self.engine}.close_session", self=Name("engine"), id=name))

    def turn(self, session: _Session, event: SessionTurn) -> None:
        """A request behind those of the session, if it may come now and is not too long."""
        open_turns = [name for name in session.turns if name not in self.ended]
        if open_turns and (self.paused or (session.streaming and not self.aborted.isdisjoint(open_turns))):
            return
        if open_turns and event.eager:
            self.refused(session, "" if session.streaming else open_turns[-1], event)
            return
        if session.streaming and open_turns:
            return
        done = [name for name in session.turns if self.ended.get(name)]
        roots = [""]
        after = (done or roots)[-1] if session.streaming else (roots + done)[event.after % (1 + len(done))]
        branches = not session.streaming
        drops, replaces = branches and event.drops_output, branches and event.replaces
        kept = self.tokens[after] if after else []
        if drops and after:
            kept = kept[: self.prompts[after]]
        offset = min(event.offset, len(kept)) if branches and after else -1
        kept = kept[:offset] if offset > 0 else kept
        room = self.room
        begun = self.begun_like(event) if not session.turns else ()
        if len(kept) + len(begun) + event.own >= room:
            return
        own = (*begun, *self.own_tokens(event.own))
        name, prompt = f"r{len(self.tokens)}", (*kept, *own)
        if replaces:
            session.turns = [one for one in session.turns if after and not self.is_behind(one, after)]
        self.prompts[name], self.parents[name] = len(prompt), after
        session.turns.append(name)
        continued: dict[str, Value] = {
            "session": session.name,
            "after": "" if session.streaming else after,
            "offset": offset,
        }
        flags: dict[str, Value] = {"drops_output": drops, "replaces": replaces}
        most = min(event.max_tokens, room - len(prompt))
        if event.stop_after:
            flags["stop_after"] = self.stops[name] = min(event.stop_after, most)
        self.add_turn(name, prompt, own, most, continued | flags)

    def refused(self, session: _Session, after: str, event: SessionTurn) -> None:
        """A request behind one that has not ended: the engine computes a token 0 in its place."""
        continued: dict[str, Value] = {"session": session.name, "after": after, "offset": -1}
        flags = {"drops_output": False, "replaces": False}
        name, own = f"r{len(self.tokens)}", tuple(self.own_tokens(event.own))
        self.add_turn(name, REFUSED, own, event.max_tokens, continued | flags)

    def add_turn(
        self,
        name: str,
        prompt: tuple[int, ...],
        sent: tuple[int, ...],
        max_tokens: int,
        more: dict[str, Value],
    ) -> None:
        self.tokens[name] = list(prompt)
        self.alive.append(name)
        given = {"id": name, "prompt": prompt, "sent": sent, "max_tokens": max_tokens}
        self.call(call(f"{self.engine}.add_turn", self=Name("engine"), **given, **more))

    def begun_like(self, event: SessionTurn) -> tuple[int, ...]:
        """The first tokens of another request."""
        known = [tokens for tokens in self.tokens.values() if tuple(tokens[:1]) != REFUSED]
        return tuple(known[event.like % len(known)][: event.shared]) if known else ()

    def own_tokens(self, count: int) -> range:
        """Tokens that no other prompt has."""
        first, self.fresh = self.fresh + 1, self.fresh + count
        return range(first, self.fresh + 1)

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
        self.close_all()
        for _ in range(2):
            self.second_passes()
            self.step(LiveTurns())

    def all_end(self) -> bool:
        """Whether all requests are gone after some steps. A request may wait for rows and slots that sessions keep between their turns, so that
        sessions are closed if none is scheduled.
        """
        if super().all_end():
            return True
        self.close_all()
        self.second_passes()
        return super().all_end()

    def close_all(self) -> None:
        while self.sessions:
            self.close(0)

    def second_passes(self) -> None:
        self.call(call(f"{self.engine}.second_passes", self=Name("engine")))


@prop("radix-engine/sessions", "provenance", ENGINE, device="cpu", story=session_stories(SESSIONS))
def test_requests_of_sessions_read_the_state_of_their_tokens(trial: Example, story: SessionStory) -> None:
    """Requests of sessions read the state of their tokens.

    As in overlapping steps; a request continues what a session keeps, which is the state of exactly the tokens that its user knows of, and a
    closed session keeps nothing.
    """
    SessionRun(trial, story).run()


@prop("radix-engine/plain-sessions", "provenance", ENGINE, device="cpu", story=session_stories(_PLAIN))
def test_requests_of_sessions_without_boundaries_read_the_state_of_their_tokens(
    trial: Example, story: SessionStory
) -> None:
    """Requests of sessions without boundaries read the state of their tokens.

    As with sessions; steps do not overlap, and no state is kept at boundaries.
    """
    SessionRun(trial, story).run()


@prop("radix-engine/session-drafts", "provenance", ENGINE, device="cpu", story=session_stories(_DRAFTS))
def test_requests_of_sessions_with_drafts_read_the_state_of_their_tokens(
    trial: Example, story: SessionStory
) -> None:
    """Requests of sessions with drafts read the state of their tokens.

    As with sessions; each step verifies drafts.
    """
    SessionRun(trial, story).run()
