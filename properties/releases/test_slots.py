"""Slots of states: kernels that copy and clear them, what a prefill keeps at boundaries, and the allocator of slots."""

from __future__ import annotations

from hypothesis import strategies as st

from properties.strategies.releases.slots import (
    AcceptedDrafts,
    Operations,
    PaddedRows,
    Pages,
    PrefillRows,
    Prompt,
    SlotCopies,
    TwoTables,
    accepted_drafts,
    padded_rows,
    pages,
    prefill_rows,
    prompts,
    slot_copies,
    slot_operations,
    two_tables,
)
from statecheck.case.values import call
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop


@prop("state-slots/clear", "byte-exact", "StateSlots.clear", copies=slot_copies())
def test_slots_that_are_cleared_hold_zeros(trial: Example, copies: SlotCopies) -> None:
    """Slots that are cleared hold zeros and no other byte changes."""
    trial.agrees(*copies.cleared())


@prop("state-slots/copy", "byte-exact", "StateSlots.copy", copies=slot_copies())
def test_every_convolution_of_a_slot_is_copied(trial: Example, copies: SlotCopies) -> None:
    """Every convolution of a slot is copied to another slot and no other byte changes."""
    trial.agrees(*copies.copied())


@prop("state-slots/accepted", "byte-exact", "StateSlots.scatter", copies=slot_copies())
def test_slots_hold_the_states_after_accepted_drafts(trial: Example, copies: SlotCopies) -> None:
    """Slots hold the states after the last accepted drafts and at boundaries."""
    trial.agrees(*copies.scattered())


@prop(
    "state-slots/boundary",
    "byte-exact",
    "StateSlots.track",
    copies=slot_copies(),
    freed=st.lists(st.booleans(), max_size=4),
)
def test_rows_at_a_boundary_keep_their_states_in_another_slot(
    trial: Example, copies: SlotCopies, freed: list[bool]
) -> None:
    """Rows at a boundary keep their states in another slot."""
    trial.agrees(*copies.tracked(freed))


@prop("state-slots/last-accepted", "agreement", "StateSlots.last_accepted", accepted=accepted_drafts())
def test_the_last_accepted_draft_and_the_one_at_a_boundary_are_named(
    trial: Example, accepted: AcceptedDrafts
) -> None:
    """The last accepted draft and the one at a boundary are named."""
    trial.agrees(accepted.call())


@prop("state-slots/padded-rows", "padding", "StateSlots.of_rows", rows=padded_rows())
def test_padded_rows_of_a_graph_have_no_slot(trial: Example, rows: PaddedRows) -> None:
    """Padded rows of a graph have no slot."""
    trial.agrees(*rows.steps())


@prop("tracking-plan/kept-states", "agreement", "TrackingPlan.kept_states", device="cpu", rows=prefill_rows())
def test_a_prefill_keeps_the_state_at_each_row_s_boundary(trial: Example, rows: PrefillRows) -> None:
    """A prefill keeps the state at each row's boundary."""
    trial.agrees(rows.kept_states())


@prop(
    "tracking-plan/logical-chunks",
    "agreement",
    "TrackingPlan.logical_chunks",
    device="cpu",
    rows=prefill_rows(),
)
def test_a_logical_chunk_has_tokens_of_one_row_in_one_chunk_of_the_batch(
    trial: Example, rows: PrefillRows
) -> None:
    """A logical chunk has tokens of one row in one chunk of the batch."""
    trial.agrees(rows.logical_chunks())


ALLOCATORS = (
    Configuration("slot-allocator/owners", "TrackingPlan.allocate", function="TrackingPlan.allocate", asked=slot_operations()),
    Configuration("slot-allocator/siblings", "TrackingPlan.share", function="TrackingPlan.share", asked=slot_operations("share", "prefix"),
        reason="where several requests own a slot, and it is free when each has given it back"),
    Configuration("slot-allocator/admission", "TrackingPlan.admit", function="TrackingPlan.admit", asked=slot_operations("admit", "admit"),
        reason="and a request is admitted if and only if its slots are free"),
)  # fmt: skip


@prop(ALLOCATORS, "ownership", device="cpu")
def no_slot_has_two_owners_and_none_is_lost(
    trial: Example, asked: tuple[int, Operations], function: str
) -> None:
    """No slot has two owners and none is lost.

    The slots that were given to an owner stay what they were.
    """
    size, operations = asked
    trial.agrees(call(function, size=size, operations=operations))


@prop("prefill-plan/snapshots", "agreement", "TrackingPlan.snapshot_points", device="cpu", prompt=prompts())
def test_chunks_of_a_prompt_end_where_states_are_kept(trial: Example, prompt: Prompt) -> None:
    """Chunks of a prompt end at boundaries, and at each at which a state is kept."""
    trial.agrees(prompt.snapshot_points())


@prop("prefill-plan/admission", "agreement", "TrackingPlan.admit_tokens", device="cpu", prompt=prompts())
def test_no_step_of_a_prompt_passes_a_boundary_at_which_a_state_is_kept(
    trial: Example, prompt: Prompt
) -> None:
    """No step of a prompt passes a boundary at which a state is kept, and each step that has room goes on."""
    trial.agrees(prompt.admit_tokens())


@prop("state-transfer/pairing", "agreement", "TrackingPlan.pair_blocks", device="cpu", tables=two_tables())
def test_the_block_that_the_next_forward_reads_is_sent_to_its_own_column(
    trial: Example, tables: TwoTables
) -> None:
    """The block that the next forward reads is sent to the block of the same column, and no other block is written to it."""
    trial.agrees(tables.call())


@prop("page-views/copy", "byte-exact", "StateSlots.copy_pages", device="cpu", pages=pages())
def test_a_page_is_copied_with_all_of_its_bytes(trial: Example, pages: Pages) -> None:
    """A page that is copied through a view of its layer brings all of its bytes, and no other byte changes."""
    trial.agrees(*pages.steps())
