"""Situations of a step's decisions: which column it runs in, what is copied, and the accepted counts."""

from collections.abc import Sequence

from oracle.align.decisions import (
    Slots,
    advanced,
    after_step,
    after_v1_steps,
    before_step,
    boundary,
    last_scheduled_columns,
    live_rows,
    precopy_moves,
)
from statecheck.reference.situations import Situation, reached, situations_of, watches

_declare = situations_of("align.decisions")

ON_BOUNDARY = _declare("the accepted states end on a boundary")
ONE_BEHIND = _declare("the accepted states end one token behind a boundary")
SEVERAL_BEHIND = _declare("the accepted states end several tokens behind a boundary")
PUBLISHED = _declare("the first accepted state is stored at a boundary in the column before")
PUBLISHED_BIAS = _declare("a later accepted state is stored at a boundary in the column before")
AT_FRONT = _declare("the count is reset at a boundary without a copy")
COLLAPSED = _declare("the count is reset at a boundary with a copy to the front")
PROMPT_CHUNK = _declare("a prompt chunk ends on a boundary")
NO_SLOT = _declare("a row without a slot changes nothing")
OUT_OF_ORDER = _declare("slots stand in another order than rows")
FRESH = _declare("a fresh row has no state to precopy")
STAYS_OFFSET = _declare("a row stays in its column, and reads behind accepted tokens")
COMES_OFFSET = _declare("an accepted draft's state is precopied to another column")
BACK = _declare("a state goes back to an earlier column")
LEAPS = _declare("a state goes on by more than a column")
UNCOUNTED = _declare("a slot that counts no token reads its first state")
ALL_DRAFTS = _declare("a row with all its drafts is remembered by its last scheduled token")
FORGOTTEN = _declare("a remembered row without all its drafts is forgotten")
MANY_ACCEPTED = _declare("a row goes on behind five accepted drafts or more")
LONG_REQUEST = _declare("a row has more tokens after its step than a float32 counts")
MANY_ROWS = _declare("a step's decisions are made for more rows than 64")


def at_boundary(run: int, first: int, last: int, block_size: int) -> set[Situation]:
    """Situations of a row that ran in column `run` and has the states after `first` to `last` tokens to choose from."""
    crossed = boundary(first, last, block_size)
    if crossed is None:
        return set()
    behind = (ON_BOUNDARY, ONE_BEHIND, SEVERAL_BEHIND)[min(last % block_size, 2)]
    if crossed.column == run:
        return {behind, COLLAPSED if crossed.bias else AT_FRONT}
    return {behind, PUBLISHED_BIAS if crossed.bias else PUBLISHED}


@watches(after_step)
def _after(_: object, run: int, first: int, last: int, block_size: int) -> None:
    reached(at_boundary(run, first, last, block_size))
    LONG_REQUEST.reached_if(last > 2**24)


@watches(after_v1_steps)
def _after_v1(
    answer: Sequence[object],
    scheduled: Sequence[int],
    computed: Sequence[int],
    drafts: Sequence[int],
    block_size: int,
) -> None:
    MANY_ROWS.reached_if(len(answer) > 64)
    for row in range(len(answer)):
        chunk = ends_prompt_chunk(computed[row], scheduled[row], drafts[row], block_size)
        PROMPT_CHUNK.reached_if(chunk)


def ends_prompt_chunk(computed: int, scheduled: int, drafts: int, block_size: int) -> bool:
    """Whether a row is what PROMPT_CHUNK says."""
    return drafts == 0 and scheduled > 1 and (computed + scheduled) % block_size == 0


@watches(live_rows)
def _live(_: object, mapping: Sequence[int]) -> None:
    reached(at_slots(mapping))


def at_slots(mapping: Sequence[int]) -> set[Situation]:
    """Situations of a batch with rows in these slots, negative for a row without one."""
    live = [slot for slot in mapping if slot >= 0]
    situations = {NO_SLOT} if len(live) < len(mapping) else set()
    return situations | {OUT_OF_ORDER} if live != sorted(live) else situations


@watches(before_step)
def _before(_: object, previous: int, run: int, count: int) -> None:
    reached(at_change(previous, run, count))
    MANY_ACCEPTED.reached_if(previous >= 0 and count > 5)


def at_change(previous: int, run: int, count: int) -> set[Situation]:
    """Situations of a row that ran in column `previous`, -1 without one, and goes on in column `run` with an accepted count."""
    if previous == -1:
        return {FRESH}
    offset = {STAYS_OFFSET if run == previous else COMES_OFFSET} if count > 1 else set()
    return offset | ({BACK} if run < previous else {LEAPS} if run > previous + 1 else set())


@watches(advanced)
def _advanced(answer: Slots, slots: Slots, mapping: Sequence[int]) -> None:
    for slot in mapping:
        if slot >= 0:
            reached(at_change(slots.columns[slot], answer.columns[slot], slots.counts[slot]))
            UNCOUNTED.reached_if(slots.counts[slot] == 0)
            MANY_ACCEPTED.reached_if(slots.columns[slot] >= 0 and slots.counts[slot] > 5)


@watches(precopy_moves)
def _precopied(
    _: object, mapping: Sequence[int], columns: Sequence[int], src_col: Sequence[int], bias: Sequence[int]
) -> None:
    for slot in mapping:
        if slot >= 0:
            reached(at_change(src_col[slot], columns[slot], bias[slot] + 1))


@watches(last_scheduled_columns)
def _remembered(
    _: object, state_idx: dict[str, int], lengths: dict[str, tuple[int, int]], num_spec: int
) -> None:
    for request, (_computed, scheduled) in lengths.items() if num_spec > 0 else ():
        ALL_DRAFTS.reached_if(scheduled == 1 + num_spec)
        FORGOTTEN.reached_if(scheduled != 1 + num_spec and request in state_idx)
