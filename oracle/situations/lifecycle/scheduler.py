"""Situations of a scheduler's steps."""

from collections.abc import Generator

from oracle.lifecycle.requests import SchedulerStep, Stage
from oracle.lifecycle.scheduler import Scheduler, aligned_length
from oracle.rules import watches, watches_change
from oracle.situations.registry import situations_of

_declare = situations_of("lifecycle.scheduler")

LAST_CUT = _declare("the last prompt chunk is cut, to begin at a boundary")
SAME_STEP = _declare("a hit on a block of the same step is refused")
NO_ROOM = _declare("a request cannot come in for want of blocks")
PREEMPTED_ITSELF = _declare("a running request without enough blocks is preempted itself")
PREEMPTED_ANOTHER = _declare("a running request is preempted for another request")
WAITING_ENDS = _declare("a request ends while it waits")
SEVERAL_GROUPS = _declare("a hit is on blocks of several groups")
MANY_ROWS = _declare("a step has more requests than eight")
MANY_DRAFTS = _declare("a scheduled request has five drafts or more")
RESET_HELD = _declare("the prefix cache is emptied while requests run")


@watches(aligned_length)
def _aligned(_: int, computed: int, length: int, num_tokens: int, block_size: int) -> None:
    LAST_CUT.reached_if(computed < num_tokens // block_size * block_size < computed + length)


@watches_change(Scheduler.finish)
def _finished(owner: Scheduler, request_id: str) -> Generator[None, None, None]:
    stage = owner.requests[request_id].stage
    yield
    WAITING_ENDS.reached_if(stage is Stage.WAITING)


@watches(Scheduler.schedule)
def _scheduled(answer: SchedulerStep) -> None:
    MANY_ROWS.reached_if(len(answer.rows) > 8)
    MANY_DRAFTS.reached_if(any(len(row.drafts) >= 5 for row in answer.rows))


@watches_change(Scheduler.reset)
def _reset(owner: Scheduler) -> Generator[None, None, None]:
    running = bool(owner.running)
    yield
    RESET_HELD.reached_if(running)


@watches(Scheduler.preempt_last)
def _preempted(answer: bool) -> None:
    (PREEMPTED_ITSELF if answer else PREEMPTED_ANOTHER).reached()


@watches(Scheduler.is_of_this_step)
def _same_step(answer: bool) -> None:
    SAME_STEP.reached_if(answer)


@watches(Scheduler.has_room)
def _room(answer: bool) -> None:
    NO_ROOM.reached_if(not answer)


@watches(Scheduler.hit)
def _hit(answer: list[list[int]]) -> None:
    SEVERAL_GROUPS.reached_if(len(answer) > 1)
