"""The end of a turn with room for drafts behind its last token."""

import pytest


@pytest.mark.parametrize("allocated", [4, 3])
def test_the_last_token_is_not_counted_as_computed(turns, allocated):
    ended = turns.send("r0")  # a prompt of one token, and two that were said: the last one was not computed
    ended.kv.configure_mock(kv_allocated_len=allocated, kv_committed_len=2, max_evicted_seqlen=0)
    ended.configure_mock(output_ids=[7, 8], finished_len=2, full_untruncated_fill_ids=[1, 7, 8])
    turns.run_on_the_record(ended)

    turns.records.try_cache_finished_req(ended)

    assert ended.kv.kv_committed_len == 2
