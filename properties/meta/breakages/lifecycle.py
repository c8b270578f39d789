"""Defects that show in scenarios: a state is read, kept or published that stands for other tokens."""

from __future__ import annotations

from properties.harness.execution.variants import Breakage

_WITHOUT_COPIES = ("requests_without_copies_read_the_state_of_their_tokens",)
_IN_ROWS = ("requests_in_rows_read_the_state_of_their_tokens",)
_IN_SLOTS = ("requests_in_slots_read_the_state_of_their_tokens",)
_GREEDY_ROWS = ("greedy_output_of_requests_in_rows_is_that_of_one_run",)
_GREEDY_SLOTS = ("greedy_output_of_requests_in_slots_is_that_of_one_run",)

LIFECYCLE = (
    Breakage(
        "first chunks of GDN start from a state",
        "builders/gdn.py",
        "torch.gt(m.seq_lens, own)",
        "torch.ge(m.seq_lens, own)",
        _WITHOUT_COPIES,
    ),
    Breakage(
        "decodes read the state before the tokens that they accepted",
        "builders/decodes.py",
        "    counts = counts[:decodes]\n",
        "    counts = counts[:decodes].clamp(max=1)\n",
        (*_WITHOUT_COPIES, *_GREEDY_ROWS, *_GREEDY_SLOTS),
    ),
    Breakage(
        "mode all reads the column that it is going to write",
        "builders/columns.py",
        "blocks.column_of_last(computed, most, computed_out)",
        "blocks.column_of_last(common.seq_lens, most, computed_out)",
        _WITHOUT_COPIES,
    ),
    Breakage(
        "states come from the column that they go to",
        "align/moves.py",
        "step.src_cols.append(source)",
        "step.src_cols.append(column)",
        (*_IN_ROWS, *_GREEDY_ROWS),
    ),
    Breakage(
        "states are moved to where they are already",
        "align/moves.py",
        "step.dst_cols.append(column)",
        "step.dst_cols.append(source)",
        _IN_ROWS,
    ),
    Breakage(
        "running columns are counted from the step's first token",
        "align/moves.py",
        "step.columns.append(column)",
        "step.columns.append((length - 1) // block_size)",
        _IN_ROWS,
    ),
    Breakage(
        "slots that come in get no column",
        "align/kernels/preprocess.py",
        "tl.store(state_idx_ptr + slots, next_column, mask=mask)",
        "tl.store(state_idx_ptr + slots, next_column, mask=mask & (column >= 0))",
        (*_IN_SLOTS, *_GREEDY_SLOTS),
    ),
    Breakage(
        "only states that go back are precopied",
        "align/kernels/preprocess.py",
        "(src_col != dst_col)",
        "(src_col > dst_col)",
        _IN_SLOTS,
    ),
)
