"""Situations of what blocks stand for."""

from oracle.lifecycle.ledger import StateLedger
from oracle.rules import watches
from oracle.situations.registry import situations_of

_declare = situations_of("lifecycle.ledger")

ON_ITS_WAY = _declare("a chunk leaves a state at a boundary on its way")
SEVERAL_ON_ITS_WAY = _declare("a chunk leaves states at several boundaries on its way")
PUBLISHED = _declare("the state at a boundary goes to the boundary's column")


@watches(StateLedger.boundaries_on_the_way)
def _passed(answer: range) -> None:
    ON_ITS_WAY.reached_if(len(answer) == 1)
    SEVERAL_ON_ITS_WAY.reached_if(len(answer) > 1)


@watches(StateLedger.boundary_among)
def _among(answer: int | None) -> None:
    PUBLISHED.reached_if(answer is not None)
