"""Pools and block tables with requests in them: which blocks these own, what lies in and around the blocks, and states that name their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from hashlib import shake_128
from random import Random

from hypothesis import strategies as st

from properties.strategies.align.setup import Group, Setup
from statecheck.case.values import Let, Overwrite, Record, Step, Tensor, Value, View, record

HUGE = 2**31 + 2**12
HUGE_ID_PAGE = 64


@dataclass(frozen=True)
class Filling:
    """The bytes in and around the blocks.

    `shuffle` relabels blocks, 0 keeps them in order; `seed` chooses the pools' bytes, 0 makes them a counter. Cells
    of a table that no request owns hold null blocks or, if `stale`, blocks of others. `first` is the first block
    used, `far` counts bytes between pages: where either is huge, only the states of the blocks used have contents.
    """

    shuffle: int = 0
    seed: int = 0
    stale: bool = False
    spare_columns: int = 0
    first: int = 1
    far: int = 0

    @property
    def sparse(self) -> bool:
        return self.first > 1 or self.far > 0


PLAIN = Filling()


@dataclass(frozen=True)
class Cache:
    """A setup's pools and tables with requests in them: request r owns a block in each of `columns[r]`, in each group.

    `rows[i]` is the request of table row i, or None; `null_columns` are cells of the tables, request and column, that hold
    the null block all the same. `width`, if given, is how many columns of their memory the tables show.
    """

    setup: Setup
    columns: tuple[tuple[int, ...], ...]
    rows: tuple[int | None, ...]
    filling: Filling = PLAIN
    null_columns: tuple[tuple[int, int], ...] = ()
    width: int | None = None

    @cached_property
    def owned(self) -> dict[tuple[int, int, int], int]:
        """The number of the block of (group, request, column), counted from 1 before blocks are relabelled."""
        found: dict[tuple[int, int, int], int] = {}
        for group in range(len(self.setup.groups)):
            start = len(found) if self.setup.shared else 0
            own = [(request, column) for request, columns in enumerate(self.columns) for column in columns]
            found.update({(group, *cell): start + 1 + number for number, cell in enumerate(own)})
        return found

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """The physical block of each number; the null block is itself."""
        numbers = list(range(max(self.owned.values(), default=0)))
        if self.filling.shuffle:
            Random(self.filling.shuffle).shuffle(numbers)
        return (0, *(self.filling.first + number for number in numbers))

    @property
    def num_blocks(self) -> int:
        """Blocks of a pool, an unused one at the end among them."""
        return max(self.labels) + (1 if self.filling.sparse else 2)

    def block(self, group: int, request: int, column: int) -> int:
        """The physical block, null where the request has none."""
        if (request, column) in self.null_columns:
            return 0
        return self.labels[self.owned.get((group, request, column), 0)]

    @property
    def num_groups(self) -> int:
        return len(self.setup.groups)

    def block_ids(self, group: int, request: int) -> list[int]:
        """The blocks of a request as a runner lists them, up to its last column."""
        row = self.rows.index(request)
        return [self._cell(group, row, column) for column in range(max(self.columns[request]) + 1)]

    @property
    def full_width(self) -> int:
        return 1 + max((max(columns, default=0) for columns in self.columns), default=0)

    def table(self, group: int) -> Tensor:
        """The group's block table; a column narrower than its memory where `width` says so."""
        width = self.full_width + self.filling.spare_columns
        cells = [self._cell(group, row, column) for row in range(len(self.rows)) for column in range(width)]
        shown = width if self.width is None else min(self.width, width)
        strides = None if shown == width else (width, 1)
        return Tensor("int32", (len(self.rows), shown), tuple(cells), strides)

    def _cell(self, group: int, row: int, column: int) -> int:
        request = self.rows[row]
        if request is not None and (group, request, column) in self.owned:
            return self.block(group, request, column)
        if not self.filling.stale or (request, column) in self.null_columns or len(self.labels) == 1:
            return 0
        return self.labels[1 + (row + 3 * column) % (len(self.labels) - 1)]

    def page(self, pool: str) -> int:
        return self.setup.pages()[pool] + self.filling.far

    def steps(self) -> list[Step]:
        """Name the pools `pool0`.., tables `table0`.., layers `layers` and configuration `config`."""
        named: list[Step] = []
        for pool in self.setup.pools:
            named += self._pool(pool)
        named += [Let(f"table{group}", self.table(group)) for group in range(len(self.setup.groups))]
        named.append(Let("layers", self.layers()))
        named.append(Let("config", self.setup.config(self.num_blocks)))
        return named

    def refill(self) -> list[Step]:
        """Give the pools their first contents back."""
        return [Overwrite(pool, self.contents(pool)) for pool in self.setup.pools]

    def layers(self) -> dict[str, Value]:
        wide = {name: group for name, group, _ in self.setup.named_layers()}
        context = self.setup.forward_context(self.num_blocks)
        if not self.filling.far:
            return context
        return {name: self._far(layer, wide[name]) for name, layer in context.items()}

    def _far(self, layer: Record, group: int) -> Record:
        sizes = [state.itemsize for state in self.setup.groups[group].states]
        views = [
            replace(view, strides=(view.strides[0] + self.filling.far // size, *view.strides[1:]))
            for view, size in zip(layer["kv_cache"], sizes, strict=True)
        ]
        return record("Layer", kv_cache=views)

    def _pool(self, pool: str) -> list[Step]:
        size = self.page(pool) * (self.num_blocks - 1) + self.setup.pages()[pool]
        if not self.filling.sparse:
            return [Let(pool, Tensor("uint8", (size,), self.contents(pool)))]
        named: list[Step] = [Let(pool, Tensor("uint8", (size,), None))]
        for name, (number, start) in self._windows(pool).items():
            page = self.setup.pages()[pool]
            named.append(Let(name, View(pool, "uint8", (page,), None, start)))
            named.append(Overwrite(name, self._pattern(pool, number)))
        return named

    def _windows(self, pool: str) -> dict[str, tuple[int, int]]:
        """The pages of a sparse pool that have contents: their number, and where they start."""
        return {
            f"{pool}_block{block}": (number, block * self.page(pool))
            for number, block in enumerate(self.labels)
        }

    def contents(self, pool: str) -> bytes:
        """The bytes of a pool: those of a block do not depend on its label."""
        at = {block: number for number, block in enumerate(self.labels)}
        return b"".join(self._pattern(pool, at.get(block, block)) for block in range(self.num_blocks))

    def _pattern(self, pool: str, number: int) -> bytes:
        page = self.setup.pages()[pool]
        if not self.filling.seed and page * (number + 1) <= 256:
            turn = 89 * self.setup.pools.index(pool)
            return bytes((turn + byte) % 256 for byte in range(number * page, (number + 1) * page))
        return _noise(self.filling.seed, f"{pool} {self.owners.get(number, number)}", page)

    @cached_property
    def owners(self) -> dict[int, tuple[int, ...]]:
        """Request and column of each number; the group before them where groups share numbers."""
        first = 0 if self.setup.shared else 1
        return {number: cell[first:] for cell, number in self.owned.items()}

    @property
    def observes(self) -> tuple[str, ...]:
        """The names of all memory that a copy may write to."""
        if not self.filling.sparse:
            return self.setup.pools
        return tuple(name for pool in self.setup.pools for name in self._windows(pool))

    def states(self, after: Mapping[str, Value]) -> dict[tuple[str, int, int], tuple[bytes, ...]]:
        """By layer, request and column, the bytes of each state after a call, whatever the block is labelled."""
        found: dict[tuple[str, int, int], tuple[bytes, ...]] = {}
        for layer, group, pool in self.setup.named_layers():
            for (owner, request, column), number in self.owned.items():
                if owner == group:
                    page = self._page_after(after, pool, self.labels[number])
                    found[layer, request, column] = tuple(_state_bytes(page, self.setup.groups[group]))
        return found

    @property
    def first_states(self) -> dict[tuple[str, int, int], tuple[bytes, ...]]:
        """As `states`, before any call; of pools that are not sparse."""
        first = {pool: self.contents(pool) for pool in self.setup.pools}
        return self.states({pool: Tensor("uint8", (len(all_),), all_) for pool, all_ in first.items()})

    def outside_of_states(self, pool: str) -> list[int]:
        """The bytes of a pool that is not sparse in which no request's state lies."""
        inside: set[int] = set()
        for _, group, own_pool in self.setup.named_layers():
            kept = self.setup.groups[group]
            for (owner, _, _), number in self.owned.items():
                if (owner, own_pool) == (group, pool):
                    page = self.labels[number] * self.page(pool)
                    for state, offset in zip(kept.states, kept.offsets, strict=True):
                        inside.update(range(page + offset, page + offset + state.nbytes))
        return [at for at in range(self.num_blocks * self.page(pool)) if at not in inside]

    def _page_after(self, after: Mapping[str, Value], pool: str, block: int) -> bytes:
        if self.filling.sparse:
            return bytes(after[f"{pool}_block{block}"].elements)
        start = block * self.page(pool)
        return bytes(after[pool].elements[start : start + self.page(pool)])


def pattern(seed: int, name: str, size: int) -> bytes:
    """The contents of a pool: a counter for seed 0, where no byte need come twice."""
    return bytes(range(size)) if size <= 256 and not seed else _noise(seed, name, size)


@lru_cache(256)
def _noise(seed: int, name: str, size: int) -> bytes:
    """Bytes of which any beginning is the same for every size."""
    return shake_128(f"{seed} {name}".encode()).digest(size)


def _state_bytes(page: bytes, group: Group) -> Iterator[bytes]:
    for state, offset in zip(group.states, group.offsets, strict=True):
        yield page[offset : offset + state.nbytes]


def with_context(cache: Cache, max_num_reqs: int) -> list[Step]:
    """Steps after which `ctx` is a context bound to the cache."""
    return [*cache.steps(), cache.setup.create(max_num_reqs), cache.setup.initialize()]


_SHUFFLES = st.integers(0, 3)
_SEEDS = st.integers(0, 7)
_STALE = st.booleans()
_SPARE_COLUMNS = st.sampled_from((0, 0, 1, 3))


@cache
@st.composite
def fillings(draw: st.DrawFn) -> Filling:
    """The surroundings of the blocks, where pools are small."""
    return Filling(draw(_SHUFFLES), draw(_SEEDS), draw(_STALE), draw(_SPARE_COLUMNS))


@cache
def far_fillings() -> st.SearchStrategy[Filling]:
    """Addresses beyond 32 bits: by pages that are gigabytes long, or by block ids that are millions."""
    return st.sampled_from((Filling(far=HUGE), Filling(far=HUGE_ID_PAGE, first=HUGE // HUGE_ID_PAGE)))


def spread(values: Iterable[int], length: int, poison: int) -> tuple[int, ...]:
    """`values`, and behind them `poison` up to `length`."""
    found = tuple(values)
    return found + (poison,) * (length - len(found))


@dataclass(frozen=True)
class PooledState:
    """A state of a layer: its group, its pool and its number in the layer."""

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
        """The bytes that a forward reads which runs in `column` and applies `offset` tokens behind its first state."""
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
        """The right bytes after that many tokens."""
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
