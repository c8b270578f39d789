"""Situations that the configurations of an engine with a radix tree are for, and which of them scenarios have come to.

Each property of such an engine is there for a situation. A mark is noted by what a step tells; a test fails if a fixed number of examples of a property never
comes to its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from properties.releases.live_marks import Marks
from properties.strategies.releases.radix import RadixWorld
from statecheck.case.values import Record

HIT, PAGES, PASSED, INSIDE = (
    "a request begins behind a hit",
    "a request begins behind a hit of several pages",
    "a prefill passes the end of a page inside of a step",
    "a request begins at the end of a page inside of a chunk of a scan",
)
BOUNDARY, BESIDE, FULL, MIXED = (
    "a decode passes a boundary",
    "a decode passes a boundary right behind a step with a prefill",
    "no slot of states is free while slots of keys are",
    "a decode runs in one batch with a prefill",
)
AGAIN, SOME, SEVERAL, GRID = (
    "a request that ran begins again",
    "some drafts are accepted and others rejected",
    "accepted drafts pass a boundary",
    "a row of a prefill begins inside of a chunk of the batch",
)
HOST, CAPPED, STOPPED, BATCH = (
    "a request begins behind a state that only host memory had",
    "a request passes three boundaries",
    "a request ends by its stop token",
    "several requests run in a step",
)

SITUATIONS: Mapping[str, tuple[str, ...]] = {
    "no-buffer": (HIT, STOPPED),
    "extra-buffer": (HIT, BOUNDARY, STOPPED),
    "pages": (PAGES,),
    "wide-pages": (PASSED, PAGES),
    "wide-chunks": (PASSED, BOUNDARY),
    "overlap": (HIT, BESIDE, STOPPED),
    "rust-core": (HIT, BOUNDARY),
    "lazy-buffer": (BOUNDARY, FULL),
    "scarce": (AGAIN,),
    "few-states": (FULL,),
    "drafts": (SOME, SEVERAL, STOPPED),
    "lazy-drafts": (SEVERAL, FULL),
    "draft-trees": (SOME, SEVERAL),
    "eagle": (SOME, SEVERAL),
    "mixed": (MIXED,),
    "capped": (CAPPED,),
    "no-cache": (BATCH,),
    "write-through": (HOST,),
    "write-back": (HOST,),
    "write-selective": (HOST,),
    "mamba2-overlap": (GRID, BESIDE),
    "mamba2-no-buffer": (HIT, GRID),
    "mamba2-mixed": (MIXED, GRID),
    "mamba2-drafts": (SOME, GRID),
    "rust-scarce": (AGAIN,),
    "rust-drafts": (SOME, SEVERAL),
    "rust-mixed": (MIXED,),
    "rust-write-through": (AGAIN,),
    "sessions": (HIT, STOPPED),
    "plain-sessions": (HIT,),
    "session-drafts": (HIT, SOME),
    "rust-sessions": (HIT,),
}
"""By the property's name behind "radix-engine/", what it is for."""
_STATES, _HOST = 1, 1000


@dataclass(eq=False)
class RadixMarks(Marks):
    """The marks of a scenario: what its steps were, one after the other.

    Args:
        world: the engine.
        stops: by request, the number of the token that it says that is its stop token; requests that come in later are added to it.
    """

    world: RadixWorld
    stops: Mapping[str, int]
    _said: Counter[str] = field(default_factory=Counter)
    _begun: set[str] = field(default_factory=set)
    _passed: Counter[str] = field(default_factory=Counter)
    _prefilled: bool = False
    _published: tuple[tuple[int, int, str, int], ...] = ()

    def step(self, value: Record, alive: list[str]) -> None:  # noqa: ARG002 - of other engines
        rows: Mapping[str, Any] = dict(value["scheduled"])
        prefills = {name for name, row in rows.items() if row["tokens"] - row["drafts"] > 1 or row["begins"]}
        self.note(BATCH, len(rows) > 1)
        self.note(MIXED, prefills and len(prefills) < len(rows))
        starts = accumulate((row["tokens"] for row in rows.values()), initial=0)
        chunk = self.world.mamba_chunk_size
        self.note(GRID, prefills and any(start % chunk for start, _ in zip(starts, rows, strict=False)))
        outputs = dict(value["outputs"])
        for name, tokens in outputs.items():
            self._said[name] += len(tokens)
        for name, row in rows.items():
            if name in prefills:
                self._prefill(name, row)
            else:
                self._decode(name, row, len(outputs.get(name, ())))
        for name in value["finished"]:
            self.note(STOPPED, name in self.stops and self.stops[name] == self._said[name])
        held = {(group, block) for _, group, _, block in value["owners_after"]}
        held |= {(group, block) for group, block, *_ in value["published"] if block < _HOST}
        keys = len([1 for group, _ in held if group != _STATES]) * self.world.page_size
        states = sum(group == _STATES for group, _ in held)
        self.note(FULL, states >= self.world.max_mamba_cache_size and 2 * keys < self.world.max_total_tokens)
        self._prefilled, self._published = bool(prefills), tuple(value["published"])

    def _prefill(self, name: str, row: Mapping[str, Any]) -> None:
        first, page = row["computed"], self.world.page_size
        if row["begins"]:
            self.note(HIT, first)
            self.note(PAGES, first >= 2 * page)
            self.note(INSIDE, first % self.world.mamba_chunk_size)
            self.note(AGAIN, name in self._begun)
            self.note(HOST, first and self._only_in_host_memory(first))
            self._begun.add(name)
        self.note(PASSED, first // page < (first + row["tokens"] - 1) // page)

    def _decode(self, name: str, row: Mapping[str, Any], accepted: int) -> None:
        interval, first = self.world.mamba_track_interval, row["computed"]
        passes = first // interval < (first + max(1, accepted)) // interval
        self._passed[name] += passes
        self.note(BOUNDARY, passes)
        self.note(BESIDE, passes and self._prefilled)
        self.note(CAPPED, self._passed[name] > 2)
        self.note(SOME, 1 < accepted <= row["drafts"])
        self.note(SEVERAL, passes and accepted > 1)

    def _only_in_host_memory(self, count: int) -> bool:
        states = [
            (name, block >= _HOST)
            for group, block, name, tokens in self._published
            if group == _STATES and tokens == count
        ]
        in_host = {name for name, host in states if host}
        return bool(in_host - {name for name, host in states if not host})
