"""Kernels that copy and clear slots of states: of requests, at boundaries, and after drafts."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from properties.strategies.releases.slots import (
    AcceptedDrafts,
    PaddedRows,
    SlotCopies,
    accepted_drafts,
    padded_rows,
    slot_copies,
)
from statecheck.case.values import Step
from statecheck.execution.example import Example
from statecheck.execution.registry import prop
from statecheck.execution.statements import statement, statements

CLEAR, COPY, TRACK = "StateSlots.clear", "StateSlots.copy", "StateSlots.track"
SCATTER, LAST, OF_ROWS = "StateSlots.scatter", "StateSlots.last_accepted", "StateSlots.of_rows"


@statements(
    statement("state-slots/clear", "byte-exact", [CLEAR], copies=slot_copies(), steps=SlotCopies.cleared,
        says="slots that are cleared hold zeros and no other byte changes"),
    statement("state-slots/copy", "byte-exact", [COPY], copies=slot_copies(), steps=SlotCopies.copied,
        says="every convolution of a slot is copied to another slot and no other byte changes"),
    statement("state-slots/accepted", "byte-exact", [SCATTER], copies=slot_copies(), steps=SlotCopies.scattered,
        says="slots hold the states after the last accepted drafts and at boundaries"),
)  # fmt: skip
def bytes_agree(
    trial: Example,
    copies: SlotCopies,
    steps: Callable[[SlotCopies], list[Step]],
) -> None:
    trial.agrees(*steps(copies))


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
