from collections.abc import Sequence
from typing import NamedTuple

from oracle.builders.batch import BuilderStep, StepRow, starts_of
from oracle.rules import Refused, rule


class PositionChunks(NamedTuple):
    """Where chunks start and the last one ends, the row of each chunk, the last chunk of each row."""

    cu_chunk_seqlen_p: tuple[int, ...]
    seq_idx_p: tuple[int, ...]
    last_chunk_indices_p: tuple[int, ...]


@rule
def position_chunks(rows: Sequence[StepRow], computed: Sequence[int], chunk_size: int) -> PositionChunks:
    """A chunk starts at each row's first token and at each token whose position in its request is a multiple.

    Positions count from the request's first token, those computed earlier included; starts count
    from the first token of these rows. A row without tokens points at the chunk before it, -1 if
    there is none. Source: contract 1.10.
    """
    starts = starts_of(rows)
    chunks = [
        (starts[r] + token, r)
        for r, row in enumerate(rows)
        for token in range(row.query_len)
        if token == 0 or (computed[r] + token) % chunk_size == 0
    ]
    last = tuple(sum(owner <= r for _, owner in chunks) - 1 for r in range(len(rows)))
    return PositionChunks((*(start for start, _ in chunks), starts[-1]), tuple(r for _, r in chunks), last)


def computed_on_host(step: BuilderStep, rows: Sequence[StepRow]) -> tuple[int, ...]:
    """What the host knows prefill rows to have computed: chunks are cut before any kernel runs.

    The upper bound of a prefill is exact; without it, the lengths themselves must lie on the host.
    """
    if not step.has_upper_bound and not step.on_host:
        raise Refused("seq_lens_cpu_upper_bound", None, "be given where there are prefills")
    return tuple(_computed_on_host(step, row) for row in rows)


def _computed_on_host(step: BuilderStep, row: StepRow) -> int:
    if row.is_padding:
        return 0
    if step.has_upper_bound:
        assert row.seq_len_upper_bound is not None, "a bound of every row was asked for"
        return row.seq_len_upper_bound - row.query_len
    return row.num_computed
