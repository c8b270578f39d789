"""Copies written down as address, address and size, and done in one launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..checks import describe, int_at_least, refuse
from ..layout import MambaStateCopyFunc
from ..types import NULL_BLOCK_ID
from .buffers import CpuGpuBuffer, MambaCopyBuffers
from .fused import launch_batch_memcpy
from .moves import Move, refuse_null

_ADDRESS_DTYPES = (torch.int64, torch.uint64)
_SIZE_DTYPES = (torch.int32, torch.int64)


class Entry(NamedTuple):
    """`size` bytes to be copied from address `src` to address `dst`."""

    src: int
    dst: int
    size: int


def collect_mamba_copy_meta(
    bufs: MambaCopyBuffers,
    kv_cache_config: Any,
    copy_funcs: Sequence[MambaStateCopyFunc],
    group_ids: Sequence[int],
    src_col: int,
    dst_col: int,
    bias: int,
    req_state: Any,
    forward_context: Mapping[str, Any],
) -> None:
    """Write down the copies of one request's states from one block-table column to another.

    Per group, layer and state: from the run that the copy function finds for column `src_col` and `bias` + 1
    accepted tokens, to the start of the block of column `dst_col` in `req_state.block_ids[group]`. They
    follow the `bufs.offset` entries that there are. Nothing is written if the columns are the same and bias
    is 0.

    Raises ValueError, before an entry is written, naming `src_col`, `dst_col` or `bias` (negative, or past
    the request's blocks), `req_state.block_ids[g]` (missing, or with a null block or one outside the state in
    these columns), `group_ids[i]`, `forward_context['layer']` (missing, or with more states than copy
    functions) or `bufs.offset` (no room). A copy function may raise what it likes. Source: contract 1.8.
    """
    function = "collect_mamba_copy_meta"
    if src_col == dst_col and bias == 0:
        return
    move = Move(
        int_at_least("src_col", src_col, 0, function),
        int_at_least("dst_col", dst_col, 0, function),
        int_at_least("bias", bias, 0, function),
    )
    _check_columns(req_state.block_ids, group_ids, move, function)
    named_ids = "req_state.block_ids", req_state.block_ids
    entries = entries_of_request(
        kv_cache_config, copy_funcs, group_ids, move, named_ids, forward_context, function
    )
    check_room(bufs, bufs.offset, entries, function)
    append_entries(bufs, entries)


def entries_of_request(
    kv_cache_config: Any,
    copy_funcs: Sequence[MambaStateCopyFunc],
    group_ids: Sequence[int],
    move: Move,
    block_ids: tuple[str, Sequence[list[int]]],
    forward_context: Mapping[str, Any],
    function: str,
) -> list[Entry]:
    """The copies of one request, whose columns are in order. `block_ids`: a name, and its blocks by group."""
    place, groups = block_ids
    src_col, dst_col, bias = move
    entries = []
    for group_id in group_ids:
        blocks = groups[group_id]
        for layer, states in _layers(kv_cache_config, group_id, copy_funcs, forward_context, function):
            for i, (state, copy_func) in enumerate(zip(states, copy_funcs, strict=False)):
                run = copy_func(state, blocks, src_col, bias + 1)
                block = blocks[dst_col]
                if block >= state.size(0):
                    rule = f"< {state.size(0)}, the blocks of forward_context[{layer!r}].kv_cache[{i}]"
                    refuse(f"block_ids[{dst_col}]", block, f"{rule}, in {place}[{group_id}]", function)
                dst = state.data_ptr() + block * state.stride(0) * state.element_size()
                entries.append(Entry(run.start_addr, dst, run.num_elements * state.element_size()))
    return entries


def _check_columns(
    block_ids: Sequence[list[int]], group_ids: Sequence[int], move: Move, function: str
) -> None:
    place = "req_state.block_ids"
    for i, group_id in enumerate(group_ids):
        if not 0 <= group_id < len(block_ids):
            refuse(f"group_ids[{i}]", group_id, f"in 0..{len(block_ids) - 1}, as {place} has", function)
        width = len(block_ids[group_id])
        if move.dst_col >= width:
            refuse("dst_col", move.dst_col, f"< {width}, the columns of {place}[{group_id}]", function)
        if move.src_col >= width:
            refuse("src_col", move.src_col, f"< {width}, the columns of {place}[{group_id}]", function)
        if move.src_col + move.bias >= width:
            seen = f"< {width - move.src_col}, the columns of {place}[{group_id}] from src_col on"
            refuse("bias", move.bias, seen, function)
        blocks = block_ids[group_id]
        for column in (move.src_col, move.src_col + move.bias, move.dst_col):
            if blocks[column] <= NULL_BLOCK_ID:
                refuse_null(f"{place}[{group_id}]", blocks, column, function)


def _layers(
    kv_cache_config: Any,
    group_id: int,
    copy_funcs: Sequence[MambaStateCopyFunc],
    forward_context: Mapping[str, Any],
    function: str,
) -> Iterator[tuple[str, Sequence[torch.Tensor]]]:
    """Name and states of each layer of a group."""
    for layer in kv_cache_config.kv_cache_groups[group_id].layer_names:
        place = f"forward_context[{layer!r}]"
        if layer not in forward_context:
            refuse(place, "missing", f"given, since group {group_id} has this layer", function)
        states = forward_context[layer].kv_cache
        if len(states) > len(copy_funcs):
            rule = f"{len(copy_funcs)} at most, one per copy function"
            refuse(f"{place}.kv_cache", f"{len(states)} states", rule, function)
        yield layer, states


def check_room(bufs: MambaCopyBuffers, first: int, entries: Sequence[Entry], function: str) -> None:
    """Refuse entries from `first` on that the buffers have no room for."""
    most = len(bufs.src_ptrs.np) - len(entries)
    if not 0 <= first <= most:
        refuse("bufs.offset", first, f"in 0..{most}, room for {len(entries)} entries more", function)
    # An engine may have made the buffer as int32, into which NumPy would cut a larger size silently.
    limit = int(np.iinfo(bufs.sizes.np.dtype).max)
    largest = max((entry.size for entry in entries), default=0)
    if largest > limit:
        refuse("bufs.sizes", f"a {bufs.sizes.np.dtype} buffer", f"wide enough for {largest} bytes", function)


def append_entries(bufs: MambaCopyBuffers, entries: Sequence[Entry]) -> None:
    """Write entries, for which there is room, behind those that are in use."""
    first, end = bufs.offset, bufs.offset + len(entries)
    _store_addresses(bufs.src_ptrs, slice(first, end), [entry.src for entry in entries])
    _store_addresses(bufs.dst_ptrs, slice(first, end), [entry.dst for entry in entries])
    bufs.sizes.np[first:end] = [entry.size for entry in entries]
    bufs.offset = end


def _store_addresses(buffer: CpuGpuBuffer, where: slice, addresses: Sequence[int]) -> None:
    # Through uint64: the upper half of the address space becomes negative as int64, with the same bits.
    buffer.np[where] = np.array(addresses, np.uint64).view(buffer.np.dtype)


def do_mamba_copy_block(bufs: MambaCopyBuffers) -> None:
    """Do the first `bufs.offset` copies in one launch, without waiting for it.

    Raises ValueError naming `bufs.offset` outside of the buffers. Source: contract 1.8.
    """
    n, room = bufs.offset, len(bufs.src_ptrs.np)
    if not 0 <= n <= room:
        refuse("bufs.offset", n, f"in 0..{room}", "do_mamba_copy_block")
    if n > 0:
        pointers = bufs.src_ptrs.copy_to_gpu(n), bufs.dst_ptrs.copy_to_gpu(n)
        batch_memcpy(*pointers, bufs.sizes.copy_to_gpu(n))


def batch_memcpy(src_ptrs: torch.Tensor, dst_ptrs: torch.Tensor, sizes: torch.Tensor) -> None:
    """Copy sizes[i] bytes from address src_ptrs[i] to address dst_ptrs[i] for all i, in one launch.

    Three contiguous vectors of one length on one device: addresses int64 or uint64 (64-bit patterns), sizes
    int32 or int64, in bytes; a size <= 0 copies nothing. An entry may overlap itself, as in memmove; no two
    entries may touch the same bytes, unless both only read them.

    Raises ValueError naming the vector that has another form, or another length or device than `src_ptrs`.
    Source: contract 1.8.
    """
    function = "batch_memcpy"
    _check_vector("src_ptrs", src_ptrs, _ADDRESS_DTYPES, src_ptrs, function)
    _check_vector("dst_ptrs", dst_ptrs, _ADDRESS_DTYPES, src_ptrs, function)
    _check_vector("sizes", sizes, _SIZE_DTYPES, src_ptrs, function)
    if src_ptrs.numel() > 0:
        launch_batch_memcpy(src_ptrs, dst_ptrs, sizes)


def _check_vector(
    name: str, vector: torch.Tensor, dtypes: tuple[torch.dtype, ...], like: torch.Tensor, function: str
) -> None:
    if not isinstance(vector, torch.Tensor) or vector.ndim != 1 or vector.dtype not in dtypes:
        kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        refuse(name, describe(vector), f"a vector of {kinds}", function)
    if not vector.is_contiguous():
        refuse(name, f"{describe(vector)} with stride {vector.stride(0)}", "contiguous", function)
    if vector.size(0) != like.size(0) or vector.device != like.device:
        rule = f"of {like.size(0)} entries on {like.device}, as src_ptrs"
        refuse(name, describe(vector), rule, function)
