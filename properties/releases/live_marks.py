"""Situations that scenarios of a release's engine come to, counted from what its steps returned, and which of them a configuration is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from properties.strategies.releases.live import FEW_DRAFTS, FEW_REQUESTS, LiveWorld
from statecheck.case.values import Record

_OF_ALL = (
    "a prefix hit",
    "a step with prompts and decodes",
    "a prompt in several steps",
    "a block that a prompt fills in several steps",
    "some drafts accepted, others rejected",
    "more drafts in a row than usual",
    "more rows in a step than usual",
    "a request waits for a row",
    "a request waits for blocks while a row is free",
    "a running request is preempted for blocks",
    "a request comes back",
    "no block is free",
    "a request is aborted while it runs",
    "the prefix cache is emptied while requests run",
)
_OF_CONNECTORS = (
    "a block is loaded",
    "a block is loaded in a step that runs another request",
    "a block is saved",
    "a load fails",
)
PURPOSES: Final[Mapping[str, tuple[str, ...]]] = {
    "real-engine/v2": (*_OF_ALL, "a hit inside of a block"),
    "real-engine/v1": _OF_ALL,
    "real-engine/connector-v2": (
        *_OF_CONNECTORS,
        "a prefix hit",
        "a hit inside of a block",
        "a request comes back",
    ),
    "real-engine/connector-v1": (*_OF_CONNECTORS, "a prefix hit", "a request comes back"),
    "real-engine/stages-v2": (
        "a stage is a batch late",
        "a step with rows behind a step in flight",
        "a prefix hit",
        "some drafts accepted, others rejected",
        "a request comes back",
    ),
}
"""By property, the situations that it is for: a run of a few hundred scenarios comes to each of them."""
REACHED: Final[Counter[str]] = Counter()
"""How many scenarios of this process have come to each situation."""


@dataclass
class Marks:
    """The situations that one scenario of an engine has come to so far; an event that belongs to no situation notes nothing."""

    seen: set[str] = field(default_factory=set, init=False)

    def note(self, name: str, holds: object = True) -> None:
        """The scenario has come to it."""
        if holds and name not in self.seen:
            self.seen.add(name)
            REACHED[name] += 1

    def adds(self, name: str, prompt: int) -> None:
        """A request with so many tokens comes in."""

    def aborts(self, name: str) -> None:
        """The client of a request goes away."""

    def resets(self) -> None:
        """The prefix cache is emptied."""

    def step(self, value: Record, alive: list[str]) -> None:
        """A step returned this; `alive` are the requests that had not ended before."""


@dataclass
class LiveMarks(Marks):
    """The situations of scenarios of an engine with blocks."""

    world: LiveWorld
    _prompts: dict[str, int] = field(default_factory=dict)
    _computed: dict[str, int] = field(default_factory=dict)
    _in_flight: bool = False

    def adds(self, name: str, prompt: int) -> None:
        self._prompts[name] = prompt

    def aborts(self, name: str) -> None:
        self.note("a request is aborted while it runs", name in self._computed)

    def resets(self) -> None:
        self.note("the prefix cache is emptied while requests run", self._computed)

    def step(self, value: Record, alive: list[str]) -> None:
        rows = {name: dict(row) for name, row in dict(value["scheduled"]).items()}
        self._batch(rows, alive, value)
        for name, row in rows.items():
            self._row(name, row)
        for name, said in dict(value["outputs"]).items():
            drafts = rows.get(name, {}).get("drafts", 0)
            self.note("some drafts accepted, others rejected", 1 < len(said) <= drafts)
        self._transfers(value, rows)
        for name in value["finished"]:
            self._computed.pop(name, None)
        self._in_flight = bool(rows)

    def _batch(self, rows: Mapping[str, Mapping[str, int]], alive: list[str], value: Record) -> None:
        world = self.world
        in_prompt = [name for name, row in rows.items() if row["computed"] < self._prompts.get(name, 0) - 1]
        self.note("a step with prompts and decodes", 0 < len(in_prompt) < len(rows))
        self.note("more rows in a step than usual", len(rows) > FEW_REQUESTS)
        running = [name for name in alive if name in self._computed or name in rows]
        waits = [name for name in alive if name not in running]
        self.note("a request waits for a row", waits and len(running) >= world.max_num_seqs)
        few = value["free"] < world.blocks_of_one - 1
        self.note(
            "a request waits for blocks while a row is free",
            waits and rows and few and len(running) < world.max_num_seqs,
        )
        self.note("no block is free", not value["free"])
        self.note("a running request is preempted for blocks", value["preempted"] and few)
        self.note("a stage is a batch late", world.stages > 1 and any(world.late_stages) and rows)
        self.note(
            "a step with rows behind a step in flight", world.async_scheduling and self._in_flight and rows
        )

    def _row(self, name: str, row: Mapping[str, int]) -> None:
        size, first, end = self.world.block_size, row["computed"], row["computed"] + row["tokens"]
        prompt, known = self._prompts.get(name, 0), name in self._computed
        if row["begins"]:
            self.note("a request comes back", known)
            self.note("a prefix hit", first and not known)
            self.note("a hit inside of a block", first % size and not known)
        elif known and first < prompt:
            self.note("a prompt in several steps")
            begun = self._computed[name]
            self.note(
                "a block that a prompt fills in several steps",
                self.world.prefix_caching
                and begun // size == first // size
                and first % size
                and first > begun,
            )
        self.note("more drafts in a row than usual", row["drafts"] > FEW_DRAFTS)
        self._computed[name] = first if end < prompt else end

    def _transfers(self, value: Record, rows: Mapping[str, object]) -> None:
        loaded = {name for _, _, name, _ in value["loaded"]}
        self.note("a block is loaded", loaded)
        self.note("a block is loaded in a step that runs another request", loaded and rows.keys() - loaded)
        self.note("a block is saved", value["saved"])
        self.note("a load fails", value["unloaded"])
