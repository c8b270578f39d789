"""The record of a turn that ended, and the number of tokens that the state of its recurrent layers is of."""

import pytest


def record_of(turns, allocated, state):
    ended = turns.send("r0")  # a prompt of one token, and two that were said
    ended.kv.configure_mock(kv_allocated_len=allocated, kv_committed_len=state, max_evicted_seqlen=0)
    ended.configure_mock(output_ids=[7, 8], finished_len=2, full_untruncated_fill_ids=[1, 7, 8])
    turns.run_on_the_record(ended)
    turns.records.try_cache_finished_req(ended)
    return turns.records.slots.get("s0")


@pytest.mark.parametrize("state", [2, 4])  # drafts rejected, and more accepted than the turn may say
def test_a_kept_record_counts_the_tokens_of_its_state(turns, state):
    # A control: no drafts, and the turn ended by its length. Its last token was not computed.
    assert record_of(type(turns)(), allocated=2, state=2).kv.kv_committed_len == 2

    kept = record_of(turns, allocated=6, state=state)  # there is room for drafts

    assert kept is None or kept.kv.kv_committed_len == state
