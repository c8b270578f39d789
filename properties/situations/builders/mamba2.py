"""Situations of chunks that are cut at positions of a request."""

from collections.abc import Sequence

from oracle.builders.batch import StepRow
from oracle.builders.mamba2 import PositionChunks, position_chunks
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("builders.mamba2")

SHORT_FIRST = _declare("the first chunk of a prompt that goes on ends at a multiple of its positions")
NO_CHUNK = _declare("a prefill row without tokens points at the chunk before it")
SOME_STATES = _declare("some prefills go on from a state, and some begin")
NO_STATES = _declare("no prefill goes on from a state")


@watches(position_chunks)
def _chunks(_: PositionChunks, rows: Sequence[StepRow], computed: Sequence[int], chunk_size: int) -> None:
    pairs = list(zip(rows, computed, strict=True))
    SHORT_FIRST.reached_if(
        any(count % chunk_size + row.query_len > chunk_size for row, count in pairs if count % chunk_size)
    )
    NO_CHUNK.reached_if(any(row.is_padding for row in rows[1:]))
    begins = {count > 0 for row, count in pairs if not row.is_padding}
    SOME_STATES.reached_if(len(begins) == 2)
    NO_STATES.reached_if(begins == {False})
