"""What a runner that keeps requests in rows does around a step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from statecheck.subject.subject import NotOffered
from subjects.plain.context import MambaSpecDecodeGPUContext
from subjects.plain.groups import plain_states
from subjects.plain.lists import MambaCopyBuffers
from subjects.plain.port import ask, ints, read_as, state_layout

__all__ = [
    "MambaBuffers",
    "cleanup_mamba_state_idx",
    "postprocess_mamba_align_gpu",
    "preprocess_mamba",
    "stage_postprocess_inputs_to_gpu",
]


@dataclass
class MambaBuffers:
    """What the runner keeps between steps."""

    preprocess: MambaCopyBuffers
    postprocess_align: MambaSpecDecodeGPUContext | None

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        copy_funcs: Sequence[Any],
        make_buffer: Callable[..., Any],
        device: torch.device,
        with_postprocess_align: bool,
    ) -> Self:
        lists = MambaCopyBuffers.create(max_num_reqs, kv_cache_config, copy_funcs, make_buffer)
        if not with_postprocess_align:
            return cls(lists, None)
        context = MambaSpecDecodeGPUContext.create(
            max_num_reqs, kv_cache_config, len(copy_funcs), device, make_buffer
        )
        context.stages = True
        return cls(lists, context)


def cleanup_mamba_state_idx(scheduler_output: Any, mamba_state_idx: dict[str, int]) -> None:
    ask(
        "drop_columns",
        columns=mamba_state_idx,
        finished=list(scheduler_output.finished_req_ids),
        preempted=list(scheduler_output.preempted_req_ids or ()),
        resumed=list(scheduler_output.scheduled_cached_reqs.resumed_req_ids),
    )


def preprocess_mamba(
    scheduler_output: Any,
    kv_cache_config: Any,
    cache_config: Any,
    mamba_state_idx: dict[str, int],
    input_batch: Any,
    requests: Mapping[str, Any],
    forward_context: Mapping[str, Any],
    mamba_state_copy_funcs: Sequence[Any],
    copy_bufs: MambaCopyBuffers,
) -> Any:
    """None; what `preprocess_by_row` returned where that is no column of each row."""
    if not cache_config.enable_prefix_caching:
        raise NotOffered("states are precopied where prefixes are cached")
    ids, group_ids = list(input_batch.req_ids), copy_bufs.mamba_group_ids
    states = plain_states(kv_cache_config, group_ids, forward_context, mamba_state_copy_funcs)
    cleanup_mamba_state_idx(scheduler_output, mamba_state_idx)
    running = ask(
        "preprocess_by_row",
        states=states,
        block_tables=_tables(input_batch, [requests[one] for one in ids], group_ids, states[0][0].device),
        columns=[mamba_state_idx.get(one) for one in ids],
        num_computed_tokens=[requests[one].num_computed_tokens for one in ids],
        num_scheduled_tokens=[scheduler_output.num_scheduled_tokens[one] for one in ids],
        num_accepted_tokens=torch.from_numpy(input_batch.num_accepted_tokens_cpu)[: len(ids)],
        block_size=copy_bufs.mamba_spec.block_size,
        layout=state_layout(),
    )
    columns = read_as(lambda found: dict(zip(ids, ints(found), strict=True)), running)
    if columns is running:
        return running
    mamba_state_idx.update(columns)
    return None


def _tables(
    input_batch: Any, requests: Sequence[Any], group_ids: Sequence[int], device: torch.device
) -> list[torch.Tensor]:
    """The batch's block tables; where it has none on the device, the requests' own blocks, with null blocks behind them."""
    if hasattr(input_batch, "block_table"):
        return [input_batch.block_table[number].get_device_tensor(len(requests)) for number in group_ids]
    return [_table([one.block_ids[number] for one in requests], device) for number in group_ids]


def _table(rows: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    width = max(map(len, rows), default=0)
    cells = [[*row, *(0,) * (width - len(row))] for row in rows]
    return torch.tensor(cells, dtype=torch.int32, device=device).reshape(len(rows), width)


def stage_postprocess_inputs_to_gpu(
    ctx: MambaSpecDecodeGPUContext,
    scheduler_output: Any,
    req_ids: Sequence[str],
    num_reqs: int,
    requests: Mapping[str, Any],
    mamba_state_idx: Mapping[str, int],
) -> None:
    if not ctx.stages:
        raise NotOffered("plain functions are handed their vectors, and stage none")
    ids, drafts = req_ids[:num_reqs], scheduler_output.scheduled_spec_decode_tokens
    numbers = {
        "mamba_state_idx": [mamba_state_idx[one] for one in ids],
        "num_scheduled_tokens": [scheduler_output.num_scheduled_tokens[one] for one in ids],
        "num_computed_tokens": [requests[one].num_computed_tokens for one in ids],
        "num_draft_tokens": [len(drafts.get(one, ())) for one in ids],
    }
    for name, values in numbers.items():
        buffer = getattr(ctx, f"{name}_buf")
        buffer.np[:num_reqs] = values
        buffer.copy_to_gpu(num_reqs)


def postprocess_mamba_align_gpu(
    *,
    bufs: MambaBuffers,
    num_reqs: int,
    num_accepted_tokens_gpu: torch.Tensor,
    num_accepted_tokens_cpu_tensor: torch.Tensor,
    input_batch: Any,
    kv_cache_config: Any,
    forward_context: Mapping[str, Any],
    mamba_state_copy_funcs: Sequence[Any],
) -> None:
    context = bufs.postprocess_align
    if num_reqs == 0 or context is None:
        return
    tables = [
        input_batch.block_table[number].get_device_tensor(num_reqs) for number in context.mamba_group_ids
    ]
    context.initialize_from_forward_context(kv_cache_config, forward_context, mamba_state_copy_funcs, tables)
    # Tables and batches change between steps; only the states stay where they are.
    context.tables = tables
    context.run_fused_postprocess(
        num_reqs,
        num_accepted_tokens_gpu,
        context.mamba_state_idx_buf.gpu,
        context.num_scheduled_tokens_buf.gpu,
        context.num_computed_tokens_buf.gpu,
        context.num_draft_tokens_buf.gpu,
    )
    counts = context.num_accepted_tokens_out[:num_reqs]
    num_accepted_tokens_cpu_tensor[:num_reqs].copy_(counts, non_blocking=True)
