"""Situations of the simulated engine: blocks, the ledger, prefixes, the scheduler and block tables."""

from collections.abc import Generator

from oracle.lifecycle.blocks import BlockPool, Key
from oracle.lifecycle.ledger import StateLedger
from oracle.lifecycle.prefixes import Prefixes
from oracle.lifecycle.requests import SchedulerStep, Stage
from oracle.lifecycle.scheduler import Scheduler, aligned_length
from oracle.lifecycle.tables import BlockList
from statecheck.reference.situations import situations_of, watches, watches_change

_declare = situations_of("lifecycle")

EVICTED = _declare("a block that could still be hit is taken for something else")
SHARED = _declare("several requests hold a block")
HIT_FREE = _declare("a free block is hit")
TWICE = _declare("two blocks hold the same state")


@watches(BlockPool.evict)
def _evicted(_: None) -> None:
    EVICTED.reached()


@watches(BlockPool.hold)
def _held(_: None, owner: BlockPool, block: int) -> None:
    (SHARED if owner.holders(block) > 1 else HIT_FREE).reached()


@watches_change(BlockPool.register)
def _registered(owner: BlockPool, block: int, key: Key) -> Generator[None, None, None]:
    known, others = block in owner.registered, owner.find(key) is not None
    yield
    TWICE.reached_if(not known and others)


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


BEFORE_FIRST = _declare("a conv window reaches before the request's first token")


@watches(Prefixes.last)
def _window(_: object, owner: Prefixes, prefix: int, count: int) -> None:
    BEFORE_FIRST.reached_if(0 < owner.length(prefix) < count)


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


MOVED = _declare("speculative columns move behind the running one")
SKIPPED = _declare("columns in front of the running one stay null")
KEPT_HIT = _declare("the column of a hit is kept until its state was precopied")
DROPPED_STATE = _declare("the column of the last state is freed")


@watches_change(BlockList.extend_aligned)
def _extended(owner: BlockList, needed: int, num_spec: int) -> Generator[None, None, None]:
    width, allocated, moved = len(owner.columns), owner.allocated, owner.moved(needed, num_spec)
    yield
    if needed > width:
        MOVED.reached_if(moved)
        SKIPPED.reached_if(needed - num_spec - 1 > width)
        KEPT_HIT.reached_if(width and not allocated)


@watches(BlockList.drop_last_state)
def _dropped(_: None) -> None:
    DROPPED_STATE.reached()
