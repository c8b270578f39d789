"""Inputs of full graphs of decodes, written in one launch: the same bytes as tensor by tensor, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from statecheck.kernels.source.tiles import AssertionFailedError
from statecheck.sanitizer import sanitize

decodes: Any = import_module("impl.builders.decodes")
blocks: Any = import_module("impl.builders.blocks")
host: Any = import_module("impl.builders.host")

MOST, BLOCK_SIZE, EXTRA, WIDTH = 256, 4, 3, 9
GUARD = -77


@dataclass(frozen=True)
class Batch:
    """`rows` rows, of which `filled` have tokens; the dtypes of the table, of the lengths and starts, of the counts."""

    rows: int
    filled: int
    table: torch.dtype = torch.int32
    lengths: torch.dtype = torch.int32
    counts: torch.dtype = torch.int32
    strided: bool = False


BATCHES = [
    Batch(rows, filled, *dtypes, strided=strided)
    for rows, filled in ((0, 0), (1, 1), (1, 0), (7, 5), (127, 127), (128, 100), (256, 256))
    for dtypes in (
        (torch.int32,) * 3,
        (torch.int64, torch.int64, torch.int32),
        (torch.int32, torch.int64, torch.int64),
    )
    for strided in (False, True)
]


def inputs(batch: Batch, device: str) -> tuple[torch.Tensor, ...]:
    """Table, sequence lengths, starts and counts, drawn anew for each batch in the same way."""
    drawn = torch.Generator().manual_seed(batch.rows)
    step = 2 if batch.strided else 1

    def draw(low: int, high: int, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        wide = (*shape[:-1], shape[-1] * step)
        return torch.randint(low, high, wide, generator=drawn).to(device, dtype)[..., ::step]

    longest = (WIDTH - EXTRA) * BLOCK_SIZE
    table = draw(1, 1000, batch.rows, WIDTH, dtype=batch.table)
    seq_lens = draw(0, longest + 1, batch.rows, dtype=batch.lengths)
    starts = draw(0, 1000, batch.rows + 1, dtype=batch.lengths)
    return table, seq_lens, starts, draw(1, 4, batch.rows + 2, dtype=batch.counts)


def written(stage: Any, batch: Batch, given: tuple[torch.Tensor, ...], outputs: int = 4) -> Any:
    """The result of the stage for a step with these inputs, of whose counts it has no buffer with fewer than three outputs."""
    table, seq_lens, starts, counts = given
    common = SimpleNamespace(block_table_tensor=table, seq_lens=seq_lens, query_start_loc=starts)
    read = host.HostBatch(
        rows=batch.rows,
        filled=batch.filled,
        tokens=batch.filled,
        longest=1,
        starts=starts.cpu().numpy(),
        lengths=np.ones(batch.rows, np.int32),
        bounds=None,
        stateless=None,
        seq_lens=seq_lens.numpy() if seq_lens.is_cpu else None,
    )
    return stage(common, read, counts if outputs > 2 else None, batch.filled)


def buffers(columns: int, device: str) -> list[torch.Tensor]:
    ids, starts, counts = (
        torch.full(shape, GUARD, dtype=torch.int32, device=device)
        for shape in ((MOST, columns), (MOST + 1,), (MOST,))
    )
    return [ids, starts, counts, torch.zeros(MOST, dtype=torch.bool, device=device)]


def staged(
    batch: Batch, mode: str, columns: int, outputs: int, in_one_launch: bool, device: str, times: int = 1
) -> list[torch.Tensor]:
    """The buffers after the batch was written into the first `outputs` of them."""
    made = buffers(columns, device)
    stage = decodes.StagedDecodes(blocks.StateBlocks(mode, BLOCK_SIZE, EXTRA), -1, *made[:outputs])
    stage._in_one_launch = in_one_launch
    given = inputs(batch, device)
    for _ in range(times):
        written(stage, batch, given, outputs)
    return made


@pytest.mark.parametrize(("mode", "columns", "outputs"), list(product(("none", "align"), (1, 3), (1, 2, 4))))
def test_a_single_launch_writes_the_values_that_torch_writes_by_tensor(
    mode: str, columns: int, outputs: int, device: str
) -> None:
    for batch in BATCHES:
        expected = staged(batch, mode, columns, outputs, in_one_launch=False, device=device)
        # The third launch of a kind is one without the JIT, where there is a GPU.
        found = staged(batch, mode, columns, outputs, in_one_launch=True, device=device, times=3)
        assert all(map(torch.equal, found, expected)), batch


@pytest.mark.parametrize("columns", [WIDTH - 2, WIDTH, WIDTH + 2])
def test_in_mode_all_the_buffer_may_be_wider_or_narrower_than_the_table(columns: int, device: str) -> None:
    made = buffers(columns, device)
    stage = decodes.StagedDecodes(blocks.StateBlocks("all", BLOCK_SIZE, EXTRA), -1, *made)
    for batch in BATCHES:
        table, *vectors = inputs(batch, device)
        ids, *_ = written(stage, batch, (table, *vectors))
        expected = torch.full((batch.rows, columns), -1, dtype=torch.int32, device=device)
        width = min(columns, WIDTH)
        expected[: batch.filled, :width] = table[: batch.filled, :width].int()
        assert torch.equal(ids, expected), batch


def test_a_buffer_of_one_column_may_be_a_vector(device: str) -> None:
    for batch in BATCHES:
        (ids, *others), (flat, *_) = buffers(1, device), buffers(1, device)
        into = flat[:, 0].clone()
        for buffer, in_one_launch in ((ids, False), (into, True), (into, False)):
            stage = decodes.StagedDecodes(blocks.StateBlocks("align", BLOCK_SIZE, EXTRA), 0, buffer, *others)
            stage._in_one_launch = in_one_launch
            written(stage, batch, inputs(batch, device))
            assert torch.equal(buffer.flatten(), ids.flatten()), (batch, in_one_launch)


def last_columns(length: int, width: int = WIDTH) -> Any:
    """Writes a batch of one row of so many tokens, in one launch; its table ends with its memory."""
    made = buffers(1, "cpu")
    stage = decodes.StagedDecodes(blocks.StateBlocks("align", BLOCK_SIZE, 0), 0, *made)
    stage._in_one_launch = True
    lengths = torch.tensor([length], dtype=torch.int32)
    table = torch.arange(width, dtype=torch.int32)[None]
    given = table, lengths, torch.tensor([0, 1], dtype=torch.int32), lengths
    with sanitize() as watch:
        for name, tensor in zip(("table", "lengths", "starts"), given, strict=False):
            watch.register(tensor, name)
        return written(stage, Batch(1, 1), given)[0].item()


@pytest.mark.usefixtures("on_cpu")
def test_no_column_behind_a_row_is_read_and_a_longer_row_is_refused_by_the_device() -> None:
    assert last_columns(WIDTH * BLOCK_SIZE) == WIDTH - 1
    with pytest.raises(AssertionFailedError, match="a row has more tokens than its block table holds"):
        last_columns(WIDTH * BLOCK_SIZE + 1)
