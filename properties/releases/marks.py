"""Situations that scenarios of engines come to, by what their steps returned; each configuration of a law is for some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from properties.strategies.releases.live import FEW_DRAFTS, FEW_REQUESTS, LiveWorld
from properties.strategies.releases.radix import RadixWorld
from statecheck.case.values import Record

LOADED = "a block is loaded"
SAVED = "a block is saved"
BEHIND_A_LOAD = "a request begins behind a load"
STAGE = "a stage is a batch late"
SLID = "a block before the window is freed while its request runs"
IN_FLIGHT = "a step with rows behind a step in flight"
HIT = "a request begins behind a hit"
PAGES = "a request begins behind a hit of several pages"
PASSED = "a prefill passes the end of a page inside of a step"
BOUNDARY = "a decode passes a boundary"
BESIDE = "a decode passes a boundary right behind a step with a prefill"
CAPPED = "a request passes three boundaries"
FULL = "no slot of states is free while slots of keys are"
REPLAYS = "a decode behind another decode"
MIXED = "a decode runs in one batch with a prefill"
GRID = "a row of a prefill begins inside of a chunk of the batch"
AGAIN = "a request that ran begins again"
ACCEPTED = "drafts are accepted"
SOME = "some drafts are accepted and others rejected"
SEVERAL = "accepted drafts pass a boundary"
HOST = "a request begins behind a state that only host memory had"
SLEPT = "memory is lost, or weights are other ones, while requests run"
STORED = "a request begins behind a state that came from a storage"
UNREAD = "a read of the storage fails"
STOPPED = "a request ends by its stop token"
BATCH = "several requests run in a step"


@dataclass
class Marks:
    """The situations that one scenario of an engine has come to so far; an event that belongs to no situation notes nothing."""

    seen: set[str] = field(default_factory=set, init=False)

    def note(self, name: str, holds: object = True) -> None:
        """The scenario has come to it."""
        if holds:
            self.seen.add(name)

    def adds(self, name: str, prompt: int) -> None:
        """A request with so many tokens comes in."""

    def aborts(self, name: str) -> None:
        """The client of a request goes away."""

    def resets(self) -> None:
        """The prefix cache is emptied."""

    def updates(self) -> None:
        """The model got other weights."""

    def sleeps(self, level: int) -> None:
        """The engine sleeps at this level, and wakes."""

    def step(self, value: Record, alive: list[str]) -> None:
        """A step returned this; `alive` are the requests that had not ended before."""


@dataclass
class LiveMarks(Marks):
    """The situations of scenarios of an engine with blocks."""

    world: LiveWorld
    _prompts: dict[str, int] = field(default_factory=dict)
    _computed: dict[str, int] = field(default_factory=dict)
    _in_flight: bool = False
    _loaded: set[str] = field(default_factory=set)
    _accepted: set[str] = field(default_factory=set)
    _columns: dict[str, int] = field(default_factory=dict)
    """By request, the first column of sliding windows in which it has a block."""

    def adds(self, name: str, prompt: int) -> None:
        self._prompts[name] = prompt

    def aborts(self, name: str) -> None:
        self.note("a request is aborted while it runs", name in self._computed)

    def resets(self) -> None:
        self.note("the prefix cache is emptied while requests run", self._computed)

    def updates(self) -> None:
        self.note("the model gets other weights while requests run", self._computed)

    def sleeps(self, level: int) -> None:
        self.note("the engine sleeps and loses its caches while requests run", level and self._computed)

    def step(self, value: Record, alive: list[str]) -> None:
        rows = {name: dict(row) for name, row in dict(value["scheduled"]).items()}
        self._batch(rows, alive, value)
        for name, row in rows.items():
            self._row(name, row)
        for name, said in dict(value["outputs"]).items():
            drafts = rows.get(name, {}).get("drafts", 0)
            self.note("some drafts accepted, others rejected", 1 < len(said) <= drafts)
            self._accepted = self._accepted | {name} if len(said) > 1 else self._accepted - {name}
        loaded = {name for _, _, name, _ in value["loaded"]}
        self.note(LOADED, loaded)
        self.note("a block is loaded in a step that runs another request", loaded and rows.keys() - loaded)
        self.note(SAVED, value["saved"])
        self._loaded |= loaded
        begins = {name for name, row in rows.items() if row["begins"]}
        self.note(BEHIND_A_LOAD, self._loaded & begins)
        self._loaded -= begins
        self.note("a load fails", value["unloaded"])
        for name in value["finished"]:
            self._computed.pop(name, None)
        self._in_flight = bool(rows)

    def _batch(self, rows: Mapping[str, Mapping[str, int]], alive: list[str], value: Record) -> None:
        world = self.world
        in_prompt = [name for name, row in rows.items() if row["computed"] < self._prompts.get(name, 0) - 1]
        self.note(MIXED, 0 < len(in_prompt) < len(rows))
        self.note("more rows in a step than usual", len(rows) > FEW_REQUESTS)
        running = [name for name in alive if name in self._computed or name in rows]
        waits = [name for name in alive if name not in running]
        left_out = [
            one for one in running if one not in rows and self._computed[one] > self._prompts.get(one, 0)
        ]
        self.note("a decode is left out of a step with others", rows and left_out)
        self.note("a request waits for a row", waits and len(running) >= world.max_num_seqs)
        few = value["free"] < world.blocks_of_a_request - 1
        self.note(
            "a request waits for blocks while a row is free",
            waits and rows and few and len(running) < world.max_num_seqs,
        )
        self.note("no block is free", not value["free"])
        self.note("a running request is preempted for blocks", value["preempted"] and few)
        self.note(STAGE, world.stages > 1 and any(world.late_stages) and rows)
        self.note(IN_FLIGHT, world.async_scheduling and self._in_flight and rows)
        columns: dict[str, int] = {}
        for name, group, column, _ in value["owners"]:
            if group > len(world.kinds):
                columns[name] = min(column, columns.get(name, column))
        self.note(SLID, any(column > self._columns.get(name, column) for name, column in columns.items()))
        self._columns = columns

    def _row(self, name: str, row: Mapping[str, int]) -> None:
        size, first, end = self.world.block_size, row["computed"], row["computed"] + row["tokens"]
        prompt, known = self._prompts.get(name, 0), name in self._computed
        if row["begins"]:
            self.note("a request comes back", known)
            self.note(HIT, first and not known)
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
        self.note(REPLAYS, known and not row["begins"] and first > prompt)
        self.note("more drafts in a row than usual", row["drafts"] > FEW_DRAFTS)
        self.note(
            "a decode without drafts behind accepted drafts",
            known and first >= prompt and not row["drafts"] and name in self._accepted,
        )
        self.note(
            "a chunk ends before an item", end < prompt and end in [offset for offset, _ in self.world.items]
        )
        self._computed[name] = first if end < prompt else end


# The group of states among the groups of slots, and the first slot of host memory.
_STATES, _HOST = 1, 1000


@dataclass
class RadixMarks(Marks):
    """The situations of scenarios of an engine with a radix tree.

    `stops` has by request the number of the token that it says that is its stop token; requests that come in later are added to it.
    """

    world: RadixWorld
    stops: Mapping[str, int]
    _said: Counter[str] = field(default_factory=Counter)
    _begun: set[str] = field(default_factory=set)
    _passed: Counter[str] = field(default_factory=Counter)
    _prefilled: bool = False
    _published: tuple[tuple[int, int, str, int], ...] = ()
    _loaded: set[int] = field(default_factory=set)
    _running: set[str] = field(default_factory=set)

    def updates(self) -> None:
        self.note(SLEPT, self._running)

    def sleeps(self, level: int) -> None:
        self.note(SLEPT, level and self._running)

    def step(self, value: Record, alive: list[str]) -> None:  # noqa: ARG002 - of other engines
        self._loaded |= {*dict(value.fields).get("loaded", ())}
        self.note(UNREAD, dict(value.fields).get("failed_reads"))
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
        self._running = (self._running | rows.keys()) - {*value["finished"]}
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
            self.note(AGAIN, name in self._begun)
            self.note(STORED, first in self._loaded)
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
        self.note(ACCEPTED, accepted > 1)
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
