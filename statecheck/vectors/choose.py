"""Which of the recorded calls are kept: few of each function, and as different from each other as possible."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from statecheck.execution.registry import Property
from statecheck.vectors.record import RecordedCall
from statecheck.vectors.topics import FUNCTIONS, parts_of
from statecheck.vectors.values import Blob, NotPlain

LEAST, MOST = 8, 16
"""Vectors of a function, as far as that many different ones came up; more only where each reaches another mark."""
LARGEST = 96 * 1024
"""Bytes of tensors that one vector may have."""


@dataclass(frozen=True)
class Vector:
    """One call and what is expected of it; `tested` is the property that made it first."""

    function: str
    tested: str
    sentence: str
    marks: tuple[str, ...]
    environment: dict[str, str]
    arguments: dict[str, Any]
    expected: dict[str, Any]

    @property
    def id(self) -> str:
        """The same for the same call, whatever else there is."""
        called = json.dumps([self.function, self.environment, _keys(self.arguments)], sort_keys=True)
        return hashlib.sha256(called.encode()).hexdigest()[:12]

    @property
    def size(self) -> int:
        """Bytes in blobs, and characters of everything else."""
        content = [self.arguments, self.expected]
        return len(json.dumps(_keys(content))) + sum(len(one.raw) for one in blobs(content))


def blobs(data: Any) -> Iterator[Blob]:
    """The blobs in JSON data."""
    if isinstance(data, Blob):
        yield data
    elif isinstance(data, (dict, list)):
        for item in data.values() if isinstance(data, dict) else data:
            yield from blobs(item)


def in_place_of_blobs(data: Any, of: Callable[[Blob], Any]) -> Any:
    """The data with something else in the place of each blob."""
    if isinstance(data, dict):
        return {name: in_place_of_blobs(item, of) for name, item in data.items()}
    if isinstance(data, list):
        return [in_place_of_blobs(item, of) for item in data]
    return of(data) if isinstance(data, Blob) else data


def _keys(data: Any) -> Any:
    return in_place_of_blobs(data, lambda blob: blob.key)


@dataclass
class Recording:
    """Different vectors, by function and in the order in which they came up."""

    found: dict[str, dict[str, Vector]] = field(default_factory=dict)

    def note(self, tested: Property, asked: RecordedCall) -> None:
        """Keep a call that has a form outside of this harness, unless it has been kept."""
        if asked.function not in FUNCTIONS:
            return
        try:
            arguments, expected = parts_of(asked)
        except NotPlain:
            return
        marks, environment = tuple(sorted(asked.marks)), dict(asked.call.environment)
        names = asked.function, tested.name, tested.sentence
        vector = Vector(*names, marks, environment, arguments, expected)
        if vector.size <= LARGEST:
            held = self.found.setdefault(asked.function, {}).setdefault(vector.id, vector)
            assert held.expected == expected, (
                f"{asked.call} and another call have the same form, but expect different things"
            )

    def chosen(self) -> list[Vector]:
        """Those that are kept, by topic, function and how they came up."""
        kept = (chosen(self.found[name].values()) for name in FUNCTIONS if name in self.found)
        return [vector for vectors in kept for vector in vectors]


def chosen(candidates: Iterable[Vector]) -> list[Vector]:
    """Of one function: all that reach a mark or a refusal first, other combinations of marks, the extremes, and some more."""
    every = list(candidates)
    kept = dict.fromkeys(_first_of_their_kind(every))
    for index in _other_combinations(every):
        if len(kept) < MOST:
            kept[index] = None
    by_size = sorted(range(len(every)), key=lambda index: every[index].size)
    kept |= dict.fromkeys((by_size[0], by_size[-1]))
    for index in by_size[:: max(1, len(every) // LEAST)]:
        if len(kept) < LEAST:
            kept[index] = None
    return [every[index] for index in sorted(kept)]


def _first_of_their_kind(every: list[Vector]) -> Iterator[int]:
    seen: set[str] = set()
    for index, one in enumerate(every):
        new = {_refusal(one), *one.marks} - seen
        seen |= new
        if new:
            yield index


def _refusal(one: Vector) -> str:
    """What is refused, wherever in the argument it stands."""
    return re.sub(r"\d+", "", json.dumps(one.expected.get("refused")))


def _other_combinations(every: list[Vector]) -> Iterator[int]:
    seen: set[tuple[str, ...]] = set()
    for index, one in enumerate(every):
        if one.marks not in seen:
            yield index
        seen.add(one.marks)
