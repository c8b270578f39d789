"""A turn that is sent back to the queue, and aborted there."""


def test_a_session_of_an_aborted_turn_is_given_back(turns):
    only = turns.send("r0")
    only.kv.configure_mock(kv_allocated_len=1, kv_committed_len=1, max_evicted_seqlen=0)
    only.configure_mock(output_ids=[], finished_len=None, full_untruncated_fill_ids=[1])
    only.finished.return_value = False  # an abort in the queue sets no finished_reason
    turns.run_on_the_record(only)
    turns.records.try_cache_finished_req(only)  # it is sent back to the queue
    assert turns.close()
