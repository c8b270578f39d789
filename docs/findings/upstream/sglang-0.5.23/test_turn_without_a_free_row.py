"""The turn of a streaming session that keeps a row is scheduled although no other row is free; with a free row, as a control, it is."""

from unittest.mock import MagicMock

import pytest
from sglang.srt.managers import scheduler as module

OFF = "enable_priority_preemption is_hybrid_swa enable_lora enable_hicache_storage enable_lmcache chunked_req"


class Admitted(Exception):
    """A request of the queue goes into the next batch."""


def schedule(request, records, free_rows):
    self = MagicMock(**dict.fromkeys(OFF.split()), waiting_queue=[request], min_free_slots_delayer=None)
    self.tree_cache.session = records
    self.grammar_manager.has_waiting_grammars.return_value = False
    self.req_to_token_pool.available_size.return_value = free_rows
    self.beam_coordinator.pending_member_rows.return_value = 0
    count = module.Scheduler.get_num_allocatable_reqs
    self.get_num_allocatable_reqs = lambda *one, **more: count(self, *one, **more)
    adder = self.get_prefill_adder_class.return_value.return_value
    adder.configure_mock(can_run_list=[], preempt_list=[], **{"add_one_req.side_effect": Admitted})
    module.Scheduler._get_new_batch_prefill_raw(self, None, MagicMock(reqs=[], batch_is_full=False))


def test_a_turn_is_scheduled_on_the_row_of_its_session(turns, monkeypatch):
    monkeypatch.setattr(module, "get_parallel", lambda: MagicMock(pp_max_micro_batch_size=1))
    monkeypatch.setattr(module, "get_schedule", MagicMock())
    first = turns.send("r0")
    first.kv.holds_kv = True
    turns.run_on_the_record(first)
    turns.session.finish_req(first)
    later = turns.send("r1")
    later.beam_group = None
    assert turns.records.find_active_slot(later).kv is first.kv
    for free_rows in (1, 0):
        with pytest.raises(Admitted):
            schedule(later, turns.records, free_rows)
