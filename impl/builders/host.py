"""What the host knows about a batch, and the rows that it can tell apart by that."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..batch import split_at_first
from ..checks import (
    INT64_MAX,
    Int64s,
    Integers,
    check_starts,
    describe,
    device_rows,
    extremes,
    host_rows,
    int_at_least,
    refuse,
    tensor_of,
)

Marks = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Queries:
    """The queries of a batch of `rows` rows, as its starts tell them.

    `filled`: rows before the padding, which is the rows of no token at the back. `lengths` [rows], their maximum is
    `longest`. `raw`: the starts in memory.
    """

    rows: int
    filled: int
    longest: int
    lengths: Integers
    raw: bytes


@dataclass(slots=True)
class HostBatch:
    """A batch of `rows` rows that is in order.

    `filled`, `longest`, `lengths` [rows]: see `Queries`. `tokens`: num_actual_tokens. `starts` [rows+1]: of the queries.
    `bounds` [rows]: upper bounds of the sequence lengths, exact for prefills, if given. `stateless` [rows]: rows in
    their prompt, and rows whose query is all there is; None if the batch tells neither. `seq_lens` [rows]: None on a
    device.
    """

    rows: int
    filled: int
    tokens: int
    longest: int
    starts: Integers
    lengths: Integers
    bounds: Integers | None
    stateless: Marks | None
    seq_lens: Integers | None


class BatchReader:
    """The host's view of the batches of one builder, whose tensors are on `device`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._queries: Queries | None = None

    def __call__(self, common: Any, function: str) -> HostBatch:
        """The host's view of a CommonAttentionMetadata, once all of it is known to be in order.

        Raises ValueError naming `num_reqs`, `query_start_loc_cpu` (form, decreasing, not from 0, or a row of no
        token before another), `max_query_len` or `num_actual_tokens` (too small), `is_prefilling`,
        `seq_lens_cpu_upper_bound` (form, or less than the query), `query_start_loc`, `seq_lens` (form, or of
        another dtype than the starts) or `block_table_tensor`.
        """
        rows = int_at_least("num_reqs", common.num_reqs, 0, function)
        starts = host_rows("query_start_loc_cpu", common.query_start_loc_cpu, rows + 1, function)
        queries, raw = self._queries, starts.tobytes()
        # Steps of decodes alone have the same starts again and again.
        if queries is None or raw != queries.raw or rows != queries.rows:
            queries = self._queries = _read_queries(rows, starts, raw, function)
        lengths, longest = queries.lengths, queries.longest
        int_at_least("max_query_len", common.max_query_len, longest, function)
        tokens = int_at_least("num_actual_tokens", common.num_actual_tokens, starts.item(rows), function)
        bounds, stateless = self._read_rows(common, queries, function)
        self._check_device_tensors(common, rows, function)
        seq_lens = common.seq_lens.numpy() if common.seq_lens.is_cpu else None
        return HostBatch(rows, queries.filled, tokens, longest, starts, lengths, bounds, stateless, seq_lens)

    def _read_rows(
        self, common: Any, queries: Queries, function: str
    ) -> tuple[Integers | None, Marks | None]:
        """The bounds, and which rows have no state: see `HostBatch`."""
        bounds, fresh, rows = common.seq_lens_cpu_upper_bound, None, queries.rows
        if bounds is not None:
            bounds = host_rows("seq_lens_cpu_upper_bound", bounds, rows, function)
            fresh = _fresh(bounds, queries, function)
        if common.is_prefilling is not None:
            marks: Marks = host_rows(
                "is_prefilling", common.is_prefilling, rows, function, dtypes=(torch.bool,), kind="a bool"
            )
            return bounds, marks if fresh is None else marks | fresh
        if bounds is not None and fresh is None:
            fresh = np.zeros(rows, np.bool_)
        return bounds, fresh

    def _check_device_tensors(self, common: Any, rows: int, function: str) -> None:
        device = self._device
        starts = device_rows("query_start_loc", common.query_start_loc, rows + 1, device, function)
        seq_lens = device_rows("seq_lens", common.seq_lens, rows, device, function)
        if seq_lens.dtype != starts.dtype:
            refuse("seq_lens", describe(seq_lens), f"a {starts.dtype} tensor, as query_start_loc", function)
        device_rows("block_table_tensor", common.block_table_tensor, rows, device, function, ndim=2)


def _read_queries(rows: int, starts: Integers, raw: bytes, function: str) -> Queries:
    lengths = starts[1:] - starts[:-1]
    shortest, longest = extremes(lengths)
    filled = _rows_before_padding(starts, lengths, shortest, function)
    return Queries(rows, filled, longest, lengths, raw)


