"""Copies as lists of source, destination and size: one entry per state of a request."""

from collections.abc import Sequence
from typing import NamedTuple

from oracle.align.memory import Copy, Memory, Piece, Place, Pool, StateTensor, moved
from oracle.layout import ByteRun, conv_copy_run, temporal_copy_run
from oracle.rules import require, require_int, rule
from oracle.types import NULL_BLOCK_ID


class Entry(NamedTuple):
    """`size` bytes to copy from one place to another; a size below 1 copies nothing."""

    source: Place
    target: Place
    size: int


def entries(
    states: Sequence[StateTensor],
    layout: str,
    block_ids: Sequence[Sequence[int]],
    src_col: int,
    dst_col: int,
    bias: int,
) -> tuple[Entry, ...]:
    """What a request's copy adds to the lists: nothing where its state stays where it is.

    `block_ids` are the request's, by mamba group. The source is what the copy specifications say of
    bias + 1 accepted tokens, so layout DS with a bias is not representable. Source: contract 1.8,
    `collect_mamba_copy_meta`.
    """
    if src_col == dst_col and bias == 0:
        return ()
    for argument, value in (("src_col", src_col), ("dst_col", dst_col), ("bias", bias)):
        require_int(argument, value, minimum=0)
    require_all_columns(block_ids, states, src_col, dst_col, bias)
    return tuple(_entry(state, layout, block_ids[state.group], src_col, dst_col, bias) for state in states)


@rule
def require_all_columns(
    block_ids: Sequence[Sequence[int]], states: Sequence[StateTensor], src_col: int, dst_col: int, bias: int
) -> None:
    """As `require_columns`, for every state of a request."""
    for state in states:
        require_columns(block_ids[state.group], state, src_col, dst_col, bias)


def require_columns(blocks: Sequence[int], state: StateTensor, src_col: int, dst_col: int, bias: int) -> None:
    """Refuse columns that the request does not have, and blocks without an owner in any of them."""
    columns = len(blocks)
    require(src_col < columns, "src_col", src_col, f"be < {columns}, the request's columns")
    require(dst_col < columns, "dst_col", dst_col, f"be < {columns}, the request's columns")
    require(src_col + bias < columns, "bias", bias, f"be < {columns - src_col}, the columns from src_col on")
    for column in (src_col, src_col + bias, dst_col):
        block, last = blocks[column], state.geometry.num_blocks - 1
        argument = f"block_ids[{column}]"
        require(
            NULL_BLOCK_ID < block <= last,
            argument,
            block,
            f"be > {NULL_BLOCK_ID}, the null block, and <= {last}",
        )


def _entry(
    state: StateTensor, layout: str, blocks: Sequence[int], src_col: int, dst_col: int, bias: int
) -> Entry:
    first = state.geometry.offset_bytes
    source = _source(state, layout, blocks, src_col, bias + 1)
    target = blocks[dst_col] * state.geometry.block_stride_bytes
    return Entry(Place(state.pool, first + source.offset), Place(state.pool, first + target), source.length)


def _source(state: StateTensor, layout: str, blocks: Sequence[int], column: int, accepted: int) -> ByteRun:
    if state.kind == "conv":
        return conv_copy_run(state.geometry, layout, blocks, column, accepted)
    return temporal_copy_run(state.geometry, blocks, column, accepted)


@rule
def require_capacity(num_listed: int, added: int, capacity: int) -> None:
    """Refuse entries that the lists have no room for, under the name of how many there are, `bufs.offset`.

    Source: contract 1.8, `MambaCopyBuffers`.
    """
    rule = f"leave room for {added} more entries of {capacity}"
    require(num_listed + added <= capacity, "bufs.offset", num_listed, rule)


@rule
def memory_after(memory: Memory, listed: Sequence[Entry]) -> dict[str, Pool]:
    """The memory after every entry has been copied through a temporary, in any order.

    Source: contract 1.8, `do_mamba_copy_block` and `batch_memcpy`.
    """
    copies: list[Copy] = [(Piece(*entry),) for entry in listed if entry.size > 0]
    return moved(memory, copies)


def require_lists(lengths: Sequence[int]) -> None:
    """Refuse lists of different lengths, under the name of the first that differs from the sources.

    Source: contract 1.8, `batch_memcpy`.
    """
    for argument, length in zip(("src_ptrs", "dst_ptrs", "sizes"), lengths, strict=True):
        require(length == lengths[0], argument, length, f"have {lengths[0]} entries, as src_ptrs")
