"""Recurrent states that tell how many tokens are behind them, and the forwards that write them.

A temporal state is a fingerprint of the request and of the number of its tokens; a conv state has a row for each of
the last tokens, a fingerprint of the request and of the token's position. Zero tokens have states of zeros, and so
have tokens before the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from properties.strategies.align.cache import Cache, pattern
from statecheck.case.values import Let, Overwrite, Step, View


@dataclass(frozen=True)
class PooledState:
    """One state of one layer: its group, its pool and its number in the layer."""

    group: int
    pool: str
    number: int


def places(cache: Cache) -> Iterator[PooledState]:
    """The states of all layers."""
    for _, group, pool in cache.setup.named_layers():
        for number in range(len(cache.setup.groups[group].states)):
            yield PooledState(group, pool, number)


@dataclass(frozen=True)
class Recurrence:
    """The states of a cache's requests."""

    cache: Cache

    def rows(self, place: PooledState) -> int:
        """Tokens in a conv window, K - 1; 0 of a temporal state."""
        state = self._state(place)
        if state.kind == "temporal":
            return 0
        return self._stored(place) - self.cache.setup.num_spec

    def _state(self, place: PooledState):  # type: ignore[no-untyped-def]
        return self.cache.setup.groups[place.group].states[place.number]

    def _stored(self, place: PooledState) -> int:
        """Conv rows of a block."""
        shape: tuple[int, ...] = self._state(place).shape
        return shape[0] if self.cache.setup.layout == "SD" else shape[1]

    def temporal(self, place: PooledState, request: int, tokens: int) -> bytes:
        """The state after that many tokens."""
        size = self._state(place).nbytes
        return pattern(1, f"{place} {request} {tokens}", size) if tokens else bytes(size)

    def window(self, place: PooledState, request: int, tokens: Iterable[int]) -> list[bytes]:
        """Conv rows of these tokens, in memory order of one block: a row each, or in layout DS a channel each."""
        state = self._state(place)
        item = state.itemsize
        channels = state.shape[1] if self.cache.setup.layout == "SD" else state.shape[0]
        rows = [self._row(place, request, token, channels * item) for token in tokens]
        if self.cache.setup.layout == "SD":
            return rows
        return _transposed(rows, item)

    def _row(self, place: PooledState, request: int, token: int, size: int) -> bytes:
        return pattern(1, f"{place} {request} token {token}", size) if token >= 0 else bytes(size)

    def written(
        self, place: PooledState, request: int, column: int, tokens: int, newest: int = 0
    ) -> Iterator[Step]:
        """Write the state after `tokens` tokens; of a conv state the rows of `newest` further tokens behind it."""
        block = self.cache.block(place.group, request, column)
        start = (
            block * self.cache.page(place.pool) + self.cache.setup.groups[place.group].offsets[place.number]
        )
        if not self.rows(place):
            yield from _bytes_at(place.pool, start, [self.temporal(place, request, tokens)], 1)
            return
        lines = self.window(place, request, range(tokens - self.rows(place), tokens + newest))
        apart = (
            len(lines[0])
            if self.cache.setup.layout == "SD"
            else self._stored(place) * self._state(place).itemsize
        )
        yield from _bytes_at(place.pool, start, lines, apart)

    def read(
        self, place: PooledState, request: int, column: int, offset: int, pools: dict[str, bytes]
    ) -> bytes:
        """What a forward reads that runs in `column` and applies `offset` tokens that lie behind its first state."""
        conv = self.rows(place) > 0
        block = self.cache.block(place.group, request, column if conv else column + offset)
        start = (
            block * self.cache.page(place.pool) + self.cache.setup.groups[place.group].offsets[place.number]
        )
        state = self._state(place)
        found = pools[place.pool][start : start + state.nbytes]
        if not conv:
            return found
        if self.cache.setup.layout == "SD":
            line = state.nbytes // self._stored(place)
            return found[offset * line : (offset + self.rows(place)) * line]
        line, first, end = (
            n * state.itemsize for n in (self._stored(place), offset, offset + self.rows(place))
        )
        return b"".join(found[at + first : at + end] for at in range(0, len(found), line))

    def right(self, place: PooledState, request: int, tokens: int) -> bytes:
        """What it should read after that many tokens."""
        if not self.rows(place):
            return self.temporal(place, request, tokens)
        return b"".join(self.window(place, request, range(tokens - self.rows(place), tokens)))


def _transposed(rows: list[bytes], item: int) -> list[bytes]:
    """The columns of a matrix of elements of `item` bytes, given by its rows, of which there is at least one."""
    line = len(rows) * item
    found = bytearray(len(rows) * len(rows[0]))
    for number, row in enumerate(rows):
        for byte in range(item):
            found[number * item + byte :: line] = row[byte::item]
    return [bytes(found[start : start + line]) for start in range(0, len(found), line)]


def _bytes_at(pool: str, start: int, lines: list[bytes], apart: int) -> Iterator[Step]:
    name = f"{pool}_written"
    yield Let(name, View(pool, "uint8", (len(lines), len(lines[0])), (apart, 1), start))
    yield Overwrite(name, b"".join(lines))
