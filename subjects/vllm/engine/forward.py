"""The forward of the release's engine: it reads states where the metadata send it, tells what it found, and writes the next ones."""

from collections.abc import Iterator, Sequence
from typing import Any

from oracle.lifecycle.named_states import UNKNOWN, advanced, next_token
from oracle.lifecycle.observed import ForwardRow, GroupAccess
from subjects.vllm.engine.accesses import LiveAccess, accesses
from subjects.vllm.engine.settings import CONV_WIDTH
from subjects.vllm.engine.states import LiveLayer, LiveMemory


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
        """What rows of padding touch."""

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
            state = advanced(state, self.token_ids[at]) if at < len(self.token_ids) else UNKNOWN
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

    def attention(self, layers: Sequence[LiveLayer], metadata: Any) -> None:
        """Run the attention layers: the pages of each row's block table, and a slot for each of its tokens."""
        block_size = self.memory.settings.kv_block_size
        table, slots = metadata.block_table_tensor.tolist(), metadata.slot_mapping.tolist()
        lengths = metadata.seq_lens.tolist()
        computed = [lengths[at] - len(row.tokens) for at, row in enumerate(self.rows)]
        pages_read = [
            set(pages[: -(-count // block_size)]) for pages, count in zip(table, computed, strict=False)
        ]
        for number in self._writers_first(pages_read, slots, block_size):
            row, pages = self.rows[number], table[number]
            read = []
            for layer in layers:
                last = -(-computed[number] // block_size)
                found = [key for page in pages[:last] for key in layer.keys(page)]
                read.append(tuple(found[: computed[number]]))
            row.computed = computed[number]
            row.keys = tuple(read)
            row.table = tuple(pages[: -(-(computed[number] + len(row.tokens)) // block_size)])
            tokens = [at for at, owner in self._row_of.items() if owner == number]
            for layer, keys in zip(layers, read, strict=True):
                state = keys[-1] if keys else 0
                for at in tokens:
                    state = advanced(state, self.token_ids[at])
                    self.states[at].add(state)
                    if slots[at] >= block_size:
                        layer.write_key(slots[at] // block_size, slots[at] % block_size, state)
            row.slots = tuple(slots[at] for at in tokens)

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
                one
                for one in waiting
                if all(one == by or not pages_read[one] & written[by] for by in waiting)
            )
            yield waiting.pop(waiting.index(next(ready, waiting[0])))


def _one(states: set[int]) -> int:
    """The state that all layers are in; of layers that differ a number of all of theirs."""
    return next(iter(states)) if len(states) == 1 else advanced(hash(tuple(sorted(states))), 0)


def _of_step(states: list[int], first: int, count: int) -> list[int]:
    """So many from `first` on, where the step has them all."""
    return states[first : first + count] if 0 <= first <= len(states) - count else [UNKNOWN] * count
