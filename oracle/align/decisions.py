"""Which column a step runs in, what has to be copied before it and after it, and the accepted counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oracle.align.memory import Move
from oracle.rules import require, rule
from oracle.types import cdiv
from oracle.variants import Variants


def column_of(num_tokens: int, block_size: int) -> int:
    """The column that holds the last of the first `num_tokens` tokens, -1 where there is none.

    Source: contract 0.2, col.
    """
    return cdiv(num_tokens, block_size) - 1


class Boundary(NamedTuple):
    """The last block boundary among a step's accepted tokens: its column, and the tokens accepted before it."""

    column: int
    bias: int


def boundary(first: int, last: int, block_size: int) -> Boundary | None:
    """The boundary that a row's accepted states pass, or None.

    The states after `first` tokens up to after `last` tokens are available; the last one after a multiple of the block
    size is the state at the boundary. Source: contract 2.2.
    """
    available = range(first, last + 1)
    at_boundary = [num_tokens for num_tokens in available if num_tokens % block_size == 0]
    if not at_boundary:
        return None
    return Boundary(column_of(at_boundary[-1], block_size), available.index(at_boundary[-1]))


class AfterStep(NamedTuple):
    """What the next step is to take as accepted count, and the copy that is due, if one is."""

    accepted: int
    move: Move | None


@rule
def after_step(row: int, run: int, first: int, last: int, count: int, block_size: int) -> AfterStep:
    """The state at a boundary goes to the boundary's own column; where a row ends there, it starts anew.

    A row whose boundary lies in its running column has used up its accepted tokens: the state comes to
    the front, so the next count is 1, whether or not it was there already. Source: contract 2.2.
    """
    crossed = boundary(first, last, block_size)
    if crossed is None:
        return AfterStep(count, None)
    if crossed.column == run:
        count = 1
        if crossed.bias == 0:
            return AfterStep(count, None)
    return AfterStep(count, Move(row, run, crossed.column, crossed.bias))


@rule
def after_v1_steps(
    counts: Sequence[int],
    columns: Sequence[int],
    scheduled: Sequence[int],
    computed: Sequence[int],
    drafts: Sequence[int],
    block_size: int,
) -> list[AfterStep]:
    """One decision per batch row, from what was scheduled.

    Source: document 4, `run_fused_postprocess`; contract 2.2.
    """
    decided = []
    for row, count in enumerate(counts):
        first = computed[row] + scheduled[row] - drafts[row]
        decided.append(after_step(row, columns[row], first, first + count - 1, count, block_size))
    return decided


def after_v2_steps(
    mapping: Sequence[int],
    counts: Sequence[int],
    columns: Sequence[int],
    computed_after: Sequence[int],
    block_size: int,
    profile: Variants,
) -> dict[int, AfterStep]:
    """One decision per slot of the batch, all from the counts before any of them changes.

    `mapping` has each batch row's slot, negative for a row to skip; the other values are by slot.
    Source: document 4, `run_fused_postprocess_align`; contract 2.2.
    """
    decided = {}
    for row, slot in live_rows(mapping):
        count, last = counts[slot], computed_after[slot]
        first = last - count + 1
        decided[slot] = after_step(
            table_row(row, slot, profile), columns[slot], first, last, count, block_size
        )
    return decided


@rule
def live_rows(mapping: Sequence[int]) -> list[tuple[int, int]]:
    """Row and slot of each row that has one. A slot belongs to one row."""
    live = [(row, slot) for row, slot in enumerate(mapping) if slot >= 0]
    slots = [slot for _, slot in live]
    assert len(set(slots)) == len(slots), f"two rows share a slot in {list(mapping)}"
    return live


def table_row(row: int, slot: int, profile: Variants) -> int:
    """Where a request's blocks stand in a block table: at its place in the batch, as in document 4.

    Where tables are kept by slot, the profile says so.
    """
    return slot if profile.tables_by_slot else row


@rule
def before_step(row: int, previous: int, run: int, count: int) -> Move | None:
    """A state in another column than the one to run in goes there; a fresh row has none.

    Source: contract 2.3.
    """
    return None if previous in (-1, run) else Move(row, previous, run, count - 1)


@dataclass(frozen=True)
class Slots:
    """Values by slot around the V2 preprocess kernel: running columns, accepted counts, and the copy's source."""

    columns: tuple[int, ...]
    counts: tuple[int, ...]
    src_col: tuple[int, ...]
    src_off: tuple[int, ...]


@rule
def advanced(
    slots: Slots,
    mapping: Sequence[int],
    starts: Sequence[int],
    computed: Sequence[int],
    block_size: int,
    profile: Variants,
) -> Slots:
    """Where each row ran is where its copy comes from; it now runs in the column of its last token.

    `starts` are the batch rows' cumulative query starts, `computed` is by slot. Rows without a slot
    change nothing. Source: document 4, `preprocess_mamba_align_fused_kernel`; contract 2.5.
    """
    if not profile.preprocess_skips_rows:
        _require_slots(mapping)
    columns, counts = list(slots.columns), list(slots.counts)
    src_col, src_off = list(slots.src_col), list(slots.src_off)
    for row, slot in live_rows(mapping):
        old, query_len = columns[slot], starts[row + 1] - starts[row]
        src_col[slot] = old
        src_off[slot] = max(counts[slot] - 1, 0)
        columns[slot] = column_of(computed[slot] + query_len, block_size)
        if old >= 0 and old != columns[slot]:
            counts[slot] = 1
    return Slots(tuple(columns), tuple(counts), tuple(src_col), tuple(src_off))


def _require_slots(mapping: Sequence[int]) -> None:
    for row, slot in enumerate(mapping):
        require(slot >= 0, f"idx_mapping[{row}]", slot, "be a slot")


@rule
def precopy_moves(
    mapping: Sequence[int],
    columns: Sequence[int],
    src_col: Sequence[int],
    bias: Sequence[int],
    profile: Variants,
) -> list[Move]:
    """The copies before a V2 step, for slots that have a state and change their column.

    Source: document 4, `run_fused_precopy`.
    """
    return [
        Move(table_row(row, slot, profile), src_col[slot], columns[slot], bias[slot])
        for row, slot in live_rows(mapping)
        if src_col[slot] >= 0 and src_col[slot] != columns[slot]
    ]


@rule
def last_scheduled_columns(
    state_idx: dict[str, int], lengths: dict[str, tuple[int, int]], block_size: int, num_spec: int
) -> dict[str, int]:
    """Mode all remembers the column of the last scheduled token, of decodes with all their drafts only.

    `lengths` has computed and scheduled tokens of the rows, in their order. Without drafts nothing is
    remembered or forgotten. Source: document 4, `postprocess_mamba_all`.
    """
    remembered = dict(state_idx)
    if num_spec <= 0:
        return remembered
    for request, (computed, scheduled) in lengths.items():
        if scheduled == 1 + num_spec:
            remembered[request] = column_of(computed + scheduled, block_size)
        else:
            remembered.pop(request, None)
    return remembered
