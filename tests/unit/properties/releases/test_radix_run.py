"""A scenario of sessions closes them before it says that a request is not finished."""

from __future__ import annotations

import pytest

from properties.releases.radix_run import RadixRun
from properties.strategies.releases.live import LiveAbort, LiveAdd, LiveTurns
from properties.strategies.releases.radix import OpenSession, RadixStory, RadixWorld, SessionTurn
from statecheck.case.failure import Failure
from statecheck.case.values import Call, Returned, Value, record

IDLE_SESSION = (OpenSession(streaming=True), SessionTurn(), LiveTurns(), LiveAdd(1, 1))
"""A turn ends, and then a request comes in."""


class NotFinished(Exception):
    """A request is not finished."""


class LongPrompt:
    """A trial of an engine that computes the prompt of an aborted request in twenty steps."""

    inside = ""
    steps = 0

    def agrees(self, made: Call) -> Returned:
        if made.function.rpartition(".")[2] != "step":
            return Returned(None)
        self.steps += 1
        row = {"computed": self.steps, "tokens": 1, "drafts": 0, "begins": False}
        rows: dict[str, Value] = {"scheduled": {"r0": row}, "owners_after": (), "published": ()}
        idle = self.steps > 20
        return Returned(record("RadixStep", **rows, aborted=(), outputs={}, finished=(), idle=idle))

    def reached(self, *situations: str) -> None:
        """No test asks."""

    def finds(self, failure: Failure) -> None:
        raise NotFinished(failure.observed)


def test_a_prompt_that_is_computed_for_an_aborted_request_is_no_finding() -> None:
    trial = LongPrompt()
    RadixRun(trial, RadixStory(RadixWorld(), (LiveAdd(20, 1), LiveAbort()))).run()  # type: ignore[arg-type]
    assert trial.steps > 20


class OneRow:
    """A trial of an engine with one row: r0 ends at once, and its session keeps the row. The closed session gives it back when a second has passed."""

    inside = ""

    def __init__(self, *, gives_back: bool) -> None:
        self.gives_back = gives_back
        self.called: list[str] = []

    def agrees(self, made: Call) -> Returned:
        name = made.function.rpartition(".")[2]
        self.called.append(name)
        return Returned(self.stepped() if name == "step" else None)

    def reached(self, *situations: str) -> None:
        """No test asks."""

    def stepped(self) -> Value:
        added = self.called.count("add_request")
        closes = [at for at, name in enumerate(self.called) if name == "close_session"]
        closed = bool(closes) and "second_passes" in self.called[closes[0] :]
        ends = () if added and not (closed and self.gives_back) else ("r1",) if added else ("r0",)
        nothing: dict[str, Value] = {
            "scheduled": {},
            "aborted": (),
            "outputs": {},
            "owners_after": (),
            "published": (),
        }
        return record("RadixStep", **nothing, finished=ends, idle=bool(ends))

    def finds(self, failure: Failure) -> None:
        raise NotFinished(failure.observed)


def test_a_request_that_waits_for_the_row_of_an_idle_session_is_no_finding() -> None:
    trial = OneRow(gives_back=True)
    RadixRun(trial, RadixStory(RadixWorld(max_running_requests=1, sessions=True), IDLE_SESSION)).run()  # type: ignore[arg-type]
    assert trial.called.index("add_request") < trial.called.index("close_session")


def test_a_request_that_waits_behind_closed_sessions_is_a_finding() -> None:
    story = RadixStory(RadixWorld(max_running_requests=1, sessions=True), IDLE_SESSION)
    with pytest.raises(NotFinished, match="requests r1 are not finished"):
        RadixRun(OneRow(gives_back=False), story).run()  # type: ignore[arg-type]
