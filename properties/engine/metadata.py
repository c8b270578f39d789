"""From a step to the metadata that builders make of it, and from metadata to the states that a forward touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from oracle.lifecycle.requests import ScheduledRequest
from properties.engine.flaws import Misled
from properties.engine.world import World
from statecheck.case.values import Call, Name, Record, Tensor, Value, boolean, int32, record


@dataclass(frozen=True)
class ForwardBatch:
    """The rows of a step in the runner's order, `padding` rows behind them, and the accepted count of each request."""

    rows: tuple[ScheduledRequest, ...]
    padding: int
    accepted: Mapping[str, int]

    @property
    def starts(self) -> tuple[int, ...]:
        lengths = [row.length for row in self.rows] + [0] * self.padding
        return tuple(accumulate(lengths, initial=0))

    @property
    def num_tokens(self) -> int:
        return self.starts[-1]


def in_order(
    rows: Sequence[ScheduledRequest], world: World, priority: Mapping[str, int]
) -> tuple[ScheduledRequest, ...]:
    """Decodes, then prompts that are not at their beginning from short to long, then first chunks.

    Among equals `priority` decides. Source: contract 1.5.
    """

    def key(row: ScheduledRequest) -> tuple[int, int, int]:
        short = row.length <= 1 + world.num_spec
        kind = 0 if not row.is_prefilling else 3 if not row.computed else 1 if short else 2
        return kind, 0 if kind == 0 else row.length, priority[row.id]

    return tuple(sorted(rows, key=key))


def common_metadata(batch: ForwardBatch, group: int) -> Record:
    rows, padding = batch.rows, [0] * batch.padding
    starts, seq_lens = int32(batch.starts), [row.end for row in rows] + padding
    return record(
        "CommonAttentionMetadata",
        query_start_loc=starts,
        query_start_loc_cpu=starts.on_host(),
        seq_lens=int32(seq_lens),
        num_reqs=len(seq_lens),
        # As runners do, it counts the padding of a full graph.
        num_actual_tokens=batch.num_tokens + batch.padding,
        max_query_len=max((row.length for row in rows), default=0),
        max_seq_len=max(seq_lens, default=0),
        block_table_tensor=Name(f"rows{group}"),
        slot_mapping=Tensor("int64", (0,), ()),
        is_prefilling=boolean([row.is_prefilling for row in rows] + [False] * batch.padding).on_host(),
        seq_lens_cpu_upper_bound=int32(seq_lens).on_host(),
    )


def build(world: World, batch: ForwardBatch, group: int) -> Call:
    """The builder's call; the table rows of the batch are named already."""
    counts = [batch.accepted[row.id] for row in batch.rows] + [1] * batch.padding
    arguments: dict[str, Value] = {
        "self": Name(f"builder{group}"),
        "common_prefix_len": 0,
        "common_attn_metadata": common_metadata(batch, group),
    }
    keywords: dict[str, Value] = {"num_accepted_tokens": int32(counts) if world.num_spec else None}
    if world.kinds[group] == "gdn":
        zero = world.zero_marks or world.profile.marks_every_decode
        marks = [_mark(row, zero=zero) for row in batch.rows] + [-1] * batch.padding
        keywords["num_decode_draft_tokens_cpu"] = int32(marks).on_host()
    return Call(
        f"{world.builder(group).builder}.build",
        tuple(arguments.items()),
        tuple(keywords.items()),
        by_content=True,
    )


def _mark(row: ScheduledRequest, *, zero: bool) -> int:
    """The draft count that marks a row as speculative, -1 for any other."""
    return len(row.drafts) if row.drafts or (zero and not row.is_prefilling) else -1


@dataclass(frozen=True)
class StateAccess:
    """Where a forward finds and leaves a request's state in one group, as its metadata say.

    `tokens` are places in the batch's tokens. `initial`: a state is read, from these blocks, its conv rows from
    `first_row` on; else the forward starts from zeros. `temporal` are (block, index of the token after which it is the
    state); `windows` are (block, index of the token at whose end the window from row 0 on stands, further rows).
    """

    tokens: tuple[int, ...]
    initial: bool
    conv_block: int
    first_row: int
    temporal_block: int
    temporal: tuple[tuple[int, int], ...]
    windows: tuple[tuple[int, int, int], ...]


class Fields:
    """The fields of metadata as plain values."""

    def __init__(self, metadata: Record) -> None:
        self._fields = dict(metadata.fields)

    def number(self, name: str) -> int:
        return int(self._fields[name])

    def vector(self, name: str) -> list[int] | None:
        found = self._fields[name]
        return None if found is None else list(found.values())

    def known(self, name: str) -> list[int]:
        found = self.vector(name)
        if found is None:
            raise Misled(f"{name} = None", wanted="should be there for this batch", rule=f"{name} is missing")
        return found

    def table(self, name: str) -> list[tuple[int, ...]]:
        found = self._fields[name]
        if found is None:
            raise Misled(f"{name} = None", wanted="should be there for this batch", rule=f"{name} is missing")
        return [(value,) for value in found.values()] if len(found.shape) == 1 else list(found.rows())


