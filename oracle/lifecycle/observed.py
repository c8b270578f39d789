"""What the laws of a whole engine see of a step."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.recurrences.bounds import Near

Place = tuple[int, int]
"""A group, and a block."""
Owner = tuple[str, int, int, int]
"""A request, a group, a column, and the block that the request has there."""
Stored = tuple[int, int, str, int, Any]
"""A group, a block, a request, and so many of its tokens after which the contents should be the state: pairs of a kind
("keys", "conv" or "temporal") and what is there."""


@dataclass(frozen=True)
class Decided:
    """What the scheduler wants of the worker for a request: tokens computed before, tokens and drafts of the step.

    `begins`: it is new or comes back.
    """

    computed: int
    tokens: int
    drafts: int
    begins: bool


@dataclass(frozen=True)
class GroupAccess:
    """What a row of the forward did in a recurrent group.

    Args:
        initial: it reads a state.
        blocks: of its conv state, and of its temporal state.
        windows, temporal: what it read, by layer.
        written: blocks.
        tokens: places in the batch.
    """

    group: int
    initial: bool
    blocks: tuple[int, int]
    windows: tuple[tuple[int, ...], ...]
    temporal: tuple[int, ...]
    written: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class WindowAccess:
    """What a row of the forward did in a group of sliding-window attention.

    Args:
        keys: by layer, the keys that the row read of the computed tokens in the window of its first token.
        read, written: the blocks that the row read and wrote.
    """

    group: int
    keys: tuple[tuple[int, ...], ...]
    read: tuple[int, ...]
    written: tuple[int, ...]


@dataclass
class ForwardRow:
    """A row of the forward: its request, its token ids, and what it read.

    Args:
        computed: tokens before the step, as the worker has it.
        keys: what attention read of these tokens, by layer.
        table: pages of attention that it may use.
        slots: where attention stores its tokens.
        parents: in a tree of drafts, the place of the token before each, -1 for the first; nothing where that is the last one.
        wrong: of each output of a layer that is not the recurrence's, the group, the number of the token in the row, what was found, and what is expected.
        handed: by token, the state that the stage before has made of it; nothing in an engine without stages, and in the first stage.
        sliding: of each group of sliding-window attention.
    """

    request: str
    tokens: tuple[int, ...]
    computed: int = 0
    keys: tuple[tuple[int, ...], ...] = ()
    table: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    groups: list[GroupAccess] = field(default_factory=list)
    parents: tuple[int, ...] = ()
    handed: tuple[int, ...] = ()
    wrong: tuple[tuple[int, int, float, Near], ...] = ()
    sliding: list[WindowAccess] = field(default_factory=list)


@dataclass(frozen=True)
class Transfers:
    """What a connector has under way in a step.

    Args:
        loading, loading_after: the request of each place that is being loaded, as the forward ran and after the step.
        saving, saving_after: places that are being saved since an earlier step, and those after the step.
        saved: (group, block, request, tokens, contents) of what was read to be saved in the step, or of all that the connector has.
        offered: the same of all that may be loaded behind the step.
        sent: requests that begin in the step, to load what another request has computed of their prompt.
        kept: of blocks that are in use without an owner, how often they are counted: to be saved, or freed while a step in flight
            may write them.
        arrived: of each request that begins behind a load of c tokens, the blocks that its forward reads, in every group: (group, block,
            request, tokens, contents), where a block's contents should be the state after c tokens, or its page of the keys of the first c.
        waiting: requests whose load was requested, and that have not begun since.
        freed: blocks that a save or a load read in the step, and that were free behind a step after it was requested.
    """

    loading: Mapping[Place, str]
    loading_after: Mapping[Place, str]
    saving: frozenset[Place]
    saving_after: frozenset[Place]
    saved: Sequence[Stored]
    kept: Mapping[int, int]
    arrived: Sequence[Stored] = ()
    freed: frozenset[int] = frozenset()
    waiting: frozenset[str] = frozenset()
    offered: Sequence[Stored] = ()
    sent: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SlotPool:
    """Slots of a group in an engine that counts no references: each is free, cached, or a request's.

    Args:
        slots: all that there are, without the one of padding.
        free: as the allocator lists them.
        cached: as the tree of prefixes lists them.
        held: by requests, each slot once.
        shared: whether requests may hold what is cached, as a prefix.
        copied: those that a copy to host memory reads that is not done.
    """

    group: int
    slots: Sequence[int]
    free: Sequence[int]
    cached: Sequence[int]
    held: Mapping[str, Sequence[int]]
    shared: bool
    copied: Collection[int] = ()


@dataclass
class ObservedStep:
    """A step of an engine.

    Args:
        scheduled: by request.
        stray: what rows of padding did.
        dummies: accesses of dummy batches, whose rows belong to no request.
        outputs: tokens that requests said.
        owners, owners_after: while the forward ran, and after the step.
        references: how often each block in use is counted.
        free: blocks.
        slots: of the worker, by request.
        locked: of an engine that locks prefixes, those that are: how many tokens each has. Nothing while a session or a copy may hold some.
        idle: nothing is left to do.
        published: blocks that may be hit.
        transfers: of a connector, None without one.
        pools: of an engine that counts no references; the others have `references` and `free`.
        stages: of an engine whose layers are divided among stages, what a stage did with a batch, of this step or of an earlier one, by
            the stage's number: `scheduled` and `owners` as the batch was scheduled, `rows` and `stray`, `published` as the batch was scheduled
            with the contents behind it, and `host_memory`.
        host_memory: of each buffer of a stage that the device reads for a batch: its values as the batch was prepared, and as its output came.
        ended: requests that came to their end in the step, and were not aborted; none where the adapter does not say.
        first_host_block: of an engine that loads from host memory what may be hit, the number of the first block there.
        room: of such an engine, slots of states behind the step that are free, or have a prefix that nothing uses.
        in_flight: batches with rows that ran before the step, and whose outputs had not come when it was scheduled.
    """

    scheduled: Mapping[str, Decided] = field(default_factory=dict)
    rows: Sequence[ForwardRow] = ()
    stray: Sequence[GroupAccess] = ()
    dummies: Sequence[GroupAccess] = ()
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    owners: Sequence[Owner] = ()
    owners_after: Sequence[Owner] = ()
    references: Sequence[tuple[int, int]] = ()
    free: int = 0
    slots: Mapping[str, int] = field(default_factory=dict)
    locked: Sequence[int] = ()
    idle: bool = False
    published: Sequence[Stored] = ()
    transfers: Transfers | None = None
    pools: Sequence[SlotPool] = ()
    stages: Sequence[tuple[int, "ObservedStep"]] = ()
    host_memory: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = ()
    ended: Sequence[str] = ()
    first_host_block: int | None = None
    room: int = 0
    in_flight: int = 0
