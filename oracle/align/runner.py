"""What the runner does around a step: V1's preprocessing, staging, and what it forgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from oracle.align.decisions import before_step, column_of
from oracle.align.memory import Memory, Move, Pool, StateTensor, apply_moves
from oracle.align.pointers import Entry, entries, memory_after, require_columns
from oracle.rules import require, require_int, rule
from oracle.variants import Variants

T = TypeVar("T")
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class RunnerRequest:
    """A request's blocks, by mamba group and column, and the tokens that are computed when a step starts."""

    block_ids: tuple[tuple[int, ...], ...]
    num_computed_tokens: int


class Forgotten(NamedTuple):
    """Ids of requests whose remembered column means nothing any more."""

    finished: Sequence[str] = ()
    preempted: Sequence[str] | None = None
    resumed: Sequence[str] = ()


@rule
def cleaned(state_idx: Mapping[str, int], forgotten: Forgotten) -> dict[str, int]:
    """The remembered columns without those of finished, preempted and resumed requests.

    Source: document 4, `cleanup_mamba_state_idx`.
    """
    gone = {*forgotten.finished, *(forgotten.preempted or ()), *forgotten.resumed}
    return {request: column for request, column in state_idx.items() if request not in gone}


@dataclass(frozen=True)
class StepPlan:
    """What `preprocess_mamba` decides: columns to remember, accepted counts by row, and copies."""

    state_idx: dict[str, int]
    counts: tuple[int, ...]
    moves: tuple[Move, ...]


@rule
def preprocess(
    state_idx: Mapping[str, int],
    forgotten: Forgotten,
    req_ids: Sequence[str],
    counts: Sequence[int],
    scheduled: Mapping[str, int],
    requests: Mapping[str, RunnerRequest],
    block_size: int,
    num_spec: int,
    max_num_reqs: int,
) -> StepPlan:
    """Every row runs in the column of its last token; a state in another column is precopied, and its count starts anew.

    A request that is not remembered ran, if ever, in the column of its last computed token. Source:
    document 4, `preprocess_mamba`; contracts 2.3 and 2.4.
    """
    require(len(req_ids) <= max_num_reqs, "req_ids", tuple(req_ids), f"have at most {max_num_reqs} rows")
    require(len(set(req_ids)) == len(req_ids), "req_ids", tuple(req_ids), "name every request once")
    for row, request in enumerate(req_ids):
        _require_row(row, request, counts, scheduled, requests, most=1 + num_spec)
    remembered, new_counts, moves = cleaned(state_idx, forgotten), list(counts), []
    for row, request in enumerate(req_ids):
        computed = requests[request].num_computed_tokens
        previous = previous_column(remembered, request, computed, block_size)
        run = column_of(computed + scheduled[request], block_size)
        remembered[request] = run
        move = before_step(row, previous, run, counts[row])
        if move is not None:
            moves.append(move)
            new_counts[row] = 1
    return StepPlan(remembered, tuple(new_counts), tuple(moves))


@rule
def previous_column(remembered: Mapping[str, int], request: str, computed: int, block_size: int) -> int:
    """The column that a request ran in last: the remembered one, or that of its last computed token."""
    previous = remembered.get(request, column_of(computed, block_size))
    require(previous >= -1, f"mamba_state_idx[{request!r}]", previous, "be >= -1")
    return previous


def _require_row(
    row: int,
    request: str,
    counts: Sequence[int],
    scheduled: Mapping[str, int],
    requests: Mapping[str, RunnerRequest],
    most: int,
) -> None:
    computed = lookup("requests", requests, request).num_computed_tokens
    require_int(f"requests[{request!r}].num_computed_tokens", computed, minimum=0)
    require_int(f"num_scheduled_tokens[{request!r}]", lookup("num_scheduled_tokens", scheduled, request), 1)
    require(row < len(counts), "num_accepted_tokens_cpu", tuple(counts), f"have a count for row {row}")
    count = f"num_accepted_tokens_cpu[{row}]"
    require_int(count, counts[row], minimum=1)
    require(counts[row] <= most, count, counts[row], f"be <= {most}, the tokens that can be accepted")


def lookup(argument: str, entries_by_id: Mapping[str, T], request: str) -> T:
    """The request's entry, without which the request is refused."""
    require(request in entries_by_id, f"{argument}[{request!r}]", None, "be given")
    return entries_by_id[request]


