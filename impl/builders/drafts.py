"""Which rows of a batch are speculative: those that read their state where the last accepted token left it."""

import numpy as np
import torch

from ..checks import host_rows, refuse
from .host import HostBatch, Marks, check_count_values, check_counts, refuse_first


def spec_rows(
    batch: HostBatch,
    drafts: torch.Tensor | None,
    counts: torch.Tensor | None,
    most: int,
    device: torch.device,
    function: str,
) -> Marks | None:
    """The speculative rows [R], None if there are none, of a batch with up to `most` drafts per row.

    They are the rows with drafts, none included, and where the batch tells which rows are stateless, all
    other rows of one token: such a row may have accepted several the step before. All other rows must have
    accepted one.

    Raises ValueError naming `num_decode_draft_tokens_cpu` or `num_accepted_tokens`.
    """
    spec = None if drafts is None else _drafted(batch, drafts, most, function)
    with_state = None if batch.stateless is None else ~batch.stateless
    if spec is not None and with_state is not None:
        spec &= with_state
    if counts is None:
        if spec is not None and np.count_nonzero(spec):
            refuse("num_accepted_tokens", None, "given, since there are rows with drafts", function)
        return None
    check_counts(counts, batch.rows, device, function)
    if with_state is not None:
        single = (batch.lengths == 1) & with_state
        spec = single if spec is None else spec | single
    if spec is None:
        spec = np.zeros(batch.rows, np.bool_)
    check_count_values(counts, spec, 1 + most, function)
    size = np.count_nonzero(spec)
    if counts.is_cpu:
        # Every other row is read without an offset, so whatever it accepted beyond one token would be lost.
        values = counts.numpy()[: batch.rows]
        lost = (batch.lengths > 0) & ~spec & (values != 1)
        refuse_first("num_accepted_tokens", values, lost, "1 for a row without drafts", function)
    return spec if size else None


def _drafted(batch: HostBatch, drafts: torch.Tensor, most: int, function: str) -> Marks:
    argument = "num_decode_draft_tokens_cpu"
    values = host_rows(argument, drafts, batch.rows, function)
    drafted: Marks = values >= 0
    fitting = values == batch.lengths - 1
    if batch.longest > 1 + most or np.count_nonzero(fitting) < batch.rows:
        refuse_first(argument, values, (values < -1) | (values > most), f"in -1..{most}", function)
        drafted[batch.filled :] = False
        rule = "one less than the row's query length, or -1"
        refuse_first(argument, values, drafted & ~fitting, rule, function)
    return drafted
