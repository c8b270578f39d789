"""Situations of physical blocks."""

from collections.abc import Generator

from oracle.lifecycle.blocks import BlockPool, Key
from oracle.rules import watches, watches_change
from oracle.situations.registry import situations_of

_declare = situations_of("lifecycle.blocks")

EVICTED = _declare("a block that could still be hit is taken for something else")
SHARED = _declare("several requests hold a block")
HIT_FREE = _declare("a free block is hit")
TWICE = _declare("two blocks hold the same state")


@watches(BlockPool.evict)
def _evicted(_: None) -> None:
    EVICTED.reached()


@watches(BlockPool.hold)
def _held(_: None, owner: BlockPool, block: int) -> None:
    (SHARED if owner.holders(block) > 1 else HIT_FREE).reached()


@watches_change(BlockPool.register)
def _registered(owner: BlockPool, block: int, key: Key) -> Generator[None, None, None]:
    known, others = block in owner.registered, owner.find(key) is not None
    yield
    TWICE.reached_if(not known and others)
