"""A turn that a streaming session refuses, since another one runs."""


def test_a_refused_turn_takes_no_record(turns):
    first, refused = turns.send("r0"), turns.send("r1")
    assert refused.to_finish.message == "Streaming session already has an active request."

    # Both are scheduled: each looks for a record of its session, and gets a row.
    for turn in (first, refused):
        assert turns.records.find_active_slot(turn) is None
    for turn in (first, refused):
        turns.records.take(turn)

    assert turns.records.slots["s0"].kv is first.kv


def test_a_third_turn_is_refused_while_the_first_one_runs(turns):
    turns.run_on_the_record(turns.send("r0"))
    turns.records.find_active_slot(turns.send("r1"))  # when it is scheduled
    assert turns.send("r2").to_finish


def test_a_third_turn_leaves_the_tokens_of_the_turn_that_runs(turns):
    ended = turns.send("r0", token=1)
    turns.session.finish_req(ended)
    running = turns.send("r1", token=2)
    turns.run_on_the_record(running)
    turns.records.find_active_slot(turns.send("r2", token=3))  # when it is scheduled
    turns.send("r3", token=4)
    assert running.origin_input_ids == [1, 2]


def test_a_session_is_not_given_back_while_the_first_turn_runs(turns):
    turns.run_on_the_record(turns.send("r0"))
    turns.records.find_active_slot(turns.send("r1"))
    assert not turns.close()
