"""Recorded traffic in the Mooncake format: who arrives when, with how long a prompt, of which others have had which part.

One JSON object per line, {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}, where a hash id
stands for 512 tokens of the prompt, the last one for what is left of it. The format tells no tokens, only which blocks
are equal; the tokens made here are equal exactly where the blocks are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

BLOCK = 512
"""Tokens of the recorded prompt that a hash id stands for."""
_LENGTHS = ("timestamp", "input_length", "output_length")


@dataclass(frozen=True)
class Arrival:
    """A request: the how-manieth it is, from 0, when it arrives in milliseconds, and what it asks for."""

    number: int
    timestamp: int
    prompt: tuple[int, ...]
    output_length: int


@dataclass(frozen=True)
class TrafficSummary:
    """Traffic in numbers; `tokens_seen` are those prompt tokens whose hash id an earlier request has had."""

    requests: int
    tokens_in: int
    tokens_out: int
    tokens_seen: int

    @property
    def share_seen(self) -> float:
        """The part of all prompt tokens that a prefix cache without limits would have, from 0 to 1."""
        return self.tokens_seen / self.tokens_in


def arrivals(path: Path, *, factor: int, limit: int | None = None) -> Iterator[Arrival]:
    """The requests of the trace in the order of its lines, read as they are asked for; at most `limit` of them.

    Lengths are divided by `factor` and rounded up, at least to 1; a hash id then stands for 512 // factor tokens. Even
    tokens tell hash id and position in the block, whole numbers without an upper bound; odd ones, where a prompt is
    longer than its hash ids cover, occur once in the trace.

    Raises:
        ValueError: `factor` does not divide 512, `limit` is below 1; while reading, a line that is no such object, or
            a trace without any.
    """
    _check(factor, limit)
    return _arrivals(path, factor, limit)


def summary(path: Path, factor: int, limit: int | None = None) -> TrafficSummary:
    """What `arrivals` yields, in numbers for a header line.

    Raises:
        ValueError: as `arrivals`.
    """
    _check(factor, limit)
    requests = tokens_in = tokens_out = tokens_seen = 0
    known: set[int] = set()
    for record in _records(path, limit):
        requests += 1
        tokens_in += _scaled(record.input_length, factor)
        tokens_out += _scaled(record.output_length, factor)
        tokens_seen += sum(size for hash_id, size in _blocks(record, factor) if hash_id in known)
        known.update(record.hash_ids)
    return TrafficSummary(requests, tokens_in, tokens_out, tokens_seen)


@dataclass(frozen=True)
class _Record:
    timestamp: int
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def _check(factor: int, limit: int | None) -> None:
    if factor < 1 or BLOCK % factor:
        raise ValueError(f"factor = {factor}, but should be a divisor of {BLOCK} [arrivals]")
    if limit is not None and limit < 1:
        raise ValueError(f"limit = {limit}, but should be >= 1 or None [arrivals]")


def _arrivals(path: Path, factor: int, limit: int | None) -> Iterator[Arrival]:
    unshared = count(1, 2)
    for number, record in enumerate(_records(path, limit)):
        prompt = [
            2 * (hash_id * (BLOCK // factor) + position)
            for hash_id, size in _blocks(record, factor)
            for position in range(size)
        ]
        prompt.extend(islice(unshared, _scaled(record.input_length, factor) - len(prompt)))
        output_length = _scaled(record.output_length, factor)
        yield Arrival(number, record.timestamp, tuple(prompt), output_length)


def _scaled(length: int, factor: int) -> int:
    return max(1, -(-length // factor))


def _blocks(record: _Record, factor: int) -> Iterator[tuple[int, int]]:
    """Each hash id with the number of prompt tokens that it stands for after scaling."""
    size, left = BLOCK // factor, _scaled(record.input_length, factor)
    for hash_id in record.hash_ids:
        yield hash_id, min(size, left)
        left -= min(size, left)


def _records(path: Path, limit: int | None) -> Iterator[_Record]:
    nothing = True
    with path.open("rb") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        for number, line in islice(lines, limit):
            nothing = False
            yield _record(line, f"{path.name}, line {number}")
    if nothing:
        raise ValueError(f"trace = 0 requests, but should be at least 1 [{path}]")


def _record(line: bytes, place: str) -> _Record:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise _refused("line", line, "a JSON object", place) from None
    if not isinstance(fields, dict):
        raise _refused("line", fields, "a JSON object", place)
    timestamp, input_length, output_length = (_number(fields, name, place) for name in _LENGTHS)
    return _Record(timestamp, input_length, output_length, _hash_ids(fields, input_length, place))


def _number(fields: dict[str, Any], name: str, place: str) -> int:
    if name not in fields:
        raise _refused(name, None, "there", place)
    return _natural(name, fields[name], place)


def _hash_ids(fields: dict[str, Any], input_length: int, place: str) -> tuple[int, ...]:
    if "hash_ids" not in fields:
        raise _refused("hash_ids", None, "there", place)
    listed, most = fields["hash_ids"], -(-input_length // BLOCK)
    if not isinstance(listed, list):
        raise _refused("hash_ids", listed, "a list of ints", place)
    if len(listed) > most:
        raise _refused("len(hash_ids)", len(listed), f"<= {most} for {input_length} tokens", place)
    return tuple(_natural(f"hash_ids[{i}]", hash_id, place) for i, hash_id in enumerate(listed))


def _natural(name: str, value: object, place: str) -> int:
    # JSON's true is an int to Python.
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _refused(name, value, "an int >= 0", place)
    return value


def _refused(name: str, value: object, rule: str, place: str) -> ValueError:
    return ValueError(f"{name} = {value!r:.60}, but should be {rule} [{place}]")
