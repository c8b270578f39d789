"""What happened to recorded traffic, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ServedCounts:
    """What has happened; `declared_violations` are those of `violations` that are of declared defects."""

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
    computed_tokens: int = 0
    published: int = 0
    declared_violations: int = 0
