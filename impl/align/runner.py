"""What a V1 runner does around a forward: bring states to where they are read, keep those at boundaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..checks import describe, int_at_least, refuse
from ..layout import MambaStateCopyFunc
from .buffers import CpuGpuBuffer, MambaCopyBuffers
from .context import MambaSpecDecodeGPUContext
from .groups import get_mamba_groups
from .memcpy import Entry, append_entries, check_room, do_mamba_copy_block, entries_of_request
from .moves import Step, check_entries, cleanup_mamba_state_idx, decide
from .staging import batch_ids, staging_buffers


@dataclass
class MambaBuffers:
    """All buffers of a runner in align mode: those before a forward, and those of speculation after it.

    `postprocess_align` is None without speculation. Source: document 4, `MambaBuffers`.
    """

    preprocess: MambaCopyBuffers
    postprocess_align: MambaSpecDecodeGPUContext | None

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        copy_funcs: Sequence[MambaStateCopyFunc],
        make_buffer: Callable[..., CpuGpuBuffer],
        device: torch.device,
        with_postprocess_align: bool,
    ) -> MambaBuffers:
        """Buffers for `max_num_reqs` requests; `make_buffer(*size, dtype=...)` makes them, on `device`.

        Raises ValueError as `MambaCopyBuffers.create` does. Source: document 4, `MambaBuffers`.
        """
        preprocess = MambaCopyBuffers.create(max_num_reqs, kv_cache_config, copy_funcs, make_buffer)
        context = None
        if with_postprocess_align:
            context = MambaSpecDecodeGPUContext.create(
                max_num_reqs=max_num_reqs,
                kv_cache_config=kv_cache_config,
                num_state_types=len(copy_funcs),
                device=device,
                make_buffer=make_buffer,
            )
        return cls(preprocess, context)


def preprocess_mamba(
    scheduler_output: Any,
    kv_cache_config: Any,
    cache_config: Any,
    mamba_state_idx: dict[str, int],
    input_batch: Any,
    requests: Mapping[str, Any],
    forward_context: Mapping[str, Any],
    mamba_state_copy_funcs: Sequence[MambaStateCopyFunc],
    copy_bufs: MambaCopyBuffers,
) -> None:
    """Before a forward: bring each request's state to the column that the request is going to run in.

    That is the column of the last token scheduled. It is remembered in `mamba_state_idx`, after finished,
    preempted and resumed requests were forgotten. A request that ran in another column, or that is not
    remembered and has computed tokens in another, has the state after its accepted tokens copied, and its
    count in `input_batch.num_accepted_tokens_cpu` (by row) becomes 1. All copies are one launch that is not
    waited for: by the device's block tables if `input_batch` has its `block_table`, else by addresses.

    Raises ValueError, before anything is changed, naming `cache_config.enable_prefix_caching` if it is off;
    `input_batch.req_ids` (more than max_num_reqs, or one twice); `requests['id']` or
    `num_scheduled_tokens['id']` (missing, below 0 computed or 1 scheduled token);
    `num_accepted_tokens_cpu[row]` outside 1..1+m; `mamba_state_idx['id']` below -1;
    `requests['id'].block_ids[g]` if a column to be read or written is past it or null; and what is wrong with
    `forward_context` or the tables. Raises NotImplementedError, as early, where rows would have to be shifted
    by address in layout DS. Source: document 4, `preprocess_mamba`; contract 2.3.
    """
    function = "preprocess_mamba"
    if not cache_config.enable_prefix_caching:
        refuse("cache_config.enable_prefix_caching", False, "True", function)
    step = decide(scheduler_output, mamba_state_idx, input_batch, requests, copy_bufs)
    by_table = copy_bufs.context is not None and hasattr(input_batch, "block_table")
    entries: list[Entry] = []
    if step.rows and by_table:
        tables = input_batch.block_table, len(step.columns)
        _bind(copy_bufs.context, tables, kv_cache_config, forward_context, mamba_state_copy_funcs)
    elif step.rows:
        entries = _entries(
            step,
            kv_cache_config,
            input_batch.req_ids,
            requests,
            forward_context,
            mamba_state_copy_funcs,
            copy_bufs,
        )

    # From here on nothing is refused: what was decided is written.
    cleanup_mamba_state_idx(scheduler_output, mamba_state_idx)
    mamba_state_idx.update(zip(input_batch.req_ids, step.columns, strict=True))
    copy_bufs.offset = 0
    if not step.rows:
        return
    input_batch.num_accepted_tokens_cpu[step.rows] = 1
    if by_table:
        _move_by_table(step, copy_bufs)
    else:
        append_entries(copy_bufs, entries)
        do_mamba_copy_block(copy_bufs)


def _bind(
    context: MambaSpecDecodeGPUContext | None,
    block_table: tuple[Any, int],
    kv_cache_config: Any,
    forward_context: Mapping[str, Any],
    copy_funcs: Sequence[MambaStateCopyFunc],
) -> None:
    """Initialise the context, the first time. `block_table`: the batch's, and its number of rows.

    There is at least one row, since an empty tensor has no address.
    """
    assert context is not None
    groups, rows = block_table
    if not context.is_initialized:
        tables = [groups[group_id].get_device_tensor(rows) for group_id in context.mamba_group_ids]
        context.initialize_from_forward_context(kv_cache_config, forward_context, tuple(copy_funcs), tables)


def _entries(
    step: Step,
    kv_cache_config: Any,
    req_ids: Sequence[str],
    requests: Mapping[str, Any],
    forward_context: Mapping[str, Any],
    copy_funcs: Sequence[MambaStateCopyFunc],
    bufs: MambaCopyBuffers,
) -> list[Entry]:
    """The step's copies by address, for which there is room."""
    entries = []
    for row, move in step.moves():
        place = f"requests[{req_ids[row]!r}].block_ids"
        blocks = requests[req_ids[row]].block_ids
        entries += entries_of_request(
            kv_cache_config,
            copy_funcs,
            bufs.mamba_group_ids,
            move,
            (place, blocks),
            forward_context,
            "preprocess_mamba",
        )
    check_room(bufs, 0, entries, "preprocess_mamba")
    return entries


