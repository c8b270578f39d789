"""A port in NumPy and plain Python, to be read, not to be fast: the plain functions that PROTOCOL.md describes.

`where` stands for what copies need to know: states, block tables and the layout.
"""
# ruff: noqa: D103 - PROTOCOL.md has a sentence about each function.

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from torch import Tensor, arange, int16, int32, int64, uint8

STATECHECK_PROTOCOL = 2
CONV_TILE = 8
State = tuple[Tensor, str, int]
Ints = list[int]
Shape = tuple[int, ...]
_WORDS = {1: uint8, 2: int16, 4: int32, 8: int64}


def varlen_chunks(query_start_loc: Ints, chunk_size: int) -> tuple[Ints, Ints, Ints]:
    ends, last, owners = [0], [], []
    for sequence, (start, end) in enumerate(pairwise(query_start_loc)):
        cuts = range((start // chunk_size + 1) * chunk_size, end, chunk_size)
        pieces = [*cuts, end] if end > start else []
        ends += pieces
        owners += [sequence] * len(pieces)
        last.append(len(owners) - 1 if pieces else -1)
    return ends, last, owners


def conv_tiles(query_start_loc: Ints) -> tuple[Ints, Ints, Ints]:
    tiles = -(-np.diff(query_start_loc) // CONV_TILE)
    rows, ordinals = np.full((2, 2 * max(1024, tiles.sum())), -1)
    rows[: tiles.sum()] = np.repeat(np.arange(tiles.size), tiles)
    ordinals[: tiles.sum()] = [ordinal for count in tiles for ordinal in range(count)]
    return list(tiles), list(rows), list(ordinals)


def chunk_indices(cu_seqlens: Ints, chunk_size: int) -> list[tuple[int, int]]:
    counts = -(-np.diff(cu_seqlens) // chunk_size)
    return [(sequence, chunk) for sequence, count in enumerate(counts) for chunk in range(count)]


def chunk_offsets(cu_seqlens: Ints, chunk_size: int) -> Ints:
    return [0, *np.cumsum(-(-np.diff(cu_seqlens) // chunk_size))]


def split_batch(
    query_start_loc: Ints,
    num_tokens: int,
    decode_threshold: int,
    require_uniform: bool,
    short_extends_are_decodes: bool,
    is_prefilling: list[bool] | None,
) -> tuple[int, int, int, int]:
    lens = np.diff(query_start_loc)
    prefill = lens > decode_threshold
    if require_uniform and decode_threshold > 1 and not np.isin(lens, (0, *lens[:1])).all():
        prefill |= lens != lens[0]
    if not short_extends_are_decodes and is_prefilling is not None:
        prefill |= np.array(is_prefilling, bool)
    decodes = int(np.argmax(prefill)) if prefill.any() else len(lens)
    decode_tokens = query_start_loc[decodes] if decodes < len(lens) else num_tokens
    return decodes, len(lens) - decodes, decode_tokens, num_tokens - decode_tokens


def query_lens(query_start_loc: Tensor) -> Tensor:
    return query_start_loc[1:] - query_start_loc[:-1]


def num_computed_tokens(query_start_loc: Tensor, seq_lens: Tensor) -> Tensor:
    return seq_lens - query_lens(query_start_loc)


def gather_block_table(block_table: Tensor, seq_lens: Tensor, block_size: int, num_spec: int) -> Tensor:
    first = ((seq_lens - 1) // block_size).clamp(min=0).long()
    columns = first[:, None] + arange(1 + num_spec, device=first.device)
    return block_table[: len(seq_lens)].gather(1, columns)


def state_shapes(family: str, sizes: dict[str, int], tp_size: int, num_spec: int, layout: str) -> list[Shape]:
    rows = sizes.get("conv_kernel", sizes.get("conv_kernel_size", 1)) - 1 + num_spec

    def conv(channels: int) -> Shape:
        return (rows, channels // tp_size) if layout == "SD" else (channels // tp_size, rows)

    heads, head_dim = sizes.get("num_heads", 0) // tp_size, sizes.get("head_dim", 0)
    channels, size = sizes.get("intermediate_size", 0), sizes.get("state_size", 0)
    if family == "linear_attention":
        return [(heads, head_dim, head_dim)]
    if family == "kda":
        keys = conv(sizes["num_k_heads"] * sizes["head_k_dim"])
        return [conv(sizes["num_heads"] * head_dim), keys, keys, (heads, head_dim, head_dim)]
    if family == "gated_delta_net":
        v_heads, v_dim, k_dim = (sizes[name] for name in ("num_v_heads", "head_v_dim", "head_k_dim"))
        return [conv(2 * sizes["num_k_heads"] * k_dim + v_heads * v_dim), (v_heads // tp_size, v_dim, k_dim)]
    if family in ("short_conv", "mamba1"):
        return [conv(channels), (channels // tp_size, size)][: 1 if family == "short_conv" else 2]
    # Ranks that outnumber the groups of mamba2 have a copy each.
    groups = sizes["n_groups"] if sizes["n_groups"] % tp_size == 0 else tp_size
    return [conv(channels + 2 * groups * size), (heads, head_dim, size)]


def page_size(shapes: list[Ints], itemsizes: Ints, padded: int | None) -> int:
    natural = sum(prod(shape) * size for shape, size in zip(shapes, itemsizes, strict=True))
    return natural if padded is None else padded


def conv_copy(
    shape: Ints, block_stride: int, block_ids: Ints, column: int, num_accepted_tokens: int, layout: str
) -> Ints:
    skipped = num_accepted_tokens - 1
    if layout == "DS" and skipped:
        raise NotImplementedError("rows of a channel-first state lie apart")
    return [block_ids[column] * block_stride + skipped * shape[2], prod(shape[1:]) - skipped * shape[2]]


def temporal_copy(
    shape: Ints, block_stride: int, block_ids: Ints, column: int, num_accepted_tokens: int
) -> Ints:
    return [block_ids[column + num_accepted_tokens - 1] * block_stride, prod(shape[1:])]


def list_copies(
    states: list[State], block_ids: list[Ints], src_column: int, dst_column: int, bias: int, layout: str
) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    if src_column == dst_column and bias == 0:
        return found
    for tensor, kind, group in states:
        form = list(tensor.shape), tensor.stride(0), block_ids[group], src_column, 1 + bias
        offset, count = conv_copy(*form, layout) if kind == "conv" else temporal_copy(*form)
        target = block_ids[group][dst_column] * tensor.stride(0)
        address, size = tensor.data_ptr(), tensor.element_size()
        found.append((address + offset * size, address + target * size, count * size))
    return found


def copy_runs(src_ptrs: Tensor, dst_ptrs: Tensor, sizes: Tensor) -> None:
    if src_ptrs.is_cuda:
        raise NotImplementedError("addresses of a GPU")
    for source, target, size in zip(src_ptrs, dst_ptrs, sizes, strict=True):
        ctypes.memmove(int(target), int(source), int(size))


def _move(
    row: int, src: int, dst: int, bias: int, states: list[State], block_tables: Sequence[Tensor], layout: str
) -> None:
    """Bring a row's states from column `src` to column `dst`, `bias` tokens further on."""
    for tensor, kind, group in states:
        blocks = block_tables[group][row].tolist()
        last = src + bias if kind == "temporal" else src
        if min(src, dst) < 0 or max(last, dst) >= len(blocks) or min(blocks[last], blocks[dst]) <= 0:
            continue
        words = tensor.view(_WORDS[tensor.element_size()])
        source, target = words[blocks[last]], words[blocks[dst]]
        if kind == "conv":
            axis = 0 if layout == "SD" else 1
            kept = source.size(axis) - bias
            source, target = source.narrow(axis, bias, kept), target.narrow(axis, 0, kept)
        target.copy_(source.clone())


def preprocess_by_slot(
    idx_mapping: Tensor,
    columns: Tensor,
    num_computed_tokens: Tensor,
    query_start_loc: Tensor,
    num_accepted_tokens: Tensor,
    src_columns: Tensor,
    biases: Tensor,
    block_size: int,
) -> None:
    for slot, length in zip(idx_mapping.tolist(), query_lens(query_start_loc).tolist(), strict=True):
        if slot >= 0:
            before, after = int(columns[slot]), (int(num_computed_tokens[slot]) + length - 1) // block_size
            src_columns[slot], biases[slot] = before, max(int(num_accepted_tokens[slot]) - 1, 0)
            columns[slot] = after
            if before not in (-1, after):
                num_accepted_tokens[slot] = 1


def precopy_states(
    idx_mapping: Tensor, columns: Tensor, src_columns: Tensor, biases: Tensor, **where: Any
) -> None:
    to, start, bias = columns.tolist(), src_columns.tolist(), biases.tolist()
    for row, slot in enumerate(idx_mapping.tolist()):
        if slot >= 0 and start[slot] not in (-1, to[slot]):
            _move(row, start[slot], to[slot], bias[slot], **where)


def _store(row: int, running: int, computed: int, accepted: int, block_size: int, **where: Any) -> int:
    """Keep the state at the last boundary that accepted tokens reached; the count that the next step applies."""
    blocks = computed // block_size
    bias = blocks * block_size - (computed - accepted + 1)
    if bias < 0:
        return accepted
    _move(row, running, blocks - 1, bias, **where)
    return 1 if blocks - 1 == running else accepted


def postprocess_by_slot(
    idx_mapping: Tensor,
    num_accepted_tokens: Tensor,
    columns: Tensor,
    num_computed_tokens: Tensor,
    **where: Any,
) -> None:
    for row, slot in enumerate(idx_mapping.tolist()):
        if slot >= 0:
            numbers = (int(vector[slot]) for vector in (columns, num_computed_tokens, num_accepted_tokens))
            num_accepted_tokens[slot] = _store(row, *numbers, **where)


def postprocess_by_row(
    num_accepted_tokens: Tensor,
    columns: Tensor,
    num_scheduled_tokens: Tensor,
    num_computed_tokens: Tensor,
    num_draft_tokens: Tensor,
    num_accepted_tokens_out: Tensor,
    **where: Any,
) -> None:
    computed = num_computed_tokens + num_scheduled_tokens - num_draft_tokens + num_accepted_tokens - 1
    for row in range(len(computed)):
        numbers = (int(vector[row]) for vector in (columns, computed, num_accepted_tokens))
        num_accepted_tokens_out[row] = _store(row, *numbers, **where)


def preprocess_by_row(
    columns: list[int | None],
    num_computed_tokens: Ints,
    num_scheduled_tokens: Ints,
    num_accepted_tokens: Tensor,
    block_size: int,
    **where: Any,
) -> Ints:
    running = [
        (sum(pair) - 1) // block_size for pair in zip(num_computed_tokens, num_scheduled_tokens, strict=True)
    ]
    for row, (before, after) in enumerate(zip(columns, running, strict=True)):
        start = (num_computed_tokens[row] - 1) // block_size if before is None else before
        if start not in (-1, after):
            _move(row, start, after, int(num_accepted_tokens[row]) - 1, **where)
            num_accepted_tokens[row] = 1
    return running


def drop_columns(
    columns: dict[str, int], finished: list[str], preempted: list[str], resumed: list[str]
) -> None:
    for request in (*finished, *preempted, *resumed):
        columns.pop(request, None)
