"""What a prefill of SGLang keeps at boundaries, the chunks of its kernels, and its allocator of slots."""

from __future__ import annotations

from properties.strategies.releases.tracking import PrefillRows, prefill_rows, slot_operations
from statecheck.case.values import call
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

PLAN = "TrackingPlan"


@prop("tracking-plan/kept-states", "agreement", f"{PLAN}.kept_states", device="cpu", rows=prefill_rows())
def test_a_prefill_keeps_the_state_at_each_row_s_boundary(trial: Example, rows: PrefillRows) -> None:
    """A prefill keeps the state at each row's boundary."""
    trial.agrees(rows.kept_states())


@prop(
    "tracking-plan/logical-chunks", "agreement", f"{PLAN}.logical_chunks", device="cpu", rows=prefill_rows()
)
def test_a_logical_chunk_has_tokens_of_one_row_in_one_chunk_of_the_batch(
    trial: Example, rows: PrefillRows
) -> None:
    """A logical chunk has tokens of one row in one chunk of the batch."""
    trial.agrees(rows.logical_chunks())


@prop("slot-allocator/owners", "ownership", f"{PLAN}.allocate", device="cpu", asked=slot_operations())
def test_no_slot_has_two_owners_and_none_is_lost(
    trial: Example, asked: tuple[int, tuple[tuple[str, int], ...]]
) -> None:
    """No slot has two owners and none is lost."""
    size, operations = asked
    trial.agrees(call(f"{PLAN}.allocate", size=size, operations=operations))