def _move_by_table(step: Step, bufs: MambaCopyBuffers) -> None:
    """Upload the moves and launch. Only a whole matrix can be uploaded at once, so that is what is."""
    assert bufs.moves is not None
    assert bufs.context is not None
    staged, rows = bufs.moves.np, len(step.columns)
    staged[1, :rows] = -1
    staged[:, step.rows] = (step.dst_cols, step.src_cols, step.biases)
    bufs.context.run_precopy_rows(rows, bufs.moves.copy_to_gpu())


def postprocess_mamba_align_gpu(
    *,
    bufs: MambaBuffers,
    num_reqs: int,
    num_accepted_tokens_gpu: torch.Tensor,
    num_accepted_tokens_cpu_tensor: torch.Tensor,
    input_batch: Any,
    kv_cache_config: Any,
    forward_context: Mapping[str, Any],
    mamba_state_copy_funcs: Sequence[MambaStateCopyFunc],
) -> None:
    """After a forward with speculation: keep the states at boundaries that accepted tokens passed.

    `num_accepted_tokens_gpu`: int32 [rows] on the device, only read. What the next step has to apply is
    copied to the front of `num_accepted_tokens_cpu_tensor` (int32 [rows] on the host, pinned) without waiting
    for it. The other numbers are those that were staged last.

    Raises ValueError naming `bufs.postprocess_align` if it is None, `num_accepted_tokens_cpu_tensor` if it
    does not fit, and as `run_fused_postprocess` and `initialize_from_forward_context` do; then nothing was
    copied. Source: document 4, `postprocess_mamba_align_gpu`.
    """
    function = "postprocess_mamba_align_gpu"
    ctx = bufs.postprocess_align
    if ctx is None:
        refuse("bufs.postprocess_align", None, "a context, as with_postprocess_align makes one", function)
    columns, scheduled, computed, drafts = staging_buffers(ctx, "bufs.postprocess_align", function)
    rows = int_at_least("num_reqs", num_reqs, 0, function)
    _check_host_counts(num_accepted_tokens_cpu_tensor, rows, function)
    if rows == 0:
        return
    _bind(ctx, (input_batch.block_table, num_reqs), kv_cache_config, forward_context, mamba_state_copy_funcs)
    ctx.run_fused_postprocess(
        num_reqs=num_reqs,
        num_accepted_tokens_gpu=num_accepted_tokens_gpu,
        mamba_state_idx_gpu=columns.gpu,
        num_scheduled_tokens_gpu=scheduled.gpu,
        num_computed_tokens_gpu=computed.gpu,
        num_draft_tokens_gpu=drafts.gpu,
    )
    counts = ctx.num_accepted_tokens_out[:num_reqs]
    num_accepted_tokens_cpu_tensor[:num_reqs].copy_(counts, non_blocking=True)


def _check_host_counts(counts: torch.Tensor, rows: int, function: str) -> None:
    # Any other form would be converted on the way, for which the copy has to wait.
    if not (isinstance(counts, torch.Tensor) and counts.is_cpu and counts.dtype == torch.int32):
        rule = "an int32 tensor on the CPU"
        refuse("num_accepted_tokens_cpu_tensor", describe(counts), rule, function)
    if counts.ndim != 1 or counts.size(0) < rows or not counts.is_contiguous():
        rule = f"a contiguous vector of at least {rows} entries"
        refuse("num_accepted_tokens_cpu_tensor", describe(counts), rule, function)


def postprocess_mamba_all(
    scheduler_output: Any,
    kv_cache_config: Any,
    input_batch: Any,
    requests: Mapping[str, Any],
    mamba_state_idx: dict[str, int],
    num_spec_tokens: int,
    num_reqs: int,
) -> None:
    """After a step in mode all with speculation: remember the column of each full decode's last token
    scheduled.

    A row of 1 + `num_spec_tokens` tokens is one; any other row's column is forgotten. Does nothing without
    drafts.

    Raises ValueError, before anything is changed, naming `num_reqs` beyond `input_batch.req_ids`,
    `requests['id']` that is missing, or `kv_cache_config` as `get_mamba_groups` does. Source: document 4,
    `postprocess_mamba_all`.
    """
    if num_spec_tokens <= 0:
        return
    function = "postprocess_mamba_all"
    ids = batch_ids(input_batch.req_ids, num_reqs, function)
    _, spec = get_mamba_groups(kv_cache_config)
    scheduled = scheduler_output.num_scheduled_tokens
    full = [req_id for req_id in ids if scheduled.get(req_id) == 1 + num_spec_tokens]
    check_entries("requests", requests, full, function)
    columns = {
        req_id: (requests[req_id].num_computed_tokens + num_spec_tokens) // spec.block_size for req_id in full
    }
    for req_id in ids:
        if req_id in columns:
            mamba_state_idx[req_id] = columns[req_id]
        else:
            mamba_state_idx.pop(req_id, None)
