"""What blocks really hold at a moment of a scenario, in a few words, beside what is promised of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from oracle.lifecycle.ledger import Held, StateLedger
from oracle.lifecycle.scheduler import Scheduler
from properties.engine.layer_state import LayerState
from properties.engine.models import Fingerprints, Model, Recurrences
from properties.engine.places import Bytes, Mirror, StatePlace
from properties.engine.report.words import tokens as token_count
from properties.engine.world import NEVER

Pools = Mapping[str, Bytes]


@dataclass(frozen=True)
class Content:
    """What a block holds: `words`, and the prefix that it is the state after, where it is one.

    `promised` is the prefix that it should be the state after, where it holds something else; `row` is the conv row in which
    it does, None of a temporal state.
    """

    words: str
    prefix: int | None = None
    promised: int | None = None
    row: int | None = None


@dataclass(eq=False)
class Contents:
    """Reads blocks in copies of an engine's pools, which are made while it runs and read when a picture is wanted."""

    scheduler: Scheduler
    ledger: StateLedger
    mirror: Mirror
    model: Model
    _states: dict[int, tuple[LayerState, ...]] = field(default_factory=dict)

    def copied(self) -> Pools:
        """The pools as they are now."""
        return {name: pool.copy() for name, pool in self.mirror.pools.items()}

    def of(self, pools: Pools, group: int, block: int, held: Held) -> Content:
        """What a block of a group holds, of which `held` is promised."""
        places = [self._seen(place, pools) for place in self.mirror.of_group(group)]
        prefix = held.temporal if held.temporal is not None else held.window.end if held.window else None
        if prefix is None:
            return Content(_unpromised(places, block))
        # A temporal state says more than a row of a window.
        wrong = min(self._wrong(places, block, held), key=lambda one: one[2] is not None, default=None)
        if wrong is None:
            return Content(token_count(self._length(prefix)), prefix)
        if set(_bytes_of(places, block)) == {NEVER}:
            return Content(_unknown(wrong[1]), None, prefix)
        place, found, row, promised = wrong
        source = self._meaning(place, found)
        return Content(
            token_count(self._length(source)) if source else _unknown(found), source, promised, row
        )

    def _seen(self, place: StatePlace, pools: Pools) -> StatePlace:
        """The place in a copy of its pool."""
        offset = place.array.ctypes.data - self.mirror.pools[place.pool].ctypes.data
        strides = place.array.strides
        return replace(
            place, array=np.ndarray(place.array.shape, np.uint8, pools[place.pool], offset, strides)
        )

    def _wrong(
        self, places: list[StatePlace], block: int, held: Held
    ) -> Iterator[tuple[StatePlace, bytes, int | None, int]]:
        """States, and rows of windows, that are not those of the promised prefix, as far as these are known."""
        for place in places:
            if not place.window:
                promised = [] if held.temporal is None else [held.temporal]
                seen: tuple[bytes, ...] = (place.temporal(block),)
            elif held.window is not None:
                promised = self.ledger.prefixes.last(held.window.end, place.window + held.window.newest)
                seen = place.rows(block, 0, len(promised))
            else:
                continue
            for row, (prefix, found) in enumerate(zip(promised, seen, strict=False)):
                right = self._right(place, prefix)
                if right is not None and found != right:
                    yield place, found, row if place.window else None, prefix

    def _right(self, place: StatePlace, prefix: int) -> bytes | None:
        """The state after a prefix, or the row of its last token."""
        if not isinstance(self.model, Recurrences):
            return self.model.right(place, prefix)
        if not prefix:
            return bytes(place.row_bytes if place.window else place.array.shape[1])
        return self.model.by_place(self._after(prefix))[place.number]

    def _after(self, prefix: int) -> tuple[LayerState, ...]:
        """What a real model's layers hold after the tokens of a prefix, in one run."""
        assert isinstance(self.model, Recurrences)
        if prefix not in self._states:
            states = self.model.recurrent.initial()
            for token in self.ledger.prefixes.tokens(prefix):
                states, _ = self.model.recurrent.advance(states, token)
            self._states[prefix] = states
        return self._states[prefix]

    def _meaning(self, place: StatePlace, found: bytes) -> int | None:
        """The prefix whose state, or whose last token's row, these bytes are."""
        if isinstance(self.model, Fingerprints):
            return self.model.meaning(place, found)
        known = {prefix for request in self.scheduler.requests.values() for prefix in request.prefixes}
        return next(
            (prefix for prefix in sorted(known) if prefix and self._right(place, prefix) == found), None
        )

    def _length(self, prefix: int) -> int:
        return self.ledger.prefixes.length(prefix)


def _unpromised(places: list[StatePlace], block: int) -> str:
    """What is there without a promise."""
    found = _bytes_of(places, block)
    return "stale" if any(found) and set(found) != {NEVER} else _unknown(found)


def _bytes_of(places: list[StatePlace], block: int) -> bytes:
    return b"".join(place.array[block].tobytes() for place in places)


def _unknown(found: bytes) -> str:
    if not any(found):
        return "zeros"
    return "never written" if set(found) == {NEVER} else "no state"
