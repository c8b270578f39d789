"""Kernels that copy and clear slots of states: of requests, at boundaries, and after drafts."""

from __future__ import annotations

from hypothesis import strategies as st

from properties.strategies.releases.slots import (
    AcceptedDrafts,
    PaddedRows,
    SlotCopies,
    accepted_drafts,
    padded_rows,
    slot_copies,
)
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

CLEAR, COPY, TRACK = "StateSlots.clear", "StateSlots.copy", "StateSlots.track"
SCATTER, LAST, OF_ROWS = "StateSlots.scatter", "StateSlots.last_accepted", "StateSlots.of_rows"


@prop("state-slots/clear", "byte-exact", CLEAR, copies=slot_copies())
def test_slots_that_are_cleared_hold_zeros(trial: Example, copies: SlotCopies) -> None:
    """Slots that are cleared hold zeros and no other byte changes."""
    trial.agrees(*copies.cleared())


@prop("state-slots/copy", "byte-exact", COPY, copies=slot_copies())
def test_every_convolution_of_a_slot_is_copied(trial: Example, copies: SlotCopies) -> None:
    """Every convolution of a slot is copied to another slot and no other byte changes."""
    trial.agrees(*copies.copied())


@prop("state-slots/accepted", "byte-exact", SCATTER, copies=slot_copies())
def test_slots_hold_the_states_after_accepted_drafts(trial: Example, copies: SlotCopies) -> None:
    """Slots hold the states after the last accepted drafts and at boundaries."""
    trial.agrees(*copies.scattered())


@prop(
    "state-slots/boundary",
    "byte-exact",
    TRACK,
    copies=slot_copies(),
    freed=st.lists(st.booleans(), max_size=4),
)
def test_rows_at_a_boundary_keep_their_states_in_another_slot(
    trial: Example, copies: SlotCopies, freed: list[bool]
) -> None:
    """Rows at a boundary keep their states in another slot."""
    trial.agrees(*copies.tracked(freed))


@prop("state-slots/last-accepted", "agreement", LAST, accepted=accepted_drafts())
def test_the_last_accepted_draft_and_the_one_at_a_boundary_are_named(
    trial: Example, accepted: AcceptedDrafts
) -> None:
    """The last accepted draft and the one at a boundary are named."""
    trial.agrees(accepted.call())


@prop("state-slots/padded-rows", "padding", OF_ROWS, rows=padded_rows())
def test_padded_rows_of_a_graph_have_no_slot(trial: Example, rows: PaddedRows) -> None:
    """Padded rows of a graph have no slot."""
    trial.agrees(*rows.steps())