def _rows_before_padding(starts: Integers, lengths: Integers, shortest: int, function: str) -> int:
    filled = int(np.count_nonzero(lengths))
    # All rows with tokens are at the front. Differences of starts do not wrap around if none is negative.
    front = np.count_nonzero(lengths[:filled]) == filled
    if not (front and shortest >= 0 and starts.item(0) == 0 == starts.item(starts.argmin())):
        _refuse_starts(starts, function)
    return filled


def _refuse_starts(starts: Integers, function: str) -> None:
    argument = "query_start_loc_cpu"
    check_starts(argument, starts, function, first_is_zero=True, most=INT64_MAX)
    row = int((starts[1:] == starts[:-1]).argmax())
    rule = f"> {argument}[{row}] = {starts[row]}, since rows without tokens come last"
    refuse(f"{argument}[{row + 1}]", int(starts[row + 1]), rule, function)


def _fresh(bounds: Integers, queries: Queries, function: str) -> Marks | None:
    """The rows with tokens that have no more than their query, None if there are none."""
    if bounds.size and bounds.item(bounds.argmin()) > queries.longest:
        return None
    lengths = queries.lengths
    fresh: Marks = bounds <= lengths
    fresh[queries.filled :] = False
    rule = ">= the length of the row's query"
    refuse_first("seq_lens_cpu_upper_bound", bounds, fresh & (bounds != lengths), rule, function)
    return fresh


def split_batch(batch: HostBatch, threshold: int) -> tuple[int, int, int, int]:
    """(num_decodes, num_prefills, num_decode_tokens, num_prefill_tokens).

    A stateless row is a prefill however short, since a decode reads a state. Where the batch does not tell,
    rows of at most `threshold` tokens are decodes. Source: document 1, _compute_common_metadata.
    """
    ends = batch.stateless
    if batch.longest > threshold:
        too_long = batch.lengths > threshold
        ends = too_long if ends is None else too_long | ends
    if ends is None or batch.rows == 0:
        return batch.rows, 0, batch.tokens, 0
    return split_at_first(ends, batch.starts, batch.tokens)


def check_decodes_have_state(batch: HostBatch, decodes: int | Marks, function: str) -> None:
    """Where the batch does not tell which rows are stateless, refuse a decode without computed tokens.

    `decodes`: how many rows at the front are decodes, or a mark [rows] for each decode.

    On a device sequence lengths are not read, since that would wait for it: it is a precondition there.
    """
    if batch.stateless is not None or batch.seq_lens is None:
        return
    lost = batch.seq_lens <= batch.lengths
    if isinstance(decodes, int):
        lost = lost[: min(decodes, batch.filled)]
    else:
        lost &= decodes
    if np.count_nonzero(lost):
        rule = f"given, since row {int(lost.argmax())} has no prior state"
        refuse("is_prefilling", None, rule, function)


def check_counts(counts: torch.Tensor | None, rows: int, device: torch.device, function: str) -> torch.Tensor:
    """The accepted counts themselves, if they are an int32 or int64 for each of the rows, on the device."""
    argument = "num_accepted_tokens"
    tensor = tensor_of(argument, counts, 1, function)
    if tensor.device != device or tensor.size(0) < rows:
        refuse(argument, describe(tensor), f"at least {rows} entries on {device}", function)
    return tensor


def check_count_values(counts: torch.Tensor, rows: int | Marks, most: int, function: str) -> None:
    """Refuse counts outside 1..most of those rows on the host; on a device that is a precondition."""
    if counts.is_cpu:
        values = counts.numpy()[: rows if isinstance(rows, int) else rows.size]
        least, greatest = extremes(values)
        if least < 1 or greatest > most:
            wrong = (values < 1) | (values > most)
            if not isinstance(rows, int):
                wrong &= rows
            refuse_first("num_accepted_tokens", values, wrong, f"in 1..{most}", function)


def refuse_first(argument: str, values: Integers, wrong: Marks, rule: str, function: str) -> None:
    """Refuse the first of the `wrong` values, if there is one."""
    if np.count_nonzero(wrong):
        row = int(wrong.argmax())
        refuse(f"{argument}[{row}]", int(values[row]), rule, function)


def computed_on_host(batch: HostBatch, first: int, function: str) -> Int64s:
    """Tokens before this step of the rows from `first` on, which are prefills or padding.

    Raises ValueError naming `seq_lens_cpu_upper_bound` if the host cannot know.
    """
    totals = batch.seq_lens if batch.bounds is None else batch.bounds
    if totals is None:
        refuse("seq_lens_cpu_upper_bound", None, "given, since there are prefills", function)
    computed: Int64s = totals[first:].astype(np.int64) - batch.lengths[first:]
    return computed
