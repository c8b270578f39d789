"""What happened to recorded traffic, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.lifecycle.ledger import StateLedger
from oracle.lifecycle.requests import ScheduledRequest


@dataclass
class ServedCounts:
    """What has happened in any engine that serves recorded traffic."""

    arrived: int = 0
    finished: int = 0
    steps: int = 0
    drafts: int = 0
    accepted: int = 0
    sampled: int = 0
    hits: int = 0
    hit_tokens: int = 0
    preemptions: int = 0
    resumptions: int = 0
    evictions: int = 0
    violations: int = 0


@dataclass
class TrafficCounts(ServedCounts):
    """And around functions. `moved_before` and `moved_after` are requests whose state has to be copied around a forward."""

    prompt_tokens: int = 0
    decoded_tokens: int = 0
    wished_preemptions: int = 0
    boundaries: int = 0
    moved_before: int = 0
    moved_after: int = 0
    states_moved: int = 0


@dataclass
class ReleaseCounts(ServedCounts):
    """And in a release's own engine. `declared_violations` are those of `violations` that are of declared defects."""

    computed_tokens: int = 0
    published: int = 0
    declared_violations: int = 0


@dataclass(frozen=True)
class Moves:
    """Whether a state goes to another column before a forward; the column whose end is passed, and whether its state goes there."""

    before: bool
    boundary: int | None
    after: bool


def moves_of(ledger: StateLedger, row: ScheduledRequest, columns: Mapping[str, int], accepted: int) -> Moves:
    """What a step moves of a request, which was in these columns before it. See I6 and I7 of the ledger."""
    size = ledger.geometry.block_size
    comes_in = row.is_new or row.is_resumed
    source = ledger.column_of(row.computed) if comes_in else columns[row.id]
    running = ledger.column_of(row.end)
    first = row.end - len(row.drafts)
    boundary = (first + accepted - 1) // size * size
    if boundary < first:
        return Moves(source not in (-1, running), None, False)
    column = boundary // size - 1
    return Moves(source not in (-1, running), column, (boundary, column) != (first, running))
