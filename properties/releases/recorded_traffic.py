"""Recorded traffic in the Mooncake format: who arrives when, with how long a prompt, of which others have had which part.

One JSON object per line, {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}, where a hash id
stands for 512 tokens of the prompt, the last one for what is left of it. The format tells no tokens, only which blocks
are equal; the tokens made here are equal exactly where the blocks are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from statecheck.util.decode import Decoder, Misfit
from statecheck.util.files import parse_json

BLOCK = 512
"""Tokens of the recorded prompt that a hash id stands for."""


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

    Lengths are divided by `factor`, a divisor of 512, and rounded up, at least to 1; a hash id then stands for 512 // factor tokens. Even
    tokens tell hash id and position in the block, whole numbers without an upper bound; odd ones, where a prompt is
    longer than its hash ids cover, occur once in the trace.

    Raises:
        ValueError: while reading, a line that is no such object, or a trace without any.
    """
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


def summary(path: Path, factor: int, limit: int | None = None) -> TrafficSummary:
    """Totals of the requests of `arrivals`, for a header line.

    Raises:
        ValueError: as `arrivals`.
    """
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


_FIELDS = _Record.__dataclass_fields__


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
        fields = parse_json(line.decode(), "a request of the Mooncake format")
        if isinstance(fields, dict):
            fields = {name: value for name, value in fields.items() if name in _FIELDS}
        record: _Record = Decoder(check=_natural).decode(fields, _Record, "request")
        most = -(-record.input_length // BLOCK)
        if len(record.hash_ids) > most:
            rule = f"<= {most} for {record.input_length} tokens"
            raise Misfit("len(hash_ids)", len(record.hash_ids), rule)
    except ValueError as error:
        raise ValueError(f"{error} [{place}]") from error
    return record


def _natural(place: str, value: float) -> None:
    if value < 0:
        raise Misfit(place, value, ">= 0")
