"""Pools of bytes, the states that lie in them, and copies of a state between the blocks of a request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import prod
from typing import Literal, NamedTuple

from oracle.layout import StateGeometry
from oracle.rules import require, rule
from oracle.types import NULL_BLOCK_ID
from oracle.variants import Variants

Kind = Literal["conv", "temporal"]
Pool = bytes | Mapping[int, int]
"""All bytes of a pool; or, of one that is too large for that, the bytes that are looked at, by offset."""
Memory = Mapping[str, Pool]
Tables = Sequence[Sequence[Sequence[int]]]
"""Block ids by group, row and column."""


@dataclass(frozen=True)
class StateTensor:
    """One state of one layer: the pool that it lies in, where, and the group whose block table it follows.

    The geometry's `offset_bytes` counts from the pool's first byte. `group` counts mamba groups only.
    """

    pool: str
    geometry: StateGeometry
    kind: Kind
    group: int = 0


@dataclass(frozen=True)
class Move:
    """A request's state goes from one column of its table to another, `bias` accepted tokens further on."""

    row: int
    src_col: int
    dst_col: int
    bias: int = 0


class Place(NamedTuple):
    """A byte of a pool. The pool without a name is the address space itself, its offsets are addresses."""

    pool: str
    offset: int


class Piece(NamedTuple):
    """Consecutive bytes to copy."""

    source: Place
    target: Place
    length: int


Copy = tuple[Piece, ...]
"""What is copied as one: pieces of one copy may overlap each other, those of different copies may not."""


class _ByteSpan(NamedTuple):
    """Bytes that a copy reads or writes, and the copy's number."""

    pool: str
    start: int
    end: int
    owner: int


def apply_moves(
    memory: Memory,
    states: Sequence[StateTensor],
    layout: str,
    tables: Tables,
    moves: Sequence[Move],
    profile: Variants,
) -> dict[str, Pool]:
    """The memory after every move of every state; each copy takes what was there before all of them.

    Source: contract 2.2; document 4, `_copy_mamba_state_block`.
    """
    return moved(
        memory, [copy for move in moves for copy in copies_of(move, states, layout, tables, profile)]
    )


@rule
def copies_of(
    move: Move, states: Sequence[StateTensor], layout: str, tables: Tables, profile: Variants
) -> list[Copy]:
    """A copy for each state, empty for one that has nothing to move."""
    return [state_copy(state, layout, tables[state.group][move.row], move, profile) for state in states]


@rule
def state_copy(state: StateTensor, layout: str, row: Sequence[int], move: Move, profile: Variants) -> Copy:
    """Temporal: the block of the last accepted token. Conv: the running block's rows from the bias on.

    Empty where a column is a sentinel or outside the row, or a block is the null block: no other
    request's bytes are read or overwritten. Refused where the profile says that callers see to it.
    """
    assert move.bias >= 0, f"{move} goes back in time"
    src_col = source_column(state.kind, move)
    if is_missing(row, move, src_col):
        require(profile.skips_missing_states, "block_table", tuple(row), f"have blocks for {move}")
        return ()
    source, target = (_block_place(state, row[column]) for column in (src_col, move.dst_col))
    return tuple(
        Piece(_further(source, begin), _further(target, end), length)
        for begin, end, length in _lines(state, layout, move.bias)
    )


def is_missing(row: Sequence[int], move: Move, src_col: int) -> bool:
    """Whether a copy has no block to read or none to write."""
    if min(move.src_col, move.dst_col) < 0 or max(src_col, move.dst_col) >= len(row):
        return True
    return min(row[src_col], row[move.dst_col]) <= NULL_BLOCK_ID


def source_column(kind: Kind, move: Move) -> int:
    """Each accepted token has a temporal state, a column further on; its conv rows are in the first column."""
    return move.src_col + move.bias if kind == "temporal" else move.src_col


def conv_rows(state: StateTensor, layout: str) -> int:
    """Rows (tokens) that a block of a conv state has. Source: document 2, the two layouts."""
    return state.geometry.block_shape[0 if layout == "SD" else 1]


