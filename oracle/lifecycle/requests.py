"""Requests, what a step does with them, and what a user or a scheduler may wish for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from oracle.lifecycle.tables import BlockList


@dataclass(frozen=True)
class Geometry:
    """An engine's cache: `mode` "none", "align" or "all"; tokens per block; speculative tokens; groups; blocks.

    In mode "none" a block has room for a whole request, and there is no prefix cache.
    """

    mode: str = "align"
    block_size: int = 4
    num_spec: int = 0
    num_groups: int = 1
    num_blocks: int = 64
    max_num_seqs: int = 8
    max_model_len: int = 64


class Stage(Enum):
    """Whether a request waits, runs or has ended."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False)
class Request:
    """`tokens` are all that are known, the prompt first; `prefixes[n]` is the prefix of the first n of them.

    `seen` says that a worker knows it, so that its coming back is a resumption.
    """

    id: str
    tokens: list[int]
    num_prompt: int
    prefixes: list[int]
    num_groups: int
    computed: int = field(init=False)
    stage: Stage = Stage.WAITING
    seen: bool = False
    lists: list[BlockList] = field(init=False)

    def __post_init__(self) -> None:
        self.forget_blocks()

    def forget_blocks(self) -> None:
        """Nothing is computed, in no block."""
        self.computed = 0
        self.lists = [BlockList() for _ in range(self.num_groups)]

    @property
    def uncomputed(self) -> int:
        """Known tokens that are not computed."""
        return len(self.tokens) - self.computed

    @property
    def is_decoding(self) -> bool:
        """Prompt and replay are over: only the newest token, which was sampled, is not computed."""
        return self.stage is Stage.RUNNING and self.computed >= self.num_prompt and self.uncomputed == 1


@dataclass(frozen=True)
class ScheduleRequest:
    """Schedule request `id`: at most `tokens` of its known tokens, and behind them the `drafts` if it is decoding."""

    id: str
    tokens: int = 1
    drafts: tuple[int, ...] = ()


@dataclass(frozen=True)
class ScheduledRequest:
    """A request in a step: computed and scheduled tokens, draft tokens among these, and blocks that are new to the worker.

    `tokens` are the scheduled ones, drafts last; `prefixes[i]` is the prefix after the i-th of them. With `is_new` or `is_resumed`, `new_blocks` are all of
    the request's, by group. `is_prefilling`: it computes tokens that were known before, and may be left without a sample.
    `samples`: the step ends with a new token. `hit`: blocks that the prefix cache gave it now.
    """

    id: str
    computed: int
    length: int
    drafts: tuple[int, ...]
    tokens: tuple[int, ...]
    prefixes: tuple[int, ...]
    new_blocks: tuple[tuple[int, ...], ...]
    is_new: bool = False
    is_resumed: bool = False
    is_prefilling: bool = False
    samples: bool = True
    hit: int = 0

    @property
    def end(self) -> int:
        """Tokens behind the last scheduled one."""
        return self.computed + self.length


@dataclass(frozen=True)
class SchedulerStep:
    """What a scheduler hands to a worker.

    `finished`, `preempted`: ids since the step before. Requests that a reset of the prefix cache preempted are in `reset`
    and not among the latter: a worker that keeps rows does not learn that they are gone; they come back as resumed.
    `lost` are the blocks whose contents
    are gone before the step begins; `registered` those that hold a full prefix once it has ended.
    """

    rows: tuple[ScheduledRequest, ...]
    finished: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()
    lost: tuple[int, ...] = ()
    registered: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def resumed(self) -> tuple[str, ...]:
        """The requests that come back."""
        return tuple(row.id for row in self.rows if row.is_resumed)
