"""Situations of the blocks of one request."""

from collections.abc import Generator

from oracle.lifecycle.tables import BlockList
from oracle.rules import watches, watches_change
from oracle.situations.registry import situations_of

_declare = situations_of("lifecycle.tables")

MOVED = _declare("speculative columns move behind the running one")
SKIPPED = _declare("columns in front of the running one stay null")
KEPT_HIT = _declare("the column of a hit is kept until its state was precopied")
DROPPED_STATE = _declare("the column of the last state is freed")


@watches_change(BlockList.extend_aligned)
def _extended(owner: BlockList, needed: int, num_spec: int) -> Generator[None, None, None]:
    width, allocated, moved = len(owner.columns), owner.allocated, owner.moved(needed, num_spec)
    yield
    if needed > width:
        MOVED.reached_if(moved)
        SKIPPED.reached_if(needed - num_spec - 1 > width)
        KEPT_HIT.reached_if(width and not allocated)


@watches(BlockList.drop_last_state)
def _dropped(_: None) -> None:
    DROPPED_STATE.reached()
