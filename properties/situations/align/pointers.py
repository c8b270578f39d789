"""Situations of copies as lists of source, destination and size."""

from collections.abc import Sequence

from oracle.align.memory import StateTensor
from oracle.align.pointers import Entry, memory_after, require_all_columns, require_capacity
from statecheck.reference.situations import Situation, reached, situations_of, watches

_declare = situations_of("align.pointers")

SHARED_SPECS = _declare("entries are added for states of several groups")
FULL = _declare("the lists are full to the last entry")
TO_FRONT = _declare("an entry overlaps itself towards the front")
TO_BACK = _declare("an entry overlaps itself towards the back")
ONTO_ITSELF = _declare("an entry lies where it goes")
TILES = _declare("an entry of several tiles")
ONE_BYTE = _declare("an entry of one byte")


@watches(require_all_columns)
def _columns(_: None, states: Sequence[StateTensor]) -> None:
    SHARED_SPECS.reached_if(len({state.group for state in states}) > 1)


@watches(require_capacity)
def _capacity(_: None, num_listed: int, added: int, capacity: int) -> None:
    FULL.reached_if(added and num_listed + added == capacity)


@watches(memory_after)
def _memory(_: object, listed: Sequence[Entry]) -> None:
    for entry in listed:
        _look_at_entry(entry)


def _look_at_entry(entry: Entry) -> None:
    ONE_BYTE.reached_if(entry.size == 1)
    TILES.reached_if(entry.size > 1024)
    if entry.source.pool == entry.target.pool:
        reached(at_overlap(entry.target.offset - entry.source.offset, entry.size))


def at_overlap(distance: int, size: int) -> set[Situation]:
    """Situations of `size` bytes that move so far within their pool."""
    if not -size < distance < size:
        return set()
    return {TO_FRONT if distance < 0 else TO_BACK if distance else ONTO_ITSELF}
