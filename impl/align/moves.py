"""Which requests' states have to move before a forward, and from which block-table column to which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..checks import as_int, refuse
from ..types import NULL_BLOCK_ID
from .buffers import MambaCopyBuffers

_FUNCTION = "preprocess_mamba"


class Move(NamedTuple):
    """A request's states go from one block-table column to another, after `bias` + 1 accepted tokens."""

    src_col: int
    dst_col: int
    bias: int


@dataclass(slots=True)
class Step:
    """A V1 step's running columns by batch row, and the `rows` that leave a column behind, with their moves.

    Source columns, destination columns and biases are lists of their own, as they are uploaded.
    """

    columns: list[int]
    rows: list[int]
    src_cols: list[int]
    dst_cols: list[int]
    biases: list[int]

    def moves(self) -> Iterator[tuple[int, Move]]:
        """Row and move, one by one."""
        return zip(self.rows, map(Move, self.src_cols, self.dst_cols, self.biases), strict=True)


def cleanup_mamba_state_idx(scheduler_output: Any, mamba_state_idx: dict[str, int]) -> None:
    """Forget the running columns of finished, preempted and resumed requests.

    Requests that were preempted by force are resumed without having been named as preempted. Unknown ids are
    passed over. Source: document 4, `cleanup_mamba_state_idx`.
    """
    resumed = scheduler_output.scheduled_cached_reqs.resumed_req_ids
    preempted = scheduler_output.preempted_req_ids or ()
    for req_id in chain(scheduler_output.finished_req_ids, preempted, resumed):
        mamba_state_idx.pop(req_id, None)


def decide(
    scheduler_output: Any,
    mamba_state_idx: Mapping[str, int],
    input_batch: Any,
    requests: Mapping[str, Any],
    bufs: MambaCopyBuffers,
) -> Step:
    """The step that `preprocess_mamba` describes, of which it has the errors. Nothing is changed."""
    req_ids = input_batch.req_ids
    accepted = _accepted(input_batch.num_accepted_tokens_cpu, req_ids, bufs)
    remembered = dict(mamba_state_idx)
    cleanup_mamba_state_idx(scheduler_output, remembered)
    try:
        return _step(scheduler_output.num_scheduled_tokens, remembered, req_ids, accepted, requests, bufs)
    except KeyError:
        check_entries("requests", requests, req_ids, _FUNCTION)
        scheduled = scheduler_output.num_scheduled_tokens
        check_entries("scheduler_output.num_scheduled_tokens", scheduled, req_ids, _FUNCTION)
        raise
    except IndexError:
        _check_groups(req_ids, requests, max(bufs.mamba_group_ids))
        raise


def check_entries(name: str, entries: Mapping[str, Any], ids: Sequence[str], function: str) -> None:
    """Refuse the first id that has no entry."""
    for row, req_id in enumerate(ids):
        if req_id not in entries:
            refuse(f"{name}[{req_id!r}]", "missing", f"given, since row {row} is this request", function)


def _check_groups(req_ids: Sequence[str], requests: Mapping[str, Any], last: int) -> None:
    for req_id in req_ids:
        groups = len(requests[req_id].block_ids)
        if groups <= last:
            refuse(f"requests[{req_id!r}].block_ids", f"{groups} groups", f"more than {last}", _FUNCTION)


def _accepted(counts: Any, req_ids: Sequence[str], bufs: MambaCopyBuffers) -> list[int]:
    """The accepted count of each row."""
    rows = len(req_ids)
    if bufs.moves is not None and rows > bufs.moves.np.shape[1]:
        rule = f"{bufs.moves.np.shape[1]} at most, max_num_reqs of copy_bufs"
        refuse("input_batch.req_ids", f"{rows} requests", rule, _FUNCTION)
    if len(set(req_ids)) < rows:
        refuse("input_batch.req_ids", req_ids, "without repetition", _FUNCTION)
    if not (isinstance(counts, np.ndarray) and counts.ndim == 1 and counts.size >= rows):
        rule = f"a 1-D array of at least {rows} counts"
        refuse("input_batch.num_accepted_tokens_cpu", repr(counts), rule, _FUNCTION)
    accepted: list[int] = counts[:rows].tolist()
    return accepted


