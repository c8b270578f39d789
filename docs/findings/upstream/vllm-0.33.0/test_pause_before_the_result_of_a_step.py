# SPDX-License-Identifier: Apache-2.0
"""A decode behind a pause in which the scheduler took in the result of the step in flight."""

from vllm.v1.core.sched.interface import PauseState

DRAFTS = {"method": "mtp", "num_speculative_tokens": 1}


def computed_by_the_runner(make_engine, accepted=0, pause=True):
    """Computed tokens in the row of a request behind a decode with one draft, of which so many were accepted."""
    engine = make_engine(
        runner=True, enable_prefix_caching=True, speculative_config=DRAFTS, async_scheduling=True
    )
    runner = engine.runner
    engine.add("decoding", [5, 6])
    prefill = engine.schedule()
    runner._update_states(prefill)
    decode = engine.schedule()
    runner._update_states(decode)
    engine.finish(prefill)
    if pause:
        engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
        engine.finish(decode, accepted)
        engine.scheduler.set_pause_state(PauseState.UNPAUSED)
    output = engine.schedule()
    assert output.num_scheduled_tokens == {"decoding": 2}
    # What the sampler leaves behind `decode`: the request's row, and how many tokens it got.
    runner.input_batch.prev_req_id_to_index = {"decoding": 0}
    runner._get_valid_sampled_token_count = lambda: [1 + accepted]
    correct_spec_decode_token_counts = runner._update_states(output)
    if correct_spec_decode_token_counts is not None:
        correct_spec_decode_token_counts()
    return runner.input_batch.num_computed_tokens_cpu[0]


def test_a_rejected_draft_is_subtracted_once_behind_a_pause(make_engine):
    assert computed_by_the_runner(make_engine) == 3  # the prompt's two tokens, and the decode's
