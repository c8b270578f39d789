"""Says in words what bytes are, which prefix they stand for, and whose a block is."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.lifecycle.ledger import StateLedger
from oracle.lifecycle.scheduler import Scheduler
from properties.engine.models import Fingerprints, Model
from properties.engine.places import StatePlace
from properties.engine.world import NEVER

_SHOWN = 8


def tokens(count: int) -> str:
    """So many tokens."""
    return "1 token" if count == 1 else f"{count} tokens"


@dataclass(eq=False)
class Words:
    """The vocabulary of violations."""

    scheduler: Scheduler
    ledger: StateLedger
    model: Model

    def prefix(self, prefix: int, *, row: bool = False) -> str:
        """A prefix by its number of tokens, and a request that has it."""
        count = self.scheduler.prefixes.length(prefix)
        if not count:
            return "zeros, as before the first token"
        request = self._request_with(prefix)
        return (
            f"that of the last of {tokens(count)} of {request}"
            if row
            else f"the state after {tokens(count)} of {request}"
        )

    def _request_with(self, prefix: int) -> str:
        count = self.scheduler.prefixes.length(prefix)
        for request in self.scheduler.requests.values():
            if count < len(request.prefixes) and request.prefixes[count] == prefix:
                return request.id
        return self._drafting(prefix)

    def _drafting(self, prefix: int) -> str:
        """The request whose drafts the prefix ends with."""
        ancestor = prefix
        while ancestor:
            ancestor = self.scheduler.prefixes.parent(ancestor)
            count = self.scheduler.prefixes.length(ancestor)
            for request in self.scheduler.requests.values():
                if count < len(request.prefixes) and request.prefixes[count] == ancestor:
                    return f"{request.id} and its drafts"
        return "no request"

    def source(self, place: StatePlace, found: bytes) -> int | None:
        """The prefix whose state these bytes are, in any layer."""
        if not isinstance(self.model, Fingerprints):
            return None
        return self.model.meaning(place, found)

    def bytes_of(self, place: StatePlace, found: bytes, source: int | None) -> str:
        if source:
            return self.prefix(source, row=bool(place.window))
        if not any(found):
            return "zeros"
        if set(found) == {NEVER}:
            return "memory that was never written"
        shown = found[:_SHOWN].hex(" ")
        return f"{shown}{' ...' if len(found) > _SHOWN else ''}, which is no state"

    def holder(self, group: int, block: int) -> str:
        """Which column of which request a block is."""
        found = [f"column {column} of {request}" for request, column in self._holders(group, block)]
        return " and ".join(found) or "which the prefix cache has"

    def _holders(self, group: int, block: int) -> list[tuple[str, int]]:
        return [
            (request, table[group].index(block))
            for request, table in self.ledger.tables.items()
            if block in table[group] and self._holds(request, group, block)
        ]

    def _holds(self, request: str, group: int, block: int) -> bool:
        lists = self.scheduler.requests[request].lists
        return group < len(lists) and block in lists[group].columns

    def belongs(self, block: int) -> str:
        """Whose a block is, and why."""
        for group in range(self.scheduler.geometry.num_groups):
            holders = self._holders(group, block)
            if holders:
                requests = " and ".join(request for request, _ in holders)
                columns = " and ".join(f"column {column} of {request}" for request, column in holders)
                return f"block {block} belongs to {requests}, because it stands in {columns}"
        return f"block {block} {self.owner(block)}"

    def owner(self, block: int) -> str:
        """Whose a block is that was written to, although no request of this step may write it."""
        for group in range(self.scheduler.geometry.num_groups):
            holder = self.holder(group, block)
            if not holder.startswith("which"):
                known = block in self.scheduler.pool.registered
                return f"is {holder}{', which the prefix cache has published' if known else ''}"
        if block in self.scheduler.pool.registered:
            return "is published by the prefix cache, and held by no request"
        return "is free"
