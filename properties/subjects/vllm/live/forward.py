"""The forward of an engine of lives: it reads states where the metadata send it, tells what it found, and writes the next ones.

It follows the metadata as the release's layers do: a prefill reads the state in its block and leaves the one after its last
token there; a speculative decode reads the temporal state in the column of the last accepted token, and conv rows from the
same offset on, and leaves a temporal state for each token in a column of its own.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from oracle.lifecycle.named_states import UNKNOWN, advanced, next_token
from properties.subjects.vllm.live.config import CONV_WIDTH
from properties.subjects.vllm.live.states import LiveLayer, LiveMemory


@dataclasses.dataclass(frozen=True)
class LiveAccess:
    """Where one row's states are in one group: `tokens` of the batch, blocks to read, and (block, token) to write."""

    tokens: tuple[int, ...]
    initial: bool
    block: int
    temporal_block: int
    first_row: int
    temporal: tuple[tuple[int, int], ...]
    window_end: int
    window_rows: int
    checkpoint: tuple[int, int] | None = None
    """A block for the state after so many of the tokens."""


def _decode(tokens: Sequence[int], blocks: Sequence[int], accepted: int) -> LiveAccess:
    last = len(tokens) - 1
    return LiveAccess(
        tuple(tokens),
        True,
        blocks[0],
        blocks[accepted - 1],
        accepted - 1,
        tuple((blocks[at], at) for at in range(len(tokens))),
        last,
        CONV_WIDTH - 1 + last,
    )


def _prefill(
    tokens: Sequence[int], block: int, initial: bool, checkpoint: tuple[int, int] | None
) -> LiveAccess:
    last = len(tokens) - 1
    return LiveAccess(
        tuple(tokens), initial, block, block, 0, ((block, last),), last, CONV_WIDTH - 1, checkpoint
    )


def _checkpoints(found: Any, rows: int) -> list[tuple[int, int] | None]:
    """By row of the prefills, the block of its checkpoint and the tokens before it."""
    if found is None:
        return [None] * rows
    offsets, blocks = found.checkpoint_offsets.tolist(), found.state_indices.tolist()
    return [(block, offset) if offset else None for block, offset in zip(blocks, offsets, strict=True)]


def accesses(metadata: Any) -> Iterator[LiveAccess]:
    """What a group's layers do with the batch, row by row; rows without tokens are padding."""
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


class LiveForward:
    """The layers of a batch. `rows` says what each of its rows has read, and `following` each token's next one."""

    def __init__(
        self, memory: LiveMemory, request_ids: Sequence[str], starts: Sequence[int], token_ids: Sequence[int]
    ) -> None:
        self.memory, self.token_ids = memory, token_ids
        self.states: list[set[int]] = [set() for _ in token_ids]
        self.rows: list[dict[str, Any]] = [
            {"request": name, "tokens": tuple(token_ids[start:end]), "groups": []}
            for name, start, end in zip(request_ids, starts, starts[1:], strict=False)
        ]
        self._row_of = {
            at: row for row in range(len(self.rows)) for at in range(starts[row], starts[row + 1])
        }
        self.stray: list[dict[str, Any]] = []
        """What rows of padding touch."""

    @property
    def following(self) -> list[int]:
        return [next_token(_one(found)) for found in self.states]

    def recurrent(self, group: int, layers: Sequence[LiveLayer], metadata: Any) -> None:
        """Run the group's layers as its metadata say."""
        found = list(accesses(metadata))
        told = []
        for access in found:
            read = [self._read(layer, access) for layer in layers]
            told.append((access, read))
        # All rows read before one writes, as where all programs of a launch run at once.
        for access, read in told:
            for layer, (window, state) in zip(layers, read, strict=True):
                self._write(layer, access, window, state)
            self._tell(group, access, list(read))

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
        if access.block > 0:
            layer.write_window(access.block, rows[-access.window_rows :])
        # As Mamba-2's layer: its convolution leaves its rows before a checkpoint is saved, and the scan its state after that.
        if access.checkpoint is not None and access.checkpoint[0] > 0:
            block, before = access.checkpoint
            layer.write_window(block, rows[before : before + CONV_WIDTH - 1])
            if layer.kind != "short_conv":
                layer.write_temporal(block, states[before - 1])
        for block, at in access.temporal:
            if block > 0 and layer.kind != "short_conv":
                layer.write_temporal(block, states[at])

    def _tell(self, group: int, access: LiveAccess, read: list[tuple[list[int], int]]) -> None:
        written = {block for block, _ in access.temporal} | {access.block}
        if access.checkpoint is not None:
            written.add(access.checkpoint[0])
        told = {
            "group": group,
            "initial": access.initial,
            "blocks": (access.block, access.temporal_block),
            "windows": tuple(tuple(window) for window, _ in read),
            "temporal": tuple(state for _, state in read),
            "written": tuple(sorted(written)),
            "tokens": access.tokens,
        }
        row = self._row_of.get(access.tokens[0])
        if row is None:
            self.stray.append(told)
        else:
            self.rows[row]["groups"].append(told)

    def attention(
        self,
        layers: Sequence[LiveLayer],
        table: Sequence[Sequence[int]],
        slots: Sequence[int],
        computed: Sequence[int],
        block_size: int,
    ) -> None:
        """Run the attention layers: the pages of each row's block table, and a slot for each of its tokens."""
        for number, row in enumerate(self.rows):
            pages = table[number]
            read = []
            for layer in layers:
                last = -(-computed[number] // block_size)
                found = [key for page in pages[:last] for key in layer.keys(page)]
                read.append(tuple(found[: computed[number]]))
            row["computed"] = computed[number]
            row["keys"] = tuple(read)
            row["table"] = tuple(pages[: -(-(computed[number] + len(row["tokens"])) // block_size)])
            tokens = [at for at, owner in self._row_of.items() if owner == number]
            for layer, keys in zip(layers, read, strict=True):
                state = keys[-1] if keys else 0
                for at in tokens:
                    state = advanced(state, self.token_ids[at])
                    self.states[at].add(state)
                    if slots[at] >= block_size:
                        layer.write_key(slots[at] // block_size, slots[at] % block_size, state)
            row["slots"] = tuple(slots[at] for at in tokens)


def _one(states: set[int]) -> int:
    """The state that all layers are in; of layers that differ a number of all of theirs."""
    return next(iter(states)) if len(states) == 1 else advanced(hash(tuple(sorted(states))), 0)