def _lines(state: StateTensor, layout: str, bias: int) -> Iterator[tuple[int, int, int]]:
    """Where each run of bytes begins in the source block and in the target block, and how long it is."""
    shape, itemsize = state.geometry.block_shape, state.geometry.itemsize
    if state.kind == "temporal":
        yield 0, 0, prod(shape) * itemsize
        return
    rows, channels = shape if layout == "SD" else reversed(shape)
    if layout == "SD":
        line = channels * itemsize
        for row in range(bias, rows):
            yield row * line, (row - bias) * line, line
    elif bias == 0:
        yield 0, 0, channels * rows * itemsize
    elif bias < rows:
        for channel in range(channels):
            first = channel * rows
            yield (first + bias) * itemsize, first * itemsize, (rows - bias) * itemsize


def _block_place(state: StateTensor, block: int) -> Place:
    geometry = state.geometry
    assert block < geometry.num_blocks, (
        f"block {block} of {geometry}: a table may name blocks of the pool only"
    )
    return Place(state.pool, geometry.offset_bytes + block * geometry.block_stride_bytes)


def _further(place: Place, distance: int) -> Place:
    return Place(place.pool, place.offset + distance)


def moved(memory: Memory, copies: Sequence[Copy]) -> dict[str, Pool]:
    """The memory after all copies: first everything is read, then everything is written."""
    _assert_independent(copies)
    contents: dict[str, list[tuple[int, bytes]]] = {name: [] for name in memory}
    for source, target, length in chain.from_iterable(copies):
        data = read(memory, source, length)
        if target.pool in contents:
            contents[target.pool].append((target.offset, data))
    return {name: _written(name, pool, contents[name]) for name, pool in memory.items()}


def read(memory: Memory, place: Place, length: int) -> bytes:
    """The bytes at a place of a pool, all of which must be known."""
    assert place.pool in memory, f"{place}: the contents of this pool are not known"
    pool, offsets = memory[place.pool], range(place.offset, place.offset + length)
    if isinstance(pool, bytes):
        assert offsets.start >= 0, f"{place} lies before its pool"
        assert offsets.stop <= len(pool), f"{place}, {length} bytes: the pool has {len(pool)}"
        return pool[offsets.start : offsets.stop]
    unknown = [offset for offset in offsets if offset not in pool]
    assert not unknown, f"{place.pool}, offset {unknown[0]}: outside every window of the pool"
    return bytes(pool[offset] for offset in offsets)


def _written(name: str, pool: Pool, contents: Sequence[tuple[int, bytes]]) -> Pool:
    if isinstance(pool, bytes):
        whole = bytearray(pool)
        for offset, data in contents:
            assert 0 <= offset <= len(pool) - len(data), f"{name}, offset {offset}: outside the pool"
            whole[offset : offset + len(data)] = data
        return bytes(whole)
    known = dict(pool)
    for offset, data in contents:
        for position, byte in enumerate(data, offset):
            assert position in known, f"{name}, offset {position}: outside every window of the pool"
            known[position] = byte
    return known


def _assert_independent(copies: Sequence[Copy]) -> None:
    """Copies run in any order, so no copy reads or writes what another one writes."""
    reads, writes = [], []
    for owner, copy in enumerate(copies):
        for source, target, length in copy:
            reads.append(_ByteSpan(source.pool, source.offset, source.offset + length, owner))
            writes.append(_ByteSpan(target.pool, target.offset, target.offset + length, owner))
    _assert_apart(sorted(writes))
    _assert_unwritten(sorted(reads), sorted(writes))


def _assert_apart(writes: Sequence[_ByteSpan]) -> None:
    for (pool, _, end, mine), (other_pool, start, _, other) in pairwise(writes):
        apart = pool != other_pool or end <= start
        assert apart, f"copies {mine} and {other} both write {Place(pool, start)}"


def _assert_unwritten(reads: Sequence[_ByteSpan], writes: Sequence[_ByteSpan]) -> None:
    """Both in order, and writes apart from each other: those before a read are before every later one too."""
    first, count = 0, len(writes)
    for pool, start, end, owner in reads:
        while first < count and (writes[first].pool, writes[first].end) <= (pool, start):
            first += 1
        index = first
        while index < count and (writes[index].pool, writes[index].start) < (pool, end):
            writer = writes[index].owner
            assert writer == owner, f"copy {owner} reads {Place(pool, start)}, which copy {writer} writes"
            index += 1
