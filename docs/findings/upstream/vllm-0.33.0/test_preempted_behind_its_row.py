# SPDX-License-Identifier: Apache-2.0
"""With priorities, a request may be preempted in the step in which it already has a row: the row is taken back."""

from vllm.v1.request import RequestStatus

DRAFTS = {"method": "custom_class", "model": "conftest.Drafter", "num_speculative_tokens": 1}


def preempted_in_a_step(make_engine, policy="priority"):
    """The step in which "victim" fills a block and blocks run out; the filled block of attention, and that of a later hit."""
    arguments = {"enable_prefix_caching": True, "speculative_config": DRAFTS, "max_model_len": 2304}
    engine = make_engine(blocks=10, runner=True, scheduling_policy=policy, **arguments)
    size, caches, attention = engine.block_size, engine.scheduler.kv_cache_manager, 1 - engine.mamba_group
    engine.add("victim", range(1, size - 2))
    victim = engine.scheduler.requests["victim"]
    victim.priority = 1  # a larger number than that of "urgent", 0, gives way
    engine.step()
    engine.add("urgent", range(5000, 5000 + size - 2))
    engine.step()
    engine.step()
    filled = caches.get_block_ids("victim")[attention][0]
    output = engine.step()

    tokens = [*victim.all_token_ids[:size], 8, 9]
    engine.scheduler.finish_requests(["victim", "urgent"], RequestStatus.FINISHED_ABORTED)
    engine.run("saves a state behind the block", tokens)
    engine.add("hits", tokens)
    (hits,) = engine.step().scheduled_new_reqs
    assert hits.num_computed_tokens == size
    return output, filled, hits.block_ids[attention][0]


def test_a_block_of_a_row_that_was_taken_back_is_not_hit(make_engine):
    output, filled, hit = preempted_in_a_step(make_engine)
    assert list(output.num_scheduled_tokens) == ["urgent"]
    assert output.preempted_req_ids == {"victim"}
    # The row would have written the key and the value of the block's last token, and no other row has.
    assert hit != filled
