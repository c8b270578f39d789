"""The forward of the release's engine: it reads states where the metadata send it, tells what it found, and writes the next ones.

As the release's layers do: a prefill reads the state in its block and leaves the one after its last token there; a speculative decode
reads the temporal state in the column of the last accepted token, and conv rows from the same offset on, and leaves a temporal state
for each token in a column of its own. In mode "all" a row reads the column of its last computed token, and leaves the state at every
boundary that it passes in that boundary's column and the last one in that of its last scheduled token.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from oracle.lifecycle.named_states import UNKNOWN, advanced, next_token
from oracle.lifecycle.observed import ForwardRow, GroupAccess, WindowAccess
from subjects.vllm.engine.settings import CONV_WIDTH, LiveSettings
from subjects.vllm.engine.states import LiveLayer, LiveMemory


@dataclasses.dataclass(frozen=True)
class LiveAccess:
    """Where one row's states are in one group: `tokens` of the batch, blocks to read, and (block, token) to write.

    `window_block` is the one that conv rows are written to, `window_rows` of them. `boundaries` are blocks for what stands on the way:
    conv rows after so many of the tokens, and the temporal state after so many of them.
    """

    tokens: tuple[int, ...]
    initial: bool
    block: int
    temporal_block: int
    first_row: int
    temporal: tuple[tuple[int, int], ...]
    window_block: int
    window_rows: int
    boundaries: tuple[tuple[int, int, int], ...] = ()


def _decode(tokens: Sequence[int], blocks: Sequence[int], accepted: int) -> LiveAccess:
    last = len(tokens) - 1
    return LiveAccess(
        tuple(tokens),
        True,
        blocks[0],
        blocks[accepted - 1],
        accepted - 1,
        tuple((blocks[at], at) for at in range(len(tokens))),
        blocks[0],
        CONV_WIDTH - 1 + last,
    )


def _prefill(
    tokens: Sequence[int], block: int, initial: bool, checkpoint: tuple[int, int] | None
) -> LiveAccess:
    last = len(tokens) - 1
    saved = () if checkpoint is None else ((checkpoint[0], checkpoint[1], checkpoint[1]),)
    return LiveAccess(tuple(tokens), initial, block, block, 0, ((block, last),), block, CONV_WIDTH - 1, saved)


def _checkpoints(found: Any, rows: int) -> list[tuple[int, int] | None]:
    """By row of the prefills, the block of its checkpoint and the tokens before it."""
    if found is None:
        return [None] * rows
    offsets, blocks = found.checkpoint_offsets.tolist(), found.state_indices.tolist()
    return [(block, offset) if offset else None for block, offset in zip(blocks, offsets, strict=True)]


def accesses(metadata: Any, settings: LiveSettings) -> Iterator[LiveAccess]:
    """Accesses of a group's layers to the batch, row by row; rows without tokens are padding."""
    if settings.mode == "all":
        found = _all_states(metadata, settings)
    else:
        found = _gdn(metadata) if hasattr(metadata, "num_spec_decodes") else _mamba(metadata)
    return (access for access in found if access.tokens)


def _rows(indices: Any) -> list[list[int]]:
    return (indices.unsqueeze(-1) if indices.dim() == 1 else indices).tolist()


def _mamba(m: Any) -> Iterator[LiveAccess]:
    if m.num_decodes:
        blocks = _rows(m.state_indices_tensor_d)
        starts = (
            list(range(m.num_decodes + 1)) if m.query_start_loc_d is None else m.query_start_loc_d.tolist()
        )
        counts = None if m.num_accepted_tokens is None else m.num_accepted_tokens.tolist()
        for row in range(m.num_decodes):
            yield _decode(range(starts[row], starts[row + 1]), blocks[row], counts[row] if counts else 1)
    if m.num_prefills:
        blocks, initial = _rows(m.state_indices_tensor_p), m.has_initial_states_p.tolist()
        starts = [m.num_decode_tokens + start for start in m.query_start_loc_p.tolist()]
        checkpoints = _checkpoints(getattr(m, "checkpoint_meta", None), m.num_prefills)
        for row in range(m.num_prefills):
            yield _prefill(
                range(starts[row], starts[row + 1]), blocks[row][0], bool(initial[row]), checkpoints[row]
            )


