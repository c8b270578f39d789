"""Situations of states that a prefill keeps, and of its chunks."""

from collections.abc import Sequence

from oracle.tracking import KeptState, kept_states, logical_chunks
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("tracking")

LAST = _declare("a row keeps its last state")
OF_CHUNK = _declare("a row keeps a state that the kernel leaves")
COMPUTED = _declare("a row keeps a state inside of a chunk of the batch")
NOT_KEPT = _declare("a row keeps no state")
CUT = _declare("a chunk of the batch has tokens of two rows")


@watches(kept_states)
def _kept(answer: list[KeptState], boundaries: Sequence[int | None]) -> None:
    sources = {state.source for state in answer}
    LAST.reached_if("last" in sources)
    OF_CHUNK.reached_if("chunk" in sources)
    COMPUTED.reached_if("computed" in sources)
    NOT_KEPT.reached_if(None in boundaries)


@watches(logical_chunks)
def _chunks(answer: list[tuple[int, int]]) -> None:
    CUT.reached_if(any(offset for _, offset in answer))
