# SPDX-License-Identifier: Apache-2.0
"""A preempted request computes its tokens again, the last of them in a short chunk behind its prompt."""

DRAFTS = {"method": "custom_class", "model": "conftest.Drafter", "num_speculative_tokens": 1}


def test_the_last_chunk_of_a_preempted_request_is_a_prefill(make_engine):
    engine = make_engine(runner=True, enable_prefix_caching=True, speculative_config=DRAFTS)
    budget = engine.scheduler.max_num_scheduled_tokens
    blocks = budget // engine.block_size * engine.block_size
    engine.add("first", range(1, budget - blocks - 1))
    engine.add("second", range(1000, 1000 + blocks))
    for _ in range(2):
        engine.step()  # each has generated two tokens then
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    output = engine.step()  # what "first" leaves of the budget ends the chunk of "second" two tokens early
    assert output.num_scheduled_tokens["second"] == blocks

    output = engine.step()

    assert output.num_scheduled_tokens["second"] == 2
    assert "second" not in output.scheduled_spec_decode_tokens
    # As a decode with drafts the row would leave a state for each token, and one accepted token chooses the first.
    assert engine.mamba_metadata.num_prefill_tokens == 2