def _gdn(m: Any) -> Iterator[LiveAccess]:
    if m.num_spec_decodes:
        starts, counts = m.spec_query_start_loc.tolist(), m.num_accepted_tokens.tolist()
        places = (
            range(starts[m.num_spec_decodes]) if m.spec_token_indx is None else m.spec_token_indx.tolist()
        )
        blocks = _rows(m.spec_state_indices_tensor)
        for row in range(m.num_spec_decodes):
            yield _decode(places[starts[row] : starts[row + 1]], blocks[row], counts[row])
    if not m.num_prefills + m.num_decodes:
        return
    starts = m.non_spec_query_start_loc.tolist()
    places = range(starts[-1]) if m.non_spec_token_indx is None else m.non_spec_token_indx.tolist()
    blocks = _rows(m.non_spec_state_indices_tensor)
    initial = None if m.has_initial_state is None else m.has_initial_state.tolist()
    # Where no row is speculative, decodes are peeled off a batch with prefills.
    peeled = m.num_decodes if m.num_prefills and not m.num_spec_decodes else 0
    checkpoints = _checkpoints(getattr(m, "checkpoint", None), len(starts) - 1)
    for row in range(len(starts) - 1):
        tokens = places[starts[row] : starts[row + 1]]
        if initial is None or row < peeled:
            yield _decode(tokens, blocks[row], 1) if tokens else _prefill(tokens, 0, False, None)
        else:
            yield _prefill(tokens, blocks[row][0], bool(initial[row]), checkpoints[row])


def _all_states(m: Any, settings: LiveSettings) -> Iterator[LiveAccess]:
    """Where every boundary has a column: rows of the block table, and columns of it for what is read and written."""
    read, last = m.block_idx_last_computed_token.tolist(), m.block_idx_last_scheduled_token.tolist()
    if m.num_decodes:
        yield from _decodes_of_all(m, settings.num_spec, read, last)
    if m.num_prefills:
        yield from _prefills_of_all(m, settings.block_size, read[m.num_decodes :], last[m.num_decodes :])


def _decodes_of_all(m: Any, num_spec: int, read: Sequence[int], last: Sequence[int]) -> Iterator[LiveAccess]:
    """With drafts, temporal states are found from the column in which the step before put its first one."""
    tables, before, counts = m.state_indices_tensor_d.tolist(), read, [1] * m.num_decodes
    starts = list(range(m.num_decodes + 1))
    if num_spec:
        if m.block_idx_last_scheduled_token_prev_step is None:
            # As the release's layer does, which has no other way to read a decode.
            raise AssertionError("block_idx_last_scheduled_token_prev_step is None beside decodes")
        before = m.block_idx_last_scheduled_token_prev_step.tolist()
        counts, starts = m.num_accepted_tokens.tolist(), m.query_start_loc_d.tolist()
    for row, table in enumerate(tables[: m.num_decodes]):
        tokens = range(starts[row], starts[row + 1])
        yield LiveAccess(
            tuple(tokens),
            True,
            table[read[row]],
            table[before[row] + counts[row] - 1],
            counts[row] - 1,
            tuple((table[last[row] + at], at) for at in range(len(tokens))),
            table[last[row]],
            CONV_WIDTH - 2 + len(tokens),
        )


