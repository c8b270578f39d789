"""Two boundaries that a request passes in decodes, the first one right behind its prefill, with the default interval."""

from types import SimpleNamespace as Of
from unittest.mock import MagicMock

import sglang.srt.managers.scheduler_components.batch_result_processor as results

GRID, PROMPT = 256, 255


def test_the_state_of_the_first_boundary_is_not_overwritten(monkeypatch):
    monkeypatch.setattr(results, "get_exec", lambda: Of(mamba=Of(enable_mamba_extra_buffer_lazy=False)))
    monkeypatch.setattr(results, "get_disagg", lambda: Of(disaggregation_decode_enable_offload_kvcache=False))
    monkeypatch.setattr(results, "mamba_track_grid", lambda _: GRID)
    processor = object.__new__(results.SchedulerBatchResultProcessor)
    monkeypatch.setattr(type(processor), "_maybe_collect_customized_info", MagicMock())
    object.__setattr__(processor, "tree_cache", Of(page_size=1))
    kv = MagicMock(mamba_next_track_idx=0, mamba_ping_pong_track_buffer=(0, 1), kv_committed_len=PROMPT)
    request = MagicMock(rid="r0", kv=kv, decode_batch_idx=0, finished=lambda: False)
    request.origin_input_ids, request.output_ids = range(PROMPT), [0]
    pool, algorithm = Of(get_mamba_ping_pong_other_idx=lambda index: 1 - index), Of(is_none=lambda: True)
    launched, slots = [], {}
    for length in range(PROMPT + 1, 2 * GRID + 1):
        # A decode is launched, with what `ScheduleBatch.prepare_for_decode` keeps of it.
        request.decode_batch_idx, kv.kv_committed_len = request.decode_batch_idx + 1, length
        batch = Of(req_to_token_pool=pool, spec_algorithm=algorithm)
        batch.mamba_track_mask_cpu = [length % GRID == 0]
        batch.mamba_track_mask_next_cpu = [length % GRID == GRID - 1]
        batch.mamba_track_buffer_indices = [kv.mamba_next_track_idx]
        batch.mamba_decode_batch_idx_cpu = [request.decode_batch_idx]
        launched.append(batch)
        slots[length] = kv.mamba_next_track_idx
        # The result of the decode before it is processed: with overlap one step later.
        if len(launched) > 1:
            request.output_ids.append(0)
            processor._handle_finish_state_updated_req(request, launched[-2], None, 0, None)
    assert (kv.mamba_last_track_seqlen, kv.mamba_last_track_idx) == (GRID, slots[GRID])
    assert slots[2 * GRID] != slots[GRID]