def require_blocks(
    plan: StepPlan,
    req_ids: Sequence[str],
    requests: Mapping[str, RunnerRequest],
    states: Sequence[StateTensor],
) -> None:
    """Refuse copies from or to columns that a request does not have, or blocks without an owner.

    Named `block_ids`, with the column where that one is the matter. Source: contract 4, `preprocess_mamba`.
    """
    for move in plan.moves:
        blocks = requests[req_ids[move.row]].block_ids
        for state in states:
            columns = blocks[state.group]
            last = max(move.src_col + move.bias, move.dst_col)
            require(last < len(columns), "block_ids", columns, f"have a column {last}")
            require_columns(columns, state, move.src_col, move.dst_col, move.bias)


def listed(
    plan: StepPlan,
    req_ids: Sequence[str],
    requests: Mapping[str, RunnerRequest],
    states: Sequence[StateTensor],
    layout: str,
) -> list[Entry]:
    """The plan as pointer lists. Source: document 4, `preprocess_mamba`."""
    written: list[Entry] = []
    for move in plan.moves:
        blocks = requests[req_ids[move.row]].block_ids
        written.extend(entries(states, layout, blocks, move.src_col, move.dst_col, move.bias))
    return written


def copied_by_lists(
    memory: Memory,
    plan: StepPlan,
    req_ids: Sequence[str],
    requests: Mapping[str, RunnerRequest],
    states: Sequence[StateTensor],
    layout: str,
) -> dict[str, Pool]:
    """The memory after the plan's copies, by way of the requests' own block ids."""
    return memory_after(memory, listed(plan, req_ids, requests, states, layout))


def copied_by_tables(
    memory: Memory,
    plan: StepPlan,
    states: Sequence[StateTensor],
    layout: str,
    tables: Sequence[Sequence[Sequence[int]]],
    profile: Variants,
) -> dict[str, Pool]:
    """The memory after the plan's copies, by way of the batch's block tables."""
    return apply_moves(memory, states, layout, tables, plan.moves, profile)


class Staged(NamedTuple):
    """What is written for a batch's rows: running column, scheduled, computed and draft tokens."""

    columns: tuple[int, ...]
    scheduled: tuple[int, ...]
    computed: tuple[int, ...]
    drafts: tuple[int, ...]


def staged_columns(state_idx: Mapping[str, int], rows: Sequence[str]) -> tuple[int, ...]:
    """Each row's remembered column. Source: document 4, `stage_mamba_state_idx_to_gpu`."""
    return _numbers("mamba_state_idx", state_idx, rows)


def _numbers(argument: str, numbers: Mapping[str, int], rows: Sequence[str]) -> tuple[int, ...]:
    """Each row's number, which fits the buffers: none is negative, all have 32 bits."""
    for request in rows:
        number, rule = lookup(argument, numbers, request), f"be in 0..{_INT32_MAX}"
        require(0 <= number <= _INT32_MAX, f"{argument}[{request!r}]", number, rule)
    return tuple(numbers[request] for request in rows)


@rule
def staged_rows(req_ids: Sequence[str], num_reqs: int, capacity: int) -> Sequence[str]:
    """The rows to stage, for which there must be ids and room."""
    most = min(len(req_ids), capacity)
    require_int("num_reqs", num_reqs, minimum=0)
    require(num_reqs <= most, "num_reqs", num_reqs, f"be <= {most}")
    return req_ids[:num_reqs]


def staged_metadata(
    rows: Sequence[str],
    scheduled: Mapping[str, int],
    drafts: Mapping[str, Sequence[int]],
    computed: Mapping[str, int],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Each row's scheduled, computed and draft tokens; a request that is not mentioned has no drafts.

    Source: document 4, `stage_postprocess_metadata_to_gpu`.
    """
    numbers = _numbers("num_scheduled_tokens", scheduled, rows), _numbers("requests", computed, rows)
    return (*numbers, tuple(len(drafts.get(request, ())) for request in rows))


def staged(
    rows: Sequence[str],
    state_idx: Mapping[str, int],
    scheduled: Mapping[str, int],
    drafts: Mapping[str, Sequence[int]],
    computed: Mapping[str, int],
) -> Staged:
    """Everything that is staged for a batch. Source: document 4, `stage_postprocess_inputs_to_gpu`."""
    return Staged(staged_columns(state_idx, rows), *staged_metadata(rows, scheduled, drafts, computed))
