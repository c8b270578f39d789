"""Bringing a step's per-request numbers to the device, where the fused kernel after the step reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import INT32_MAX, int_at_least, refuse
from .buffers import CpuGpuBuffer
from .context import MambaSpecDecodeGPUContext
from .moves import check_entries

_BUFFERS = (
    "mamba_state_idx_buf",
    "num_scheduled_tokens_buf",
    "num_computed_tokens_buf",
    "num_draft_tokens_buf",
)

_Numbers = dict[str, list[int]]
"""Where they come from -> one number per batch row."""


def stage_mamba_state_idx_to_gpu(
    mamba_state_idx: Mapping[str, int], req_ids: Sequence[str], num_reqs: int, gpu_buf: CpuGpuBuffer
) -> None:
    """Write the running columns of the first `num_reqs` requests, in batch order, and start to upload them.

    `gpu_buf`: int32 [rows]. Raises ValueError, before anything is written, naming `num_reqs` beyond `req_ids`
    or the buffer, or `mamba_state_idx['id']` missing or negative: `preprocess_mamba` has to come first.
    Source: document 4, `stage_mamba_state_idx_to_gpu`.
    """
    function = "stage_mamba_state_idx_to_gpu"
    ids = batch_ids(req_ids, num_reqs, function)
    _upload((gpu_buf,), _columns(mamba_state_idx, ids, function), ids, function)


def stage_postprocess_metadata_to_gpu(
    scheduler_output: Any,
    req_ids: Sequence[str],
    num_reqs: int,
    requests: Mapping[str, Any],
    num_scheduled_tokens_buf: CpuGpuBuffer,
    num_computed_tokens_buf: CpuGpuBuffer,
    num_draft_tokens_buf: CpuGpuBuffer,
) -> None:
    """Write scheduled, computed and draft tokens of the first `num_reqs` requests and start to upload them.

    The buffers are int32 [rows]. A request that `scheduled_spec_decode_tokens` does not have has no drafts.

    Raises ValueError, before anything is written, naming `num_reqs` beyond `req_ids` or a buffer, and
    `num_scheduled_tokens['id']` or `requests['id']` missing or negative.
    Source: document 4, `stage_postprocess_metadata_to_gpu`.
    """
    function = "stage_postprocess_metadata_to_gpu"
    ids = batch_ids(req_ids, num_reqs, function)
    numbers = _metadata(scheduler_output, requests, ids, function)
    buffers = num_scheduled_tokens_buf, num_computed_tokens_buf, num_draft_tokens_buf
    _upload(buffers, numbers, ids, function)


def stage_postprocess_inputs_to_gpu(
    ctx: MambaSpecDecodeGPUContext,
    scheduler_output: Any,
    req_ids: Sequence[str],
    num_reqs: int,
    requests: Mapping[str, Any],
    mamba_state_idx: Mapping[str, int],
) -> None:
    """Both of the above, into the buffers of `ctx`: all that the fused kernel reads but the accepted counts.

    Raises ValueError as they do, and naming a buffer that `ctx` does not have; before anything is written.
    Source: document 4, `stage_postprocess_inputs_to_gpu`.
    """
    function = "stage_postprocess_inputs_to_gpu"
    ids = batch_ids(req_ids, num_reqs, function)
    numbers = _columns(mamba_state_idx, ids, function) | _metadata(scheduler_output, requests, ids, function)
    _upload(staging_buffers(ctx, "ctx", function), numbers, ids, function)


def staging_buffers(ctx: MambaSpecDecodeGPUContext, place: str, function: str) -> list[CpuGpuBuffer]:
    """The context's buffers of running columns, scheduled, computed and draft tokens."""
    buffers = []
    for name in _BUFFERS:
        buffer = getattr(ctx, name)
        if buffer is None:
            refuse(f"{place}.{name}", None, "a CpuGpuBuffer", function)
        buffers.append(buffer)
    return buffers


def batch_ids(req_ids: Sequence[str], num_reqs: int, function: str) -> Sequence[str]:
    """The ids of the first `num_reqs` rows. Raises ValueError naming `num_reqs` if there are not so many."""
    count = int_at_least("num_reqs", num_reqs, 0, function)
    if count > len(req_ids):
        refuse("num_reqs", count, f"<= {len(req_ids)}, the number of req_ids", function)
    return req_ids[:count]


def _columns(mamba_state_idx: Mapping[str, int], ids: Sequence[str], function: str) -> _Numbers:
    """Running columns by row."""
    try:
        return {"mamba_state_idx": [mamba_state_idx[req_id] for req_id in ids]}
    except KeyError:
        check_entries("mamba_state_idx", mamba_state_idx, ids, function)
        raise


def _metadata(
    scheduler_output: Any, requests: Mapping[str, Any], ids: Sequence[str], function: str
) -> _Numbers:
    """Scheduled, computed and draft tokens by row."""
    scheduled = scheduler_output.num_scheduled_tokens
    drafts = scheduler_output.scheduled_spec_decode_tokens
    try:
        return {
            "scheduler_output.num_scheduled_tokens": [scheduled[req_id] for req_id in ids],
            "requests": [requests[req_id].num_computed_tokens for req_id in ids],
            "scheduler_output.scheduled_spec_decode_tokens": [len(drafts.get(req_id, ())) for req_id in ids],
        }
    except KeyError:
        check_entries("scheduler_output.num_scheduled_tokens", scheduled, ids, function)
        check_entries("requests", requests, ids, function)
        raise


def _upload(buffers: Sequence[CpuGpuBuffer], numbers: _Numbers, ids: Sequence[str], function: str) -> None:
    """Write all numbers, once it is known that all of them fit, and start the uploads."""
    rows = len(ids)
    for buffer, (name, values) in zip(buffers, numbers.items(), strict=True):
        if rows > len(buffer.np):
            refuse("num_reqs", rows, f"<= {len(buffer.np)}, the rows of the buffer", function)
        if rows and not 0 <= min(values) <= max(values) <= INT32_MAX:
            row = next(i for i, value in enumerate(values) if not 0 <= value <= INT32_MAX)
            refuse(f"{name}[{ids[row]!r}]", values[row], f"in 0..{INT32_MAX}", function)
    for buffer, values in zip(buffers, numbers.values(), strict=True):
        buffer.np[:rows] = values
    for buffer in buffers:
        buffer.copy_to_gpu(rows)
