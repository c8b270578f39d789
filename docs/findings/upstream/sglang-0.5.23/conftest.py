"""A streaming session and the records of its turns, as the scheduler passes requests to them. No model and no GPU is needed."""

import os

# Before sglang is imported: its own switches for a machine without a GPU.
os.environ.update(SGLANG_USE_CPU_ENGINE="1", CUDA_VISIBLE_DEVICES="0")

from unittest.mock import MagicMock

import pytest
from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.session.session_controller import Session, SessionController
from sglang.srt.session.streaming_session import SessionSlot, StreamingSession


def request(**given):
    made = MagicMock(**given, to_finish=None, finished_reason=None)
    made.set_finish_with_abort = lambda message: setattr(made, "to_finish", FINISH_ABORT(message))
    return made


class StreamedTurns:
    """A session "s0" of a controller, with the records of streaming sessions."""

    def __init__(self):
        self.session = Session(capacity_of_str_len=1000, session_id="s0", streaming=True)
        self.records = StreamingSession(cache=MagicMock(page_size=1))
        self.controller = SessionController(tree_cache=MagicMock())
        self.controller.sessions["s0"] = self.session

    def send(self, rid, token=1):
        parameters = MagicMock(rid=None, replace=False, drop_previous_output=False, offset=None)
        asked = MagicMock(rid=rid, input_ids=[token], session_params=parameters)
        return self.session.create_req(asked, None, 100, req_factory=request)

    def run_on_the_record(self, turn):
        self.records.slots["s0"] = SessionSlot(kv=turn.kv)

    def close(self):
        """Close the session, and let the controller look for closed ones a few times; whether its slots are given back."""
        self.controller.close(MagicMock(session_id="s0"))
        for now in (10.0, 20.0, 30.0):
            self.controller.maybe_reap(now)
        return self.controller.tree_cache.release_session.called


@pytest.fixture
def turns():
    return StreamedTurns()
