"""Situations of what a runner does around a step."""

from collections.abc import Mapping, Sequence

from oracle.align.runner import Forgotten, StepPlan, cleaned, preprocess, previous_column, staged_rows
from statecheck.reference.situations import Situation, reached, situations_of, watches

_declare = situations_of("align.runner")

FINISHED = _declare("the column of a finished request is forgotten")
PREEMPTED = _declare("the column of a preempted request is forgotten")
RESUMED = _declare("the column of a request that comes back is forgotten")
NOT_SAID = _declare("the runner does not say which requests were preempted")
NO_ROW = _declare("a step of a runner without rows")
NOT_REMEMBERED = _declare("a request that is not remembered goes on from computed tokens")
SOME_MOVE = _declare("some rows bring their state along, and some stay")
SOME_STAGED = _declare("some rows of a batch are staged")


@watches(cleaned)
def _cleaned(_: object, state_idx: Mapping[str, int], forgotten: Forgotten) -> None:
    FINISHED.reached_if(state_idx.keys() & set(forgotten.finished))
    PREEMPTED.reached_if(state_idx.keys() & set(forgotten.preempted or ()))
    RESUMED.reached_if(state_idx.keys() & set(forgotten.resumed))
    NOT_SAID.reached_if(forgotten.preempted is None)


@watches(previous_column)
def _previous(answer: int, remembered: Mapping[str, int], request: str) -> None:
    NOT_REMEMBERED.reached_if(request not in remembered and answer >= 0)


@watches(preprocess)
def _preprocess(answer: StepPlan, req_ids: Sequence[str]) -> None:
    reached(at_moves(len(answer.moves), len(req_ids)))


def at_moves(num_moves: int, num_rows: int) -> set[Situation]:
    """Situations of a step by how many of its rows precopy their state."""
    if num_rows == 0:
        return {NO_ROW}
    return {SOME_MOVE} if 0 < num_moves < num_rows else set()


@watches(staged_rows)
def _staged(_: object, req_ids: Sequence[str], num_reqs: int) -> None:
    SOME_STAGED.reached_if(num_reqs < len(req_ids))
