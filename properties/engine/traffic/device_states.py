"""An engine whose states are those of a real model, in pools of any size on a device.

The subject gets the pools as they are. What an engine on the host compares byte by byte is asked of the device instead: whether
a state is the one of a prefix. The answers are looked at once per step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from oracle.lifecycle.blocks import NULL_BLOCK
from oracle.lifecycle.ledger import Held, StateLedger
from oracle.lifecycle.requests import ScheduledRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from properties.engine.driver import Engine, Sampler
from properties.engine.flaws import Flaw, Misled, Violation
from properties.engine.forward import Kernels, Touched
from properties.engine.metadata import ForwardBatch, StateAccess
from properties.engine.models import Fingerprints
from properties.engine.report.words import Words
from properties.engine.runners import Runner
from properties.engine.traffic.claims import Claim, LayerPools, Refuted, seed_of
from properties.engine.world import World
from properties.strategies.align.setup import Setup
from statecheck.case.values import Call, Let, Step, Value
from statecheck.execution.objects.blocks import Named, Scope
from statecheck.execution.port import InProcess
from subjects import Subject

_AT_ONCE = 128
"""Promises that are asked for together at the end of a run."""
_RECENT = 64
"""Prefixes of each request that a wrong state is held against, to say what it is."""


@dataclass(frozen=True)
class UnseenSetup(Setup):
    """A setup whose pools no call observes: gigabytes are not copied to look at them."""

    @property
    def pools(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class UnseenWorld(World):
    """A world whose layers are bound already."""

    def begin(self) -> list[Step]:
        steps = super().begin()
        return [step for step in steps if not (isinstance(step, Let) and step.name == "layers")]


class Direct(InProcess):
    """Hands the subject tensors of `layers` as they are, and waits for the device only where a call observes something."""

    def __init__(self, subject: Subject, device: str, layers: dict[str, list[torch.Tensor]]) -> None:
        super().__init__(subject, device)
        bound = {name: subject.construct("Layer", {"kv_cache": states}) for name, states in layers.items()}
        self._builder.names["layers"] = Named(bound, Scope())

    def _wait(self) -> None:
        """What has been started goes on."""

    def _traces(self, call: Call, scope: Scope) -> tuple[tuple[str, ...], tuple[tuple[str, Value], ...]]:  # noqa: ARG002 - memory that is not observed is not looked at
        if call.observes:
            super()._wait()
        return (), tuple(
            (name, self._describer.observed(self._builder.names, name)) for name in call.observes
        )


@dataclass(eq=False)
class DeviceForward(Kernels):
    """The forward of every layer, on a device: it claims what it reads and writes what would be right."""

    cache: LayerPools
    ledger: StateLedger
    words: Words

    def run(
        self, batch: ForwardBatch, runner: Runner, writable: Touched
    ) -> tuple[dict[str, list[int]], Touched]:
        try:
            found = self.accesses(batch, runner)
            claims = [
                one
                for row in batch.rows
                for n, group in enumerate(found)
                for one in self._reads(row, group[row.id], n)
            ]
        except Misled as error:
            raise Violation(error.flaw) from error
        self.cache.pools.claim(claims)
        self.cache.pools.compare()
        touched = set[tuple[int, int]]()
        for number, group in enumerate(found):
            touched |= self._write(batch, number, group, writable)
        return {row.id: [0] * row.length for row in batch.rows}, touched

    def _reads(self, row: ScheduledRequest, access: StateAccess, group: int) -> Iterator[Claim]:
        before = self.ledger.prefixes.parent(row.prefixes[0])
        if not access.initial:
            if row.computed:
                seen, wanted = f"the forward of {row.id} starts from zeros", self.words.prefix(before)
                raise Violation(Flaw(seen, group, wanted=f"should read {wanted}", place="read"))
            return
        self._check_blocks(row, access)
        when = f"read by the forward of {row.id}"
        yield Claim(group, access.temporal_block, None, before, when)
        for offset, prefix in enumerate(self.ledger.prefixes.last(before, self.cache.window)):
            yield Claim(group, access.conv_block, access.first_row + offset, prefix, when)

    def _check_blocks(self, row: ScheduledRequest, access: StateAccess) -> None:
        for block in (access.conv_block, access.temporal_block):
            if not row.computed:
                raise Misled(
                    f"the forward of {row.id} reads block {block}",
                    wanted="should start from zeros at its first token",
                    place="first token",
                )
            if not NULL_BLOCK < block < self.world.num_blocks:
                seen = f"the forward of {row.id} reads block {block}"
                raise Misled(seen, wanted="should read one of its own", place="read")
        if self.cache.window and access.first_row + self.cache.window > self.cache.num_rows:
            raise Misled(
                f"the forward of {row.id} reads rows from {access.first_row} on, behind those of the block",
                place="read",
            )

    def _write(
        self, batch: ForwardBatch, group: int, found: dict[str, StateAccess], writable: Touched
    ) -> Touched:
        temporal, rows = {}, {}
        for row in batch.rows:
            access = found[row.id]
            temporal.update({block: row.prefixes[index] for block, index in access.temporal})
            before = self.ledger.prefixes.last(
                self.ledger.prefixes.parent(row.prefixes[0]), self.cache.window
            )
            inputs = (*before, *row.prefixes)
            for block, index, newest in access.windows:
                kept = inputs[index + 1 : index + 1 + self.cache.window + newest]
                rows.update({(block, number): prefix for number, prefix in enumerate(kept)})
            self._check_owned(row, access, group, writable)
        self._store(group, temporal, rows)
        return {(group, block) for block in temporal if block > NULL_BLOCK}

    def _check_owned(self, row: ScheduledRequest, access: StateAccess, group: int, writable: Touched) -> None:
        for block in (*(block for block, _ in access.temporal), *(block for block, _, _ in access.windows)):
            if block > NULL_BLOCK and (group, block) not in writable:
                what = (
                    f"the forward of {row.id} writes to block {block} of group {group}, which is not its own"
                )
                raise Violation(Flaw(what, group, block, place="written"))

    def _store(self, group: int, temporal: dict[int, int], rows: dict[tuple[int, int], int]) -> None:
        """Write states by block, and conv rows by block and row; the null block is never written."""
        states = {block: seed_of(prefix) for block, prefix in temporal.items() if block > NULL_BLOCK}
        self.cache.pools.write_temporal(group, list(states), list(states.values()))
        if self.cache.window:
            inputs = {place: seed_of(prefix) for place, prefix in rows.items() if place[0] > NULL_BLOCK}
            blocks, numbers = [block for block, _ in inputs], [number for _, number in inputs]
            self.cache.pools.write_rows(group, blocks, numbers, list(inputs.values()))


@dataclass(eq=False)
class DeviceEngine(Engine):
    """An engine whose states are in `cache`. Its `execute` is a `Direct`'s, its world an `UnseenWorld`."""

    cache: LayerPools = field(kw_only=True)

    def _set_up_states(self) -> None:
        self.words = Words(self.scheduler, self.ledger, Fingerprints(()))
        self.forward = DeviceForward(self.world, self.cache, self.ledger, self.words)
        self._promised: dict[tuple[int, int], Held] = {}
        self._is_written = False

    def _lose(self, scheduled: Scheduled) -> None:
        self.ledger.lose(scheduled.lost)
        self.cache.poison(scheduled.lost)
        self._is_written = False
        for row in (row for row in scheduled.rows if row.hit):
            places = [(group, blocks[row.hit - 1]) for group, blocks in enumerate(row.new_blocks)]
            self.cache.pools.claim(self._claims(places, f"hit by {row.id}"))

    def _write_pools(self) -> None:
        """Forwards have written to the pools themselves."""

    def _check(
        self,
        pools: Mapping[str, bytes] | None,  # noqa: ARG002 - gigabytes are not looked at
        writable: set[tuple[int, int]],  # noqa: ARG002 - as above; what a stray copy breaks is found where it is read
        when: str,
        touched: set[tuple[int, int]] | None = None,
    ) -> None:
        """Claim what is promised anew, but not what the forward has written itself just now."""
        if touched is None:
            new = [place for place, held in self.ledger.held.items() if self._promised.get(place) is not held]
            self.cache.pools.claim(self._claims(new, when))
        self._is_written = self._is_written or touched is not None
        self._promised = dict(self.ledger.held)

    def _claims(self, places: Iterable[tuple[int, int]], when: str) -> Iterator[Claim]:
        for group, block in places:
            held = self.ledger.held[group, block]
            if held.temporal is not None:
                yield Claim(group, block, None, held.temporal, when, self._is_written)
            if held.window is not None:
                inputs = self.ledger.prefixes.last(held.window.end, self.cache.window + held.window.newest)
                for row, prefix in enumerate(inputs if self.cache.window else ()):
                    yield Claim(group, block, row, prefix, when, self._is_written)

    def _execute(self, batch: ForwardBatch, scheduled: Scheduled, sampler: Sampler) -> dict[str, list[int]]:
        sampled = super()._execute(batch, scheduled, sampler)
        self.settle()
        return sampled

    def check_everything(self) -> None:
        places = list(self.ledger.held)
        for start in range(0, len(places), _AT_ONCE):
            self.cache.pools.claim(self._claims(places[start : start + _AT_ONCE], "at the end"))
            self.settle()

    def settle(self) -> None:
        """Raises Violation if one of the claims since the last time is not true."""
        refuted = self.cache.pools.refuted()
        if refuted is not None:
            raise Violation(self._flaw(refuted))

    def _flaw(self, refuted: Refuted) -> Flaw:
        claim, layer, state = refuted
        kind = "temporal state" if claim.row is None else f"row {claim.row} of the conv state"
        source = self.cache.pools.meaning(refuted, self._recent()) if claim.stays else None
        there = "another one" if source is None else self.words.prefix(source, row=claim.row is not None)
        seen = (
            f"in step {self.steps}, {claim.when}, {kind} {state} of layer {layer} in block {claim.block}, "
            f"{self.words.holder(claim.group, claim.block)} = {there}"
        )
        wanted = f"should be {self.words.prefix(claim.prefix, row=claim.row is not None)}"
        return Flaw(seen, claim.group, claim.block, source, wanted=wanted, place="stored")

    def _recent(self) -> list[int]:
        """Prefixes that a wrong state may be of: the empty one, and the last ones of all that are promised and of requests."""
        lately = [prefix for request in self.scheduler.running for prefix in request.prefixes[-_RECENT:]]
        held = [one.temporal for one in self.ledger.held.values() if one.temporal is not None]
        return list(dict.fromkeys((0, *lately, *held)))
