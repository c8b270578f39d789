"""The decodes of a full graph: their tensors, written into a builder's own buffers in one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..bound import BoundLaunch
from ..types import cdiv
from .blocks import StateBlocks
from .common import moved, moved_ids
from .kernels.decodes import stage_decodes_kernel

_ROWS_PER_PROGRAM = 128
_TABLE = ("table_ptr", "table_row", "table_column", "table_width")
_VECTORS = ("seq_lens_ptr", "starts_ptr", "counts_ptr")
_ROWS = ("rows", "filled")


class StagedDecodes:
    """Writes what full graphs of decodes read: on a GPU in one launch, where torch needs one for each tensor.

    Into buffers that keep their addresses: `ids` int32 [most rows, columns], `starts` int32 [most rows + 1] or None,
    `counts` int32 [most rows] or None, `masks` bool [most rows] or None. `blocks`: which blocks of its table a row runs
    on. `pad`: the block of rows without tokens.
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
        self._ids, self._starts, self._counts, self._masks = ids, starts, counts, masks
        self._grid = (cdiv(ids.size(0) + 1, _ROWS_PER_PROGRAM), 1, 1)
        # Of a table of another width than the buffer, mode all copies what fits.
        self._in_one_launch = ids.device.type == "cuda" and blocks.mode != "all"
        # By what a launch is compiled for: the dtypes of what is read, of counts if there are any.
        self._launches: dict[tuple[torch.dtype, ...], BoundLaunch] = {}

    def __call__(
        self,
        table: torch.Tensor,
        seq_lens: torch.Tensor,
        starts: torch.Tensor,
        counts: torch.Tensor | None,
        rows: int,
        filled: int,
    ) -> None:
        """Write the first `rows` rows, those from `filled` on as padding, without waiting.

        `table` [rows, width], `seq_lens` [rows], `starts` [rows + 1], `counts` [>= rows] or None: int32 or int64 on the
        device. A row of more tokens than its table holds fails there, as an index out of bounds does.
        """
        if self._in_one_launch:
            self._launch(table, (seq_lens, starts, counts), rows, filled)
        else:
            self._copy(table, seq_lens, starts, counts, rows, filled)

    def _copy(
        self,
        table: torch.Tensor,
        seq_lens: torch.Tensor,
        starts: torch.Tensor,
        counts: torch.Tensor | None,
        rows: int,
        filled: int,
    ) -> None:
        buffer, padded = self._ids[:rows], filled < rows
        ids = self._blocks.ids(table, seq_lens, buffer.size(1), buffer)
        if ids is not buffer:
            moved_ids(buffer, ids)
        if padded:
            buffer[filled:].fill_(self._pad)
        if self._starts is not None:
            moved(self._starts, starts)
        if self._counts is not None and counts is not None:
            accepted = moved(self._counts, counts[:rows])
            if padded:
                accepted[filled:].fill_(1)
        if self._masks is not None:
            masks = self._masks[:rows].fill_(True)
            if padded:
                masks[filled:].fill_(False)

    def _launch(
        self, table: torch.Tensor, vectors: Sequence[torch.Tensor | None], rows: int, filled: int
    ) -> None:
        given = [one if one.is_contiguous() else one.contiguous() for one in vectors if one is not None]
        key = (table.dtype, *[one.dtype for one in given])
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = self._bound(len(given))
        steps = table.stride(0), table.stride(1), table.size(1)
        values = (table.data_ptr(), *steps, *[one.data_ptr() for one in given], rows, filled)
        launch(values, (table, *steps, *given, rows, filled))

    def _bound(self, vectors: int) -> BoundLaunch:
        varying = (*_TABLE, *_VECTORS[:vectors], *_ROWS)
        constant = {
            "ids_out_ptr": self._ids,
            "starts_out_ptr": self._starts,
            "counts_out_ptr": self._counts,
            "masks_out_ptr": self._masks,
            "block_size": self._blocks.block_size,
            "PAD": self._pad,
            "COLUMNS": self._ids.size(1),
            "ALIGN": self._blocks.mode == "align",
            "ROWS": _ROWS_PER_PROGRAM,
        }
        # Asserted on the device, as the index of a gather is; checked sums would take registers for nothing.
        options = {"num_warps": 4, "debug": True, "sanitize_overflow": False}
        return BoundLaunch(stage_decodes_kernel, self._ids.device, self._grid, varying, constant, options)
