"""A request that takes the place of its whole session."""

from types import SimpleNamespace as Of
from unittest.mock import MagicMock

from sglang.srt.session.session_controller import Session, SessionReqNode


def test_a_request_clears_all_requests_of_its_session():
    session = Session(capacity_of_str_len=1000, session_id="s0")
    first = SessionReqNode(Of(rid="r0", finished_reason="length"))
    session.req_nodes = {"r0": first, "r1": SessionReqNode(Of(rid="r1", finished_reason="length"), first)}
    parameters = Of(id="s0", rid=None, replace=True, offset=None, drop_previous_output=None)

    asked = MagicMock(rid="r2", session_params=parameters, input_ids=[2])
    session.create_req(asked, tokenizer=None, vocab_size=100, req_factory=MagicMock)

    assert list(session.req_nodes) == ["r2"]
