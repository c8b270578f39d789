"""Which column a step runs in, what has to be copied before it and after it, and the accepted counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oracle.align.memory import Move
from oracle.errors import require
from oracle.marks import mark
from oracle.profile import Profile
from oracle.types import cdiv

_ON_BOUNDARY = mark("the accepted states end on a boundary")
_ONE_BEHIND = mark("the accepted states end one token behind a boundary")
_SEVERAL_BEHIND = mark("the accepted states end several tokens behind a boundary")
_PUBLISHED = mark("the first accepted state is stored at a boundary in the column before")
_PUBLISHED_BIAS = mark("a later accepted state is stored at a boundary in the column before")
_AT_FRONT = mark("the count is reset at a boundary without a copy")
_COLLAPSED = mark("the count is reset at a boundary with a copy to the front")
_PROMPT_CHUNK = mark("a prompt chunk ends on a boundary")
_NO_SLOT = mark("a row without a slot changes nothing")
_OUT_OF_ORDER = mark("slots stand in another order than rows")
_FRESH = mark("a fresh row has no state to bring along")
_STAYS_OFFSET = mark("a row stays in its column, and reads behind accepted tokens")
_COMES_OFFSET = mark("an accepted draft's state comes along to another column")
_BACK = mark("a state goes back to an earlier column")
_LEAPS = mark("a state goes on by more than a column")
_UNCOUNTED = mark("a slot that counts no token reads its first state")
_ALL_DRAFTS = mark("a row with all its drafts is remembered by its last scheduled token")
_FORGOTTEN = mark("a remembered row without all its drafts is forgotten")


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

    The states after `first` tokens up to after `last` tokens are there to choose from. Source: contract 2.2.
    """
    full_blocks = last // block_size
    bias = full_blocks * block_size - first
    return Boundary(full_blocks - 1, bias) if bias >= 0 else None


class AfterStep(NamedTuple):
    """What the next step is to take as accepted count, and the copy that is due, if one is."""

    accepted: int
    move: Move | None


def after_step(row: int, run: int, first: int, last: int, count: int, block_size: int) -> AfterStep:
    """The state at a boundary goes to the boundary's own column; where a row ends there, it starts anew.

    A row whose boundary lies in its running column has used up its accepted tokens: the state comes to
    the front, so the next count is 1, whether or not it was there already. Source: contract 2.2.
    """
    found = boundary(first, last, block_size)
    if found is None:
        return AfterStep(count, None)
    _note_boundary(found, run, last % block_size)
    if found.column == run:
        count = 1
        if found.bias == 0:
            return AfterStep(count, None)
    return AfterStep(count, Move(row, run, found.column, found.bias))


def _note_boundary(found: Boundary, run: int, behind: int) -> None:
    if found.column == run:
        (_COLLAPSED if found.bias else _AT_FRONT).reached()
    else:
        (_PUBLISHED_BIAS if found.bias else _PUBLISHED).reached()
    (_ON_BOUNDARY, _ONE_BEHIND, _SEVERAL_BEHIND)[min(behind, 2)].reached()


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
        _PROMPT_CHUNK.reached_if(drafts[row] == 0 and scheduled[row] > 1 and first % block_size == 0)
        decided.append(after_step(row, columns[row], first, first + count - 1, count, block_size))
    return decided


def after_v2_steps(
    mapping: Sequence[int],
    counts: Sequence[int],
    columns: Sequence[int],
    computed_after: Sequence[int],
    block_size: int,
    profile: Profile,
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


def live_rows(mapping: Sequence[int]) -> list[tuple[int, int]]:
    """Row and slot of each row that has one. A slot belongs to one row."""
    live = [(row, slot) for row, slot in enumerate(mapping) if slot >= 0]
    slots = [slot for _, slot in live]
    assert len(set(slots)) == len(slots), f"two rows share a slot in {list(mapping)}"
    _NO_SLOT.reached_if(len(live) < len(mapping))
    _OUT_OF_ORDER.reached_if(slots != sorted(slots))
    return live


def table_row(row: int, slot: int, profile: Profile) -> int:
    """Where a request's blocks stand in a block table: at its place in the batch, as in document 4.

    Releases that keep them by slot say so in their profile.
    """
    return slot if profile.tables_by_slot else row


def before_step(row: int, previous: int, run: int, count: int) -> Move | None:
    """A state in another column than the one to run in goes there; a fresh row has none.

    Source: contract 2.3.
    """
    _note_change(previous, run, count)
    return None if previous in (-1, run) else Move(row, previous, run, count - 1)


def _note_change(previous: int, run: int, count: int) -> None:
    """Note where a row goes on that ran in column `previous`."""
    if previous == -1:
        _FRESH.reached()
    elif previous == run:
        _STAYS_OFFSET.reached_if(count > 1)
    else:
        _COMES_OFFSET.reached_if(count > 1)
        _BACK.reached_if(run < previous)
        _LEAPS.reached_if(run > previous + 1)


@dataclass(frozen=True)
class Slots:
    """Values by slot around the V2 preprocess kernel: running columns, accepted counts, and the copy's source."""

    columns: tuple[int, ...]
    counts: tuple[int, ...]
    src_col: tuple[int, ...]
    src_off: tuple[int, ...]


def advanced(
    slots: Slots,
    mapping: Sequence[int],
    starts: Sequence[int],
    computed: Sequence[int],
    block_size: int,
    profile: Profile,
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
        _note_change(old, columns[slot], counts[slot])
        _UNCOUNTED.reached_if(counts[slot] == 0)
        if old >= 0 and old != columns[slot]:
            counts[slot] = 1
    return Slots(tuple(columns), tuple(counts), tuple(src_col), tuple(src_off))


def _require_slots(mapping: Sequence[int]) -> None:
    for row, slot in enumerate(mapping):
        require(slot >= 0, f"idx_mapping[{row}]", slot, "be a slot")


def precopy_moves(
    mapping: Sequence[int],
    columns: Sequence[int],
    src_col: Sequence[int],
    bias: Sequence[int],
    profile: Profile,
) -> list[Move]:
    """The copies before a V2 step, for slots that have a state and change their column.

    Source: document 4, `run_fused_precopy`.
    """
    for _, slot in live_rows(mapping):
        _note_change(src_col[slot], columns[slot], bias[slot] + 1)
    return [
        Move(table_row(row, slot, profile), src_col[slot], columns[slot], bias[slot])
        for row, slot in live_rows(mapping)
        if src_col[slot] >= 0 and src_col[slot] != columns[slot]
    ]


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
            remembered[request] = max(0, column_of(computed + scheduled, block_size))
            _ALL_DRAFTS.reached()
        else:
            _FORGOTTEN.reached_if(request in remembered)
            remembered.pop(request, None)
    return remembered
