"""The decodes of a full graph: their tensors, written into a builder's own buffers in one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..batch import CommonAttentionMetadata
from ..bound import BoundLaunch
from ..types import cdiv
from .blocks import StateBlocks
from .common import moved_ids
from .host import HostBatch
from .kernels.decodes import stage_decodes_kernel

_ROWS_PER_PROGRAM = 128
_TABLE = ("table_ptr", "table_row", "table_column", "table_width")
_VECTORS = ("seq_lens_ptr", "starts_ptr", "counts_ptr")
_ROWS = ("rows", "filled")

Rows = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


class BufferPrefixes(dict[int, torch.Tensor]):
    """The first entries of a buffer, by their number: graphs come in few sizes, and each slice takes time."""

    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.buffer = buffer

    def __missing__(self, size: int) -> torch.Tensor:
        prefix = self[size] = self.buffer[:size]
        return prefix


class StagedDecodes:
    """Writes what full graphs of decodes read: on a GPU in one launch, where torch needs one for each tensor.

    Into buffers that keep their addresses: `ids` int32 [most rows, columns], or [most rows] for one column, `starts`
    int32 [most rows + 1] or None, `counts` int32 [most rows] or None, `masks` bool [most rows] or None. `blocks`: which
    blocks of its table a row runs on. `pad`: the block of rows without tokens.
    """

    def __init__(
        self,
        blocks: StateBlocks,
        pad: int,
        ids: torch.Tensor,
        starts: torch.Tensor | None = None,
        counts: torch.Tensor | None = None,
        masks: torch.Tensor | None = None,
    ) -> None:
        self._blocks, self._pad = blocks, pad
        self._ids = BufferPrefixes(ids)
        self._starts, self._counts, self._masks = (
            None if each is None else BufferPrefixes(each) for each in (starts, counts, masks)
        )
        self._columns = ids.size(1) if ids.ndim == 2 else 1
        self._grid = (cdiv(ids.size(0) + 1, _ROWS_PER_PROGRAM), 1, 1)
        # Of a table of another width than the buffer, mode all copies what fits.
        self._in_one_launch = ids.device.type == "cuda" and blocks.mode != "all"
        # By what a launch is compiled for: the dtypes of what is read, of counts if there are any.
        self._launches: dict[tuple[torch.dtype, ...], BoundLaunch] = {}

    def __call__(
        self,
        common: CommonAttentionMetadata,
        batch: HostBatch,
        counts: torch.Tensor | None,
        filled: int,
    ) -> Rows:
        """Write the rows of a batch, those from `filled` on as padding, without waiting.

        Returns ids, starts, counts and masks of these rows. `batch`: what was read of `common`. `counts` [>= rows] int32 or
        int64 on the device, or None if there is no buffer for them. A row of more tokens than its table holds fails
        there, as an index out of bounds does; on the host it was refused.
        """
        table, rows = common.block_table_tensor, batch.rows
        if self._in_one_launch:
            self._launch(table, (common.seq_lens, common.query_start_loc, counts), rows, filled)
        else:
            ids = self._blocks.ids(table, common.seq_lens, self._columns)
            self._write(ids, common.query_start_loc, counts, rows, filled)
        return (
            self._ids[rows],
            None if self._starts is None else self._starts[rows + 1],
            None if self._counts is None else self._counts[rows],
            None if self._masks is None else self._masks[rows],
        )

    def _write(
        self, ids: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor | None, rows: int, filled: int
    ) -> None:
        if filled < rows:
            self._write_padding(slice(filled, rows))
            ids = ids[:filled]
        own = self._ids[filled]
        moved_ids(own if own.ndim == 2 else own.unsqueeze(1), ids)
        if self._starts is not None:
            self._starts[rows + 1].copy_(starts)
        if self._counts is not None:
            assert counts is not None
            self._counts[filled].copy_(counts[:filled])
        if self._masks is not None:
            self._masks[filled].fill_(True)

    def _write_padding(self, rows: slice) -> None:
        for prefixes, value in (self._ids, self._pad), (self._counts, 1), (self._masks, False):
            if prefixes is not None:
                prefixes.buffer[rows] = value

    def _launch(
        self, table: torch.Tensor, vectors: Sequence[torch.Tensor | None], rows: int, filled: int
    ) -> None:
        given = [
            vector if vector.is_contiguous() else vector.contiguous()
            for vector in vectors
            if vector is not None
        ]
        key = (table.dtype, *[vector.dtype for vector in given])
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = self._bound(len(given))
        steps = table.stride(0), table.stride(1), table.size(1)
        launch(table, *steps, *given, rows, filled)

    def _bound(self, vectors: int) -> BoundLaunch:
        varying = (*_TABLE, *_VECTORS[:vectors], *_ROWS)
        outputs = {"ids": self._ids, "starts": self._starts, "counts": self._counts, "masks": self._masks}
        constant = {
            **{f"{name}_out_ptr": each.buffer for name, each in outputs.items() if each is not None},
            "block_size": self._blocks.block_size,
            "PAD": self._pad,
            "COLUMNS": self._columns,
            "ALIGN": self._blocks.mode == "align",
            "ROWS": _ROWS_PER_PROGRAM,
        }
        # Asserted on the device, as the index of a gather is; checked sums would take registers for nothing.
        options = {"num_warps": 4, "debug": True, "sanitize_overflow": False}
        return BoundLaunch(
            stage_decodes_kernel, self._ids.buffer.device, self._grid, varying, constant, options
        )


def counted(
    starts: torch.Tensor, counts: torch.Tensor | None, batch: HostBatch, decodes: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Starts and accepted counts of decodes outside of graphs, padding overwritten; None without counts."""
    if counts is None:
        return None, None
    filled = batch.filled
    if decodes < batch.rows:
        starts = starts[: decodes + 1]
    counts = counts[:decodes]
    starts, counts = starts.to(torch.int32), counts.to(torch.int32, copy=filled < decodes)
    if filled < decodes:
        counts[filled:].fill_(1)
    return starts, counts