def _prefills_of_all(m: Any, size: int, read: Sequence[int], last: Sequence[int]) -> Iterator[LiveAccess]:
    """The state at each boundary on the way is the one after the chunk of a scan that ends there."""
    tables, initial = m.state_indices_tensor_p.tolist(), m.has_initial_states_p.tolist()
    starts, computed = m.query_start_loc_p.tolist(), m.num_computed_tokens_p.tolist()
    ends, last_chunks = m.cu_chunk_seqlen_p.tolist()[1:], m.last_chunk_indices_p.tolist()
    firsts, chunk = m.block_idx_first_scheduled_token_p.tolist(), getattr(m, "chunk_size", size)
    for row, (start, end) in enumerate(itertools.pairwise(starts)):
        table, count = tables[row], max(0, last[row] - firsts[row])
        first_chunk = last_chunks[row - 1] + 1 if row else 0
        aligned = first_chunk + size // chunk - 1 - computed[row] % size // chunk
        # The last boundary before the end, where the convolution begins to count.
        whole = (computed[row] + end - start - 1) // size * size - computed[row]
        boundaries = tuple(
            (
                table[firsts[row] + at],
                whole - (count - 1 - at) * size,
                ends[aligned + at * (size // chunk)] - start,
            )
            for at in range(count)
        )
        yield LiveAccess(
            tuple(range(m.num_decode_tokens + start, m.num_decode_tokens + end)),
            bool(initial[row]),
            table[read[row]],
            table[read[row]],
            0,
            ((table[last[row]], ends[last_chunks[row]] - start - 1),),
            table[last[row]],
            CONV_WIDTH - 1,
            boundaries,
        )


class LiveForward:
    """The layers of a batch. `rows` says what each of its rows has read, and `following` each token's next one."""

    def __init__(
        self,
        memory: LiveMemory,
        request_ids: Sequence[str],
        starts: Sequence[int],
        token_ids: Sequence[int],
        handed: Sequence[int] = (),
    ) -> None:
        self.memory, self.token_ids = memory, token_ids
        self.states: list[set[int]] = [{state} for state in handed] or [set() for _ in token_ids]
        self.rows = [
            ForwardRow(name, tuple(token_ids[start:end]), handed=tuple(handed[start:end]))
            for name, start, end in zip(request_ids, starts, starts[1:], strict=False)
        ]
        self._row_of = {
            at: row for row in range(len(self.rows)) for at in range(starts[row], starts[row + 1])
        }
        self.stray: list[GroupAccess] = []
        """Accesses of rows of padding."""

    @property
    def handed_on(self) -> list[int]:
        """The state of each token that all layers are in, and the stages before."""
        return [_one(found) for found in self.states]

    @property
    def following(self) -> list[int]:
        return [next_token(state) for state in self.handed_on]

    def recurrent(self, group: int, layers: Sequence[LiveLayer], metadata: Any) -> None:
        """Run the group's layers as its metadata say."""
        found = list(accesses(metadata, self.memory.settings))
        accessed = []
        for access in found:
            read = [self._read(layer, access) for layer in layers]
            accessed.append((access, read))
        # All rows read before one writes, as where all programs of a launch run at once.
        for access, read in accessed:
            for layer, (window, state) in zip(layers, read, strict=True):
                self._write(layer, access, window, state)
            self._note(group, access, list(read))

    def _read(self, layer: LiveLayer, access: LiveAccess) -> tuple[list[int], int]:
        if not access.initial:
            return [0] * (CONV_WIDTH - 1), 0
        window = layer.window(access.block, access.first_row)
        if layer.kind == "short_conv":
            return window, window[-1] if window else UNKNOWN
        return window, layer.temporal(access.temporal_block)

    def _write(self, layer: LiveLayer, access: LiveAccess, window: list[int], state: int) -> None:
        states = []
        for at in access.tokens:
            state = (
                advanced(state, self.token_ids[at], self.memory.weights)
                if at < len(self.token_ids)
                else UNKNOWN
            )
            if at < len(self.token_ids):
                self.states[at].add(state)
            states.append(state)
        rows = [*window, *states]
        if access.window_block > 0:
            layer.write_window(access.window_block, rows[-access.window_rows :])
        # As Mamba-2's layer: its convolution leaves its rows before a checkpoint is saved, and the scan its state after that.
        for block, conv, temporal in access.boundaries:
            if block > 0:
                layer.write_window(block, _of_step(rows, conv, CONV_WIDTH - 1))
                if layer.kind != "short_conv":
                    layer.write_temporal(block, *_of_step(states, temporal - 1, 1))
        for block, at in access.temporal:
            if block > 0 and layer.kind != "short_conv":
                layer.write_temporal(block, states[at])

    def _note(self, group: int, access: LiveAccess, read: list[tuple[list[int], int]]) -> None:
        written = {block for block, *_ in (*access.temporal, *access.boundaries)} | {access.window_block}
        done = GroupAccess(
            group=group,
            initial=access.initial,
            blocks=(access.block, access.temporal_block),
            windows=tuple(tuple(window) for window, _ in read),
            temporal=tuple(state for _, state in read),
            written=tuple(sorted(written)),
            tokens=access.tokens,
        )
        row = self._row_of.get(access.tokens[0])
        if row is None:
            self.stray.append(done)
        else:
            self.rows[row].groups.append(done)

    def attention(self, group: int, layers: Sequence[LiveLayer], metadata: Any) -> None:
        """Run the attention layers of a group: the pages of each row's block table, and a slot for each of its tokens. Layers of other groups than 0 see a sliding window."""
        block_size = self.memory.settings.kv_block_size
        table, slots = metadata.block_table_tensor.tolist(), metadata.slot_mapping.tolist()
        lengths = metadata.seq_lens.tolist()
        computed = [lengths[at] - len(row.tokens) for at, row in enumerate(self.rows)]
        before = [
            max(0, count + 1 - self.memory.settings.sliding_window) if group else 0 for count in computed
        ]
        pages_read = [
            set(pages[first // block_size : -(-count // block_size)])
            for pages, first, count in zip(table, before, computed, strict=False)
        ]
        for number in self._writers_first(pages_read, slots, block_size):
            row, pages, first = self.rows[number], table[number], before[number]
            read = []
            column, last = first // block_size, -(-computed[number] // block_size)
            for layer in layers:
                found = [key for page in pages[column:last] for key in layer.keys(page)]
                read.append(
                    tuple(found[first - column * block_size : computed[number] - column * block_size])
                )
            tokens = [at for at, owner in self._row_of.items() if owner == number]
            for layer, keys in zip(layers, read, strict=True):
                state = keys[-1] if keys else 0
                for at in tokens:
                    state = advanced(state, self.token_ids[at], self.memory.weights)
                    self.states[at].add(state)
                    if slots[at] >= block_size:
                        layer.write_key(slots[at] // block_size, slots[at] % block_size, state)
            stored = tuple(slots[at] for at in tokens)
            if group:
                written = sorted({slot // block_size for slot in stored})
                row.sliding.append(
                    WindowAccess(group, tuple(read), tuple(pages[column:last]), tuple(written))
                )
            else:
                row.computed, row.keys, row.slots = computed[number], tuple(read), stored
                row.table = tuple(pages[: -(-(computed[number] + len(row.tokens)) // block_size)])

    def write_unknown(self, group: int, layers: Sequence[LiveLayer], metadata: Any) -> None:
        """Run the attention layers of a batch of no request, which write what is no key."""
        size = self.memory.settings.kv_block_size
        slots = [slot for slot in metadata.slot_mapping.tolist() if slot >= size]
        for layer in layers:
            for slot in slots:
                layer.write_key(slot // size, slot % size, UNKNOWN)
        if slots:
            self.stray.append(
                GroupAccess(group, False, (0, 0), (), (), tuple({slot // size for slot in slots}), ())
            )

    def _writers_first(
        self, pages_read: Sequence[set[int]], slots: Sequence[int], block_size: int
    ) -> Iterator[int]:
        """The rows, each behind those that write what it reads: the keys of a batch are written before its attention reads any."""
        written: list[set[int]] = [set() for _ in self.rows]
        for at, number in self._row_of.items():
            if slots[at] >= block_size:
                written[number].add(slots[at] // block_size)
        waiting = list(range(len(self.rows)))
        while waiting:
            ready = (
                number
                for number in waiting
                if all(number == by or not pages_read[number] & written[by] for by in waiting)
            )
            yield waiting.pop(waiting.index(next(ready, waiting[0])))


def _one(states: set[int]) -> int:
    """The state that all layers are in; of layers that differ a number of all of theirs."""
    return next(iter(states)) if len(states) == 1 else advanced(hash(tuple(sorted(states))), 0)


def _of_step(states: list[int], first: int, count: int) -> list[int]:
    """So many from `first` on, where the step has them all."""
    return states[first : first + count] if 0 <= first <= len(states) - count else [UNKNOWN] * count
