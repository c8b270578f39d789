"""Edges of the runner's functions around a forward: buffers without a context, without room, and steps without requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from properties.strategies.refusals import STEP, postprocessed
from statecheck.case.failure import outcome_difference
from statecheck.case.values import Name, Raised
from statecheck.execution.in_process import InProcess
from statecheck.execution.run import executed
from subjects import load
from tests.helpers.rules_executor import RulesExecutor

IMPL = load("impl")


def prepared(step: Any = STEP) -> tuple[InProcess, Any]:
    """Where the names of a step are bound, and its copy buffers."""
    port = InProcess(IMPL, "cpu")
    port.begin()
    executed(port, step.prepared())
    return port, port.materialise(Name("copy_bufs"))


@pytest.mark.usefixtures("on_cpu")
def test_without_a_context_states_are_copied_by_address_despite_block_tables() -> None:
    port, bufs = prepared()
    bufs.context = bufs.moves = None
    rules = RulesExecutor()
    rules.begin()
    for step in (*STEP.prepared(), STEP.preprocess()):
        rules.execute(step)
    outcome = port.execute(STEP.preprocess())
    assert outcome is not None
    assert outcome_difference(rules.expected[-1], outcome, places=False) is None
    assert bufs.offset == 2


def test_entries_without_room_are_refused_before_anything_changes() -> None:
    port, bufs = prepared()
    bufs.context = bufs.moves = None
    bufs.src_ptrs.np = bufs.src_ptrs.np[:1]
    columns = dict(port.materialise(Name("state_idx")))
    outcome = port.execute(STEP.preprocess())
    assert isinstance(outcome, Raised)
    assert outcome.message.startswith("bufs.offset = 0, but should be in 0..-1, room for 2 entries more ")
    assert port.materialise(Name("state_idx")) == columns


def test_a_step_of_no_request_leaves_the_context_as_it_was() -> None:
    step = replace(STEP, requests=(), spare=2)
    port, bufs = prepared(step)
    outcome = port.execute(step.preprocess())
    assert not isinstance(outcome, Raised), outcome
    assert not bufs.context.is_initialized


def test_a_buffer_that_is_missing_after_a_forward_is_refused_by_name() -> None:
    *steps, last = postprocessed()
    port = InProcess(IMPL, "cpu")
    port.begin()
    executed(port, steps)
    port.materialise(Name("bufs")).postprocess_align.mamba_state_idx_buf = None
    outcome = port.execute(last)
    assert isinstance(outcome, Raised)
    place, function = "bufs.postprocess_align.mamba_state_idx_buf", "postprocess_mamba_align_gpu"
    assert outcome.message == f"{place} = None, but should be a CpuGpuBuffer [{function}]"
