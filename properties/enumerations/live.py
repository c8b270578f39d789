"""All schedules of two requests in a release's own engine up to a depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from properties.strategies.releases.live import (
    LiveAbort,
    LiveAdd,
    LiveEvent,
    LiveReset,
    LiveStory,
    LiveTurns,
    LiveWorld,
)
from statecheck.execution.enumerations import Enumeration

_FIRST = LiveAdd(own=5, max_tokens=4)
"""A block of the prompt, and a token of the next."""
_SECOND = (LiveAdd(own=1, max_tokens=3, shared=4), LiveAdd(own=1, max_tokens=3))
"""A prompt that begins with the first one's block, or with none of its tokens."""


def later(depth: int, *, second: bool = True) -> Iterator[tuple[LiveEvent, ...]]:
    """All that may happen in so many events, one after another; at most one of them is the second request's arrival."""
    if not depth:
        yield ()
        return
    plain: tuple[LiveEvent, ...] = (
        *(LiveTurns(accepted) for accepted in _accepted(second=second)),
        LiveAbort(0),
        LiveReset(),
        LiveReset(True),
    )
    for event in plain:
        for rest in later(depth - 1, second=second):
            yield (event, *rest)
    for event in _SECOND if second else ():
        for rest in later(depth - 1, second=False):
            yield (event, *rest)


def _accepted(*, second: bool) -> Iterator[tuple[int, ...]]:
    """Right drafts of each request that may be there."""
    return product((0, 1), repeat=1 if second else 2)


def stories(runner: str, depth: int) -> Iterator[Mapping[str, Any]]:
    """The events of that depth, behind the arrival of the first request."""
    world = LiveWorld(num_spec=1, runner=runner)
    for events in later(depth):
        yield {"story": LiveStory(world, (_FIRST, *events))}


ENUMERATIONS = tuple(
    Enumeration(
        f"schedules of the release's {runner}",
        f"real-engine/{runner.lower()}",
        partial(stories, runner),
        bound="steps, arrivals, aborts and resets, before all runs out",
        symmetry="the first request comes first",
        left_out="prompts but 5 and 1 own tokens, other models and features, aborts of the second request while the first lives",
    )
    for runner in ("V1", "V2")
)
