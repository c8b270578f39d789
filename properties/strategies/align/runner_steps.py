"""Steps of the runner that keeps requests in rows, before a forward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from oracle.situations.align import decisions, runner
from properties.strategies.align.cache import PLAIN, Cache, Filling, fillings, spread
from properties.strategies.align.requests import RequestBeforeStep, starting
from properties.strategies.align.runner import Scheduled, copy_buffers, preprocess, scheduler_output
from properties.strategies.align.setup import Setup
from properties.strategies.align.setups import setups
from properties.strategies.bounds import MANY_ROWS, crowded, crowds
from properties.strategies.orders import schedules
from properties.strategies.situations import NamedSituations, named, noted
from statecheck.case.values import (
    Call,
    Let,
    Record,
    Step,
    Tensor,
    Value,
    int32,
)

FORGETTING = ("finished", "preempted", "resumed", "nothing")


@dataclass(frozen=True)
class RunnerStep(NamedSituations):
    """What the runner does before a forward. `gone` are requests that it remembers and that are not in the batch.

    Where requests are `resumed`, it also remembers columns of those that have no column any more.
    """

    setup: Setup
    requests: tuple[RequestBeforeStep, ...]
    resumed: bool = False
    gone: tuple[str, ...] = ()
    spare: int = 0
    pointers: bool = False
    filling: Filling = PLAIN
    schedule: str = ""

    @property
    def capacity(self) -> int:
        return max(1, len(self.requests) + self.spare)

    @property
    def rows(self) -> tuple[Scheduled, ...]:
        return tuple(
            Scheduled(f"r{number}", number, one.computed, one.length, self._drafts(one))
            for number, one in enumerate(self.requests)
        )

    def _drafts(self, one: RequestBeforeStep) -> int:
        return one.length - 1 if one.computed and one.length <= 1 + self.setup.num_spec else 0

    @property
    def cache(self) -> Cache:
        rows = (*range(len(self.requests)), *(None,) * (self.capacity - len(self.requests)))
        return Cache(self.setup, tuple(one.columns(self.setup) for one in self.requests), rows, self.filling)

    @property
    def state_idx(self) -> dict[str, int]:
        """The remembered columns: of requests that are gone, and of resumed ones, what they were long ago."""
        size = self.setup.block_size
        known = {
            row.id: one.previous(size)
            for row, one in zip(self.rows, self.requests, strict=True)
            if one.remembered
        }
        known.update(dict.fromkeys(self._resumed, 7))
        return {f"{why}{number}": 40 + number for number, why in enumerate(self.gone)} | known

    @property
    def _resumed(self) -> list[str]:
        """Requests that are said to be resumed, although there is a column for them: new ones, and those with hits."""
        return [
            row.id
            for row, one in zip(self.rows, self.requests, strict=True)
            if self.resumed and not one.remembered
        ]

    @property
    def output(self) -> Record:
        def those(why: str) -> list[str]:
            return [f"{one}{number}" for number, one in enumerate(self.gone) if one == why]

        resumed = self._resumed + those("resumed")
        preempted = those("preempted")
        return scheduler_output(
            self.rows, finished=those("finished"), preempted=preempted or None, resumed=resumed
        )

    def accepted(self) -> Tensor:
        """The counts on the host, by row; behind the rows, others."""
        return int32(spread((one.accepted for one in self.requests), self.capacity, 3)).on_host()

    def prepared(self) -> list[Step]:
        """Everything that `preprocess` needs."""
        return [
            *self.cache.steps(),
            Let("state_idx", self.state_idx),
            Let("accepted", self.accepted()),
            copy_buffers(self.setup, self.capacity),
        ]

    def preprocess(self, **changes: Value) -> Call:
        return preprocess(
            self.cache, self.rows, self.output, pointers=self.pointers, schedule=self.schedule, **changes
        )

    def conditions(self) -> dict[str, bool]:
        size = self.setup.block_size
        moving = [one for one in self.requests if one.moves(size)]
        changes = (
            decisions.at_change(one.previous(size), one.running(size), one.accepted) for one in self.requests
        )
        return {
            **named((runner.NO_ROW, runner.SOME_MOVE), [runner.at_moves(len(moving), len(self.requests))]),
            **named((decisions.FRESH, decisions.COMES_OFFSET, decisions.BACK), changes),
            "no request moves": bool(self.requests) and not moving,
            "self copy of the temporal state": any(
                one.previous(size) + one.bias == one.running(size) for one in moving
            ),
            "resumed request with a column of before": bool(self._resumed),
            **{f"remembers one that is gone, {why}": why in self.gone for why in FORGETTING},
            "spare rows": self.spare > 0,
            "pointer lists": self.pointers,
            "channel-first layout": self.setup.layout == "DS",
            "channel-first layout with a bias": self.setup.layout == "DS" and any(one.bias for one in moving),
            "two groups": len(self.setup.groups) > 1,
            "shared pool": self.setup.shared,
            "a group of another kind before": self.setup.attention,
            "stale blocks in a row": self.filling.stale,
            "more requests than eight": len(self.requests) > 8,
            "five drafts accepted or more": any(one.accepted > 5 for one in self.requests),
        }


def runner_steps(*, pointers: bool | None = None) -> st.SearchStrategy[RunnerStep]:
    """Steps of the runner before a forward; through lists of pointers only what a pointer and a size can say."""
    return _steps(setups(), pointers).map(noted)


@st.composite
def _steps(draw: st.DrawFn, models: st.SearchStrategy[Setup], pointers: bool | None) -> RunnerStep:
    setup = draw(models)
    parts = draw(_parts(setup.block_size, setup.num_spec, setup.layout, pointers))
    return _affordable(RunnerStep(setup, **parts))


def _affordable(step: RunnerStep) -> RunnerStep:
    """The step with as many of its requests as are copied in a moment."""
    return replace(step, requests=step.requests[: step.setup.most_requests(MANY_ROWS[0] + 1)])


MAX_REQUESTS = 4
"""Requests that are drawn: each can stay, leave, go back or be new; more of them repeat these."""


# Strategies are made once: making them takes longer than drawing from them.
_NO_REQUESTS = st.sampled_from((False,) * 15 + (True,))


_FLAGS = st.booleans()


_GONE = st.lists(st.sampled_from(FORGETTING), max_size=3)


_SPARE = st.integers(0, 2)


@cache
def _some(size: int, spec: int) -> st.SearchStrategy[list[RequestBeforeStep]]:
    some = st.lists(starting(size, spec), min_size=1, max_size=MAX_REQUESTS)
    many = crowds(MANY_ROWS[:1], one_in=8)
    return st.builds(lambda count, requests: crowded(requests, count), many, some)


@cache
@st.composite
def _parts(draw: st.DrawFn, size: int, spec: int, layout: str, pointers: bool | None) -> dict[str, Any]:
    """What a step is made of beside its model, as keywords."""
    parts: dict[str, Any] = {
        "requests": () if draw(_NO_REQUESTS) else tuple(draw(_some(size, spec))),
        "resumed": draw(_FLAGS),
        "gone": tuple(draw(_GONE)),
        "spare": draw(_SPARE),
        "pointers": draw(_FLAGS) if pointers is None else pointers,
        "filling": draw(fillings()),
        "schedule": draw(schedules()),
    }
    return _representable(layout, parts)


def _representable(layout: str, parts: dict[str, Any]) -> dict[str, Any]:
    """Through a pointer and a size a channel-first conv state is copied as a whole or not at all."""
    if not parts["pointers"] or layout == "SD":
        return parts
    plain = (replace(one, accepted=1, first_state=one.computed) for one in parts["requests"])
    return parts | {"requests": tuple(plain)}