def _step(
    scheduled: Mapping[str, int],
    remembered: Mapping[str, int],
    req_ids: Sequence[str],
    accepted: Sequence[int],
    requests: Mapping[str, Any],
    bufs: MambaCopyBuffers,
) -> Step:
    # Plain Python, almost without calls: this loop is most of the host time of a step.
    block_size, most = bufs.mamba_spec.block_size, 1 + bufs.mamba_spec.num_speculative_blocks
    group_ids = bufs.mamba_group_ids
    step = Step([], [], [], [], [])
    for row, (req_id, count) in enumerate(zip(req_ids, accepted, strict=True)):
        request, length = requests[req_id], scheduled[req_id]
        computed = request.num_computed_tokens
        if not computed.__class__ is length.__class__ is int:
            computed, length = _as_ints(req_id, computed, length)
        if computed < 0 or length < 1 or not 1 <= count <= most:
            _refuse_numbers(row, req_id, computed, length, count, most)
        column = (computed + length - 1) // block_size
        step.columns.append(column)
        source = remembered.get(req_id)
        if source is None:
            source = (computed - 1) // block_size
        # -1 is remembered of a request that had no state yet; it is not to be computed anew from its tokens.
        if source in (column, -1):
            continue
        last = source + count - 1
        for group_id in group_ids:
            blocks = request.block_ids[group_id]
            size = len(blocks)
            # Written out, since a loop over the three columns takes twice as long.
            if not (0 <= source < size and blocks[source] > NULL_BLOCK_ID):
                _refuse_block(req_id, group_id, blocks, source)
            if not (last < size and blocks[last] > NULL_BLOCK_ID):
                _refuse_block(req_id, group_id, blocks, last)
            if not (column < size and blocks[column] > NULL_BLOCK_ID):
                _refuse_block(req_id, group_id, blocks, column)
        step.rows.append(row)
        step.src_cols.append(source)
        step.dst_cols.append(column)
        step.biases.append(count - 1)
    return step


def _as_ints(req_id: str, computed: object, length: object) -> tuple[int, int]:
    """Both as Python ints, which they are in almost every row."""
    return (
        as_int(f"requests[{req_id!r}].num_computed_tokens", computed, _FUNCTION),
        as_int(f"scheduler_output.num_scheduled_tokens[{req_id!r}]", length, _FUNCTION),
    )


def _refuse_numbers(row: int, req_id: str, computed: int, length: int, count: int, most: int) -> None:
    if computed < 0:
        refuse(f"requests[{req_id!r}].num_computed_tokens", computed, ">= 0", _FUNCTION)
    if length < 1:
        refuse(f"scheduler_output.num_scheduled_tokens[{req_id!r}]", length, ">= 1", _FUNCTION)
    refuse(f"input_batch.num_accepted_tokens_cpu[{row}]", count, f"in 1..{most}", _FUNCTION)


def _refuse_block(req_id: str, group_id: int, blocks: Sequence[int], column: int) -> None:
    """Refuse a move that begins or ends in this column."""
    if column < 0:
        refuse(f"mamba_state_idx[{req_id!r}]", column, ">= -1", _FUNCTION)
    place = f"requests[{req_id!r}].block_ids[{group_id}]"
    if column >= len(blocks):
        refuse(place, f"{len(blocks)} columns", f"more than {column}", _FUNCTION)
    refuse_null(place, blocks, column, _FUNCTION)


def refuse_null(place: str, blocks: Sequence[int], column: int, function: str) -> NoReturn:
    """Refuse a move that begins or ends at the null block."""
    rule = f"> {NULL_BLOCK_ID}, which is the null block, in {place}"
    refuse(f"block_ids[{column}]", blocks[column], rule, function)
