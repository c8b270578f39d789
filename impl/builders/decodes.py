"""The decodes of a full graph: their tensors, written into a builder's own buffers in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..batch import CommonAttentionMetadata
from ..bound import BoundLaunch
from ..types import cdiv
from .blocks import HostLookup, StateBlocks
from .common import moved_ids
from .host import HostArrays, HostBatch
from .kernels.decodes import stage_decodes_kernel

_ROWS_PER_PROGRAM = 128
_TABLE = ("table_ptr", "table_row", "table_column", "table_width")
_VECTORS = ("seq_lens_ptr", "starts_ptr", "counts_ptr")
_ROWS = ("rows", "filled")

Rows = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


class Fronts(dict[int, torch.Tensor]):
    """The first entries of a buffer, by their number: graphs come in few sizes, and each slice takes time."""

    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self._buffer = buffer

    def __missing__(self, size: int) -> torch.Tensor:
        front = self[size] = self._buffer[:size]
        return front


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
        self._ids = ids if ids.ndim == 2 else ids.unsqueeze(1)
        self._starts, self._counts, self._masks = starts, counts, masks
        self._ids_fronts = Fronts(ids)
        self._fronts = [None if one is None else Fronts(one) for one in (starts, counts, masks)]
        self._lookup = HostLookup(blocks, *self._ids.shape) if ids.is_cpu else None
        self._arrays = HostArrays()
        self._outputs = [_as_read(one) for one in (self._ids, starts, counts, masks)]
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
        elif self._lookup is None or batch.seq_lens is None:
            ids = self._blocks.ids(table, common.seq_lens, self._ids.size(1))
            self._write(ids, common.query_start_loc, counts, rows, filled)
        else:
            own = self._lookup(self._arrays.of("block_table_tensor", table), batch.seq_lens)
            accepted = None if counts is None else self._arrays.of("num_accepted_tokens", counts)
            # The host's own starts, which are the same.
            self._write(own, batch.starts, accepted, rows, filled)
        return self._rows(rows)

    def _rows(self, rows: int) -> Rows:
        starts, counts, masks = self._fronts
        return (
            self._ids_fronts[rows],
            None if starts is None else starts[rows + 1],
            None if counts is None else counts[rows],
            None if masks is None else masks[rows],
        )

    def _write(self, ids: Any, starts: Any, counts: Any, rows: int, filled: int) -> None:
        """Of tensors or of arrays, as the buffers are: each line means the same for both."""
        ids_out, starts_out, counts_out, masks_out = self._outputs
        moved_ids(ids_out[:filled], ids[:filled])
        if starts_out is not None:
            starts_out[: rows + 1] = starts
        if counts_out is not None:
            counts_out[:filled] = counts[:filled]
        if masks_out is not None:
            masks_out[:filled] = True
        if filled < rows:
            self._write_padding(slice(filled, rows))

    def _write_padding(self, rows: slice) -> None:
        ids, _, counts, masks = self._outputs
        ids[rows] = self._pad
        if counts is not None:
            counts[rows] = 1
        if masks is not None:
            masks[rows] = False

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


def _as_read(tensor: torch.Tensor | None) -> Any:
    """A tensor on the CPU as an array, since NumPy takes a fraction of torch's time for so few numbers."""
    return tensor.numpy() if tensor is not None and tensor.is_cpu else tensor
