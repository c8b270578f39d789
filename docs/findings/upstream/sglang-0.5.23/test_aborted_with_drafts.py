"""A request is aborted while a step with drafts is in flight, whose accepted tokens pass its end. Controls: it is not aborted, or no token is behind its end."""

from array import array
from types import SimpleNamespace as Of

from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req

STOP = 9


def sent(accepted, aborted, most=12):
    """The tokens of its output that a client gets, where a step of a verification accepts these."""
    request = object.__new__(Req)
    request.finished_reason = request.finished_len = request.grammar = request.tokenizer = None
    request.vocab_size, request.eos_token_ids = 100, None
    request.sampling_params = Of(
        ignore_eos=False, stop_token_ids={STOP}, max_new_tokens=most, stop_strs=[], stop_regex_strs=[]
    )
    request.to_finish = FINISH_ABORT() if aborted else None
    request.output_ids = array("q", [1, *accepted])
    request.update_finish_state(len(accepted))
    return list(request.output_ids_through_stop)


def test_no_token_behind_a_stop_token_is_sent():
    assert sent([2, STOP, 3], aborted=False) == [1, 2, STOP]
    assert sent([2, 3], aborted=True) == [1, 2, 3]
    assert sent([2, STOP, 3], aborted=True) == [1, 2, STOP]


def test_no_token_behind_the_length_is_sent():
    assert sent([2, 3, 4], aborted=False, most=3) == [1, 2, 3]
    assert sent([2, 3, 4], aborted=True, most=3) == [1, 2, 3]
