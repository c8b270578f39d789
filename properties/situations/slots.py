"""Situations of copies between slots of states."""

from collections.abc import Sequence

from oracle.slots import EntryMove, accepted_states, cleared_slots, last_accepted, moved
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("slots")

NOTHING = _declare("no slot is copied")
SEVERAL = _declare("several slots are copied")
CLEARED = _declare("several slots are cleared")
REJECTED = _declare("a row without an accepted state stands among others")
KEPT = _declare("a state is kept at a boundary beside the last accepted one")
BOUNDARY = _declare("accepted drafts pass a boundary")
AT_BOUNDARY = _declare("the last accepted draft is at a boundary")


@watches(moved)
def _moved(_: object, moves: Sequence[EntryMove]) -> None:
    NOTHING.reached_if(not moves)
    SEVERAL.reached_if(len({move.target_at for move in moves}) > 1)


@watches(cleared_slots)
def _cleared(_: object, slots: Sequence[int]) -> None:
    CLEARED.reached_if(len(slots) > 1)


@watches(accepted_states)
def _accepted(_: object, chosen: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
    drafts = [draft for _, given in chosen for draft in given]
    REJECTED.reached_if(any(draft < 0 for draft in drafts) and any(draft >= 0 for draft in drafts))
    KEPT.reached_if(len(chosen) > 1 and any(draft >= 0 for draft in chosen[1][1]))


@watches(last_accepted)
def _last(answer: tuple[list[int], list[int] | None]) -> None:
    last, kept = answer
    there = [(draft, boundary) for draft, boundary in zip(last, kept or (), strict=False) if boundary >= 0]
    BOUNDARY.reached_if(any(draft != boundary for draft, boundary in there))
    AT_BOUNDARY.reached_if(any(draft == boundary for draft, boundary in there))
