# SPDX-License-Identifier: Apache-2.0
"""A decode behind a pause, in the first of two pipeline stages, which gets sampled tokens from the last stage."""

from types import SimpleNamespace

import numpy as np
import torch
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.worker.gpu import pp_utils

RANK = SimpleNamespace(is_last_rank=False, last_rank=1, world_size=2, make_sibling_device_group=lambda **_: 0)


def taken_in_before_the_decode(make_engine, monkeypatch, pause=True):
    """Sampled tokens that the first stage takes in before the decode behind a prompt runs."""
    monkeypatch.setattr(pp_utils, "get_pp_group", lambda: RANK)
    monkeypatch.setattr("torch.cuda.Stream", lambda *_: SimpleNamespace(wait_event=lambda _: None))
    monkeypatch.setattr("torch.cuda.current_stream", torch.cuda.Stream)
    handler = pp_utils.PPHandler(max_num_reqs=1, num_speculative_steps=0, device=torch.device("cpu"))

    def execute(output):  # as the model runner does with the handler
        taken_in = handler.get_prev_sampled_outputs() or {"sampled_tokens": torch.tensor([])}
        if output.num_scheduled_tokens:  # `receive` leaves such an entry
            row, needed = np.zeros(1, dtype=np.int32), np.ones(1, dtype=bool)
            entry = (None, torch.tensor([[7]]), None, None, None, row, needed, handler.req_idx_gen_np[row])
            handler.queue[-1] = pp_utils.PendingRecv(*entry, None)
        return taken_in["sampled_tokens"].tolist()

    (engine := make_engine(async_scheduling=False)).add("decoding", [5, 6])
    execute(prefill := engine.schedule())
    engine.scheduler.set_pause_state(PauseState.PAUSED_ALL if pause else PauseState.UNPAUSED)
    if engine.scheduler.has_requests():
        execute(engine.schedule())  # without rows: `step_with_batch_queue` fills its queue of two steps
    engine.finish(prefill)
    engine.scheduler.set_pause_state(PauseState.UNPAUSED)
    return execute(engine.schedule())


def test_a_stage_takes_in_a_token_before_the_request_goes_on_behind_a_pause(make_engine, monkeypatch):
    assert taken_in_before_the_decode(make_engine, monkeypatch) == [[7]]
