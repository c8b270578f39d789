# SPDX-License-Identifier: Apache-2.0
"""A decode that is left out of one step: the accepted drafts of its last step are not forgotten."""

DRAFTS = {"method": "custom_class", "model": "conftest.Drafter", "num_speculative_tokens": 1}


def test_a_request_that_was_left_out_reads_the_state_of_its_accepted_draft(make_engine):
    engine = make_engine(runner=True, enable_prefix_caching=True, speculative_config=DRAFTS)
    budget = engine.scheduler.max_num_scheduled_tokens
    chunk = budget // engine.block_size * engine.block_size
    engine.add("long", range(1, 2 * chunk + budget + 1))
    engine.add("decoding", [5, 6])
    engine.step()
    engine.step(accepted=1)  # "decoding" accepts its draft
    output = engine.step()  # the last chunk of "long" takes the whole budget
    assert list(output.num_scheduled_tokens) == ["long"]

    engine.step()

    row = engine.runner.input_batch.req_id_to_index["decoding"]
    assert engine.runner.accepted_before[row] == 2
