"""What a step of a scenario did, as a report tells it and the laws judge it."""

import dataclasses
from typing import Any

from oracle.lifecycle.broken_laws import Broken, BrokenLaws


@dataclasses.dataclass(frozen=True)
class LiveStep:
    """What a step did.

    Args:
        scheduled: by request, what the scheduler decided: tokens computed before, tokens and drafts of the step, whether it begins.
        preempted, finished: requests.
        outputs: by request, the tokens that it said.
        owners: (request, group, column, block) after the step.
        published: (group, block, request, tokens) of each block that may be hit as so many tokens of the request.
        free: blocks.
        idle: nothing is left to do.
        broken: what breaks each law.
        findings: all that does: the law, what was seen, what should be, and what was found of whose state.
        tables: as `owners`, while the forward runs.
        accesses: which blocks each row of the forward used in each group, see `contents`.
        held: what stands in the block of each of `owners`.
        loaded, saved: (group, block, request, tokens) of blocks that a connector wrote, and read to save them.
        unloaded: requests whose loads failed.
    """

    scheduled: dict[str, Any]
    preempted: tuple[str, ...]
    finished: tuple[str, ...]
    outputs: dict[str, Any]
    owners: tuple[Any, ...]
    published: tuple[Any, ...]
    free: int
    idle: bool
    broken: BrokenLaws
    findings: tuple[Broken, ...]
    tables: tuple[Any, ...]
    accesses: tuple[Any, ...]
    held: tuple[Any, ...]
    loaded: tuple[Any, ...] = ()
    saved: tuple[Any, ...] = ()
    unloaded: tuple[str, ...] = ()