def accesses(world: World, group: int, metadata: Record) -> list[StateAccess]:
    """The accesses of the group's kernels. Source: contract 2.6.

    Raises:
        Misled: they would read memory that is not theirs.
    """
    fields = Fields(metadata)
    try:
        if world.kinds[group] == "gdn":
            return _gdn(fields)
        return _decodes(world, fields) + _prefills(world, fields)
    except IndexError as error:
        raise Misled(
            f"metadata of group {group} have fewer entries than their kernels read", rule="too few metadata"
        ) from error


def _decodes(world: World, fields: Fields) -> list[StateAccess]:
    count = fields.number("num_decodes")
    starts = fields.vector("query_start_loc_d") or list(range(count + 1))
    counts = fields.vector("num_accepted_tokens")
    found = []
    for row, blocks in enumerate(fields.table("state_indices_tensor_d")[:count] if count else []):
        tokens = tuple(range(starts[row], starts[row + 1]))
        if world.mode == "all":
            source = blocks[fields.known("block_idx_last_computed_token")[row]]
            target = blocks[fields.known("block_idx_last_scheduled_token")[row]]
            found.append(StateAccess(tokens, True, source, 0, source, ((target, 0),), ((target, 0, 0),)))
        else:
            found.append(decode(tokens, blocks, counts[row] if counts else 1))
    return found


def decode(tokens: tuple[int, ...], blocks: Sequence[int], accepted: int) -> StateAccess:
    """A decode leaves a temporal state per token, each in a block of its own, and the conv rows of all of them."""
    if accepted < 1:
        raise Misled(f"num_accepted_tokens = {accepted}", wanted="should be >= 1", rule="num_accepted_tokens")
    length = len(tokens)
    return StateAccess(
        tokens,
        True,
        blocks[0],
        accepted - 1,
        blocks[accepted - 1],
        tuple((blocks[index], index) for index in range(length)),
        ((blocks[0], 0, length - 1),),
    )


def _prefills(world: World, fields: Fields) -> list[StateAccess]:
    count, before = fields.number("num_prefills"), fields.number("num_decodes")
    if not count:
        return []
    first, starts = fields.number("num_decode_tokens"), fields.known("query_start_loc_p")
    initial = fields.known("has_initial_states_p")
    found = []
    for row, blocks in enumerate(fields.table("state_indices_tensor_p")[:count]):
        tokens = tuple(range(first + starts[row], first + starts[row + 1]))
        if world.mode != "all":
            found.append(prefill(tokens, blocks[0], initial=bool(initial[row])))
            continue
        # The state at every boundary on its way is left in its own column, and the last one.
        source = blocks[fields.known("block_idx_last_computed_token")[before + row]]
        begin = fields.known("block_idx_first_scheduled_token_p")[row]
        last = fields.known("block_idx_last_scheduled_token")[before + row]
        computed = fields.known("num_computed_tokens_p")[row]
        ends = [((column + 1) * world.block_size - computed - 1, column) for column in range(begin, last)]
        ends.append((len(tokens) - 1, last))
        temporal = tuple((blocks[column], index) for index, column in ends)
        windows = tuple((block, index, 0) for block, index in temporal)
        found.append(StateAccess(tokens, bool(initial[row]), source, 0, source, temporal, windows))
    return found


def prefill(tokens: tuple[int, ...], block: int, *, initial: bool) -> StateAccess:
    """A prefill leaves the state after its last token, where it found the one before its first."""
    last = len(tokens) - 1
    return StateAccess(tokens, initial, block, 0, block, ((block, last),), ((block, last, 0),))


def _gdn(fields: Fields) -> list[StateAccess]:
    return _speculative(fields) + _others(fields)


def _speculative(fields: Fields) -> list[StateAccess]:
    count = fields.number("num_spec_decodes")
    if not count:
        return []
    starts, counts = fields.known("spec_query_start_loc"), fields.known("num_accepted_tokens")
    places: Any = fields.vector("spec_token_indx") or range(starts[count])
    found = []
    for row, blocks in enumerate(fields.table("spec_state_indices_tensor")[:count]):
        tokens = tuple(places[at] for at in range(starts[row], starts[row + 1]))
        found.append(decode(tokens, blocks, counts[row]))
    return found


def _others(fields: Fields) -> list[StateAccess]:
    """Rows without speculation: as soon as one of them is a prefill, all go its way."""
    prefills, decodes = fields.number("num_prefills"), fields.number("num_decodes")
    if not prefills + decodes:
        return []
    starts = fields.vector("non_spec_query_start_loc") or list(range(decodes + 1))
    places: Any = fields.vector("non_spec_token_indx") or range(starts[-1])
    blocks = fields.known("non_spec_state_indices_tensor")
    found = []
    for row in range(len(starts) - 1):
        tokens = tuple(places[at] for at in range(starts[row], starts[row + 1]))
        if prefills:
            initial = bool(fields.known("has_initial_state")[row])
            found.append(prefill(tokens, blocks[row], initial=initial))
        else:
            found.append(decode(tokens, (blocks[row],), 1))
    return found
