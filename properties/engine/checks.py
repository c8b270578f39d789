"""Holds the pools against the ledger: what has to be there, and that nothing else was written to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from oracle.lifecycle.ledger import Held, StateLedger
from properties.engine.flaws import Flaw, Violation
from properties.engine.metadata import StateAccess
from properties.engine.models import Model
from properties.engine.places import Mirror, StatePlace
from properties.engine.report import Words
from statecheck.case.failure import WrongBytes


@dataclass(eq=False)
class Checks:
    """Compares only what may have changed since the last time: promises, and bytes."""

    mirror: Mirror
    ledger: StateLedger
    model: Model
    words: Words
    _promised: dict[tuple[int, int], Held] = field(default_factory=dict)

    def written(
        self, pools: Mapping[str, bytes], writable: Collection[tuple[int, int]], when: str
    ) -> set[tuple[int, int]]:
        """I3: take over the pools; the (group, block) whose states are not what they were.

        Raises:
            Violation: a byte was written that is no state, or of a block that the step may not write.
        """
        touched = set()
        for (pool, block), at in self.mirror.seen(pools).items():
            for byte in at:
                owner = self._owner(pool, block, byte, writable)
                if owner is None and block:
                    seen = f"{when}, byte {byte} of block {block} in {pool} was written"
                    wanted = self._why(pool, block, byte, writable)
                    place = self.mirror.pages[pool] * block + byte
                    is_beside = not any(
                        self.mirror.is_state(pool, group, byte)
                        for group in range(self.mirror.world.num_groups)
                    )
                    wrong_bytes = WrongBytes(pool, place, belongs=self.words.belongs(block))
                    group = next((group for group, number in self.ledger.held if number == block), None)
                    raise Violation(
                        Flaw(
                            seen,
                            group,
                            block,
                            wrong_bytes=wrong_bytes,
                            wanted=wanted,
                            place="written",
                            rule="bytes beside states are written"
                            if is_beside
                            else "another block is written",
                        )
                    )
                touched.add((owner, block) if owner is not None else (0, block))
        return touched

    def _owner(self, pool: str, block: int, byte: int, writable: Collection[tuple[int, int]]) -> int | None:
        """The group that may write this byte. No request has the null block, but it may be written."""
        groups = range(self.mirror.world.num_groups)
        found = (
            group
            for group in groups
            if ((group, block) in writable or not block) and self.mirror.is_state(pool, group, byte)
        )
        return next(found, None)

    def _why(self, pool: str, block: int, byte: int, writable: Collection[tuple[int, int]]) -> str:
        groups = range(self.mirror.world.num_groups)
        if not any(self.mirror.is_state(pool, group, byte) for group in groups):
            return "is no part of a state"
        if any((group, block) in writable for group in groups):
            return "is no part of a state of its group"
        return self.words.owner(block)

    def promised(self, when: str, touched: Collection[tuple[int, int]] = ()) -> None:
        """I4 to I7: every block holds what the ledger says.

        Raises:
            Violation: one does not.
        """
        held = self.ledger.held
        for where, promise in held.items():
            if where in touched or self._promised.get(where) is not promise:
                group, block = where
                for place in self.mirror.of_group(group):
                    self._check(place, block, promise, when)
        self._promised = dict(held)

    def _check(self, place: StatePlace, block: int, promise: Held, when: str) -> None:
        """A state, or each row of a window, is that of the promised prefix."""
        if not place.window:
            prefixes = [] if promise.temporal is None else [promise.temporal]
            seen: tuple[bytes, ...] = (place.temporal(block),) * len(prefixes)
        elif promise.window is None:
            return
        else:
            prefixes = self.ledger.prefixes.last(promise.window.end, place.window + promise.window.newest)
            seen = place.rows(block, 0, len(prefixes))
        for row, (prefix, found) in enumerate(zip(prefixes, seen, strict=True)):
            right = self.model.right(place, prefix)
            if right is not None and found != right:
                raise Violation(self._flaw(place, block, found, prefix, when, row if place.window else None))

    def _flaw(
        self, place: StatePlace, block: int, found: bytes, prefix: int, when: str, row: int | None = None
    ) -> Flaw:
        holder = f"block {block}, {self.words.holder(place.group, block)}"
        part = f"row {row} of {place.label}" if row is not None else place.label
        source = self.words.source(place, found)
        return Flaw(
            f"{when}, {part} in {holder} = {self.words.bytes_of(place, found, source)}",
            place.group,
            block,
            wrong_bytes=self._wrong_bytes(place, block, row, found, prefix),
            wanted=f"should be {self.words.prefix(prefix, row=row is not None)}",
            place="stored",
            rule=f"{'a row' if row is not None else 'a state'} is stored",
        )

    def read(
        self, request: str, place: StatePlace, access: StateAccess, found: tuple[bytes, ...], prefix: int
    ) -> None:
        """I1: what a forward reads, there where its metadata send it, is the state after the prefix.

        Raises:
            Violation: it is not.
        """
        prefixes = self.ledger.prefixes.last(prefix, place.window) if place.window else [prefix]
        for row, (state, wanted) in enumerate(zip(found, prefixes, strict=False)):
            right = self.model.right(place, wanted)
            if right is not None and state != right:
                raise Violation(self._misread(request, place, access, row, state, wanted))

    def _misread(
        self, request: str, place: StatePlace, access: StateAccess, row: int, found: bytes, prefix: int
    ) -> Flaw:
        block = access.conv_block if place.window else access.temporal_block
        source = self.words.source(place, found)
        part = f"row {row} of the window of {place.label}" if place.window else place.label
        read = access.first_row + row if place.window else None
        return Flaw(
            f"the forward of {request} reads {part} from block {block}, {self.words.holder(place.group, block)} = "
            f"{self.words.bytes_of(place, found, source)}",
            place.group,
            block,
            wrong_bytes=self._wrong_bytes(place, block, read, found, prefix),
            wanted=f"should read {self.words.prefix(prefix, row=bool(place.window))}",
            place="read",
            rule=f"{'a row' if place.window else 'a state'} is read",
        )

    def _wrong_bytes(
        self, place: StatePlace, block: int, row: int | None, found: bytes, prefix: int
    ) -> WrongBytes:
        """The first byte of a state, or of a row of it, that is not what it should be."""
        right = self.model.right(place, prefix)
        assert right is not None
        at = next(at for at, pair in enumerate(zip(found, right, strict=True)) if pair[0] != pair[1])
        return WrongBytes(
            place.pool, self.mirror.offset(place, block, row, at), belongs=self.words.belongs(block)
        )
