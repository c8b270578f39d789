"""Defects that show in scenarios: a state is read, kept or published that stands for other tokens."""

from __future__ import annotations

from tests.breakages.variants import planted

LIFECYCLE = planted(
    {
        "builders/gdn.py": {
            "first chunks of GDN start from a state": (
                "torch.gt(m.seq_lens, own)",
                "torch.ge(m.seq_lens, own)",
                "lifecycle/no-copies",
            ),
            "rows of one token are speculative beside drafts only": (
                "spec = spec_rows(batch, drafts, counts, self.num_spec, self._device, function)",
                "spec = spec_rows(batch, drafts, counts, self.num_spec, self._device, function) if batch.longest > 1 else None",
                "lifecycle/no-copies",
            ),
        },
        "builders/decodes.py": {
            "decodes read the state before the tokens that they accepted": (
                "    counts = counts[:decodes]\n",
                "    counts = counts[:decodes].clamp(max=1)\n",
                "lifecycle/no-copies lifecycle/v1-greedy lifecycle/v2-greedy",
            ),
        },
        "builders/columns.py": {
            "mode all reads the column that it is going to write": (
                "blocks.column_of_last(computed, most, computed_out)",
                "blocks.column_of_last(common.seq_lens, most, computed_out)",
                "lifecycle/no-copies",
            ),
        },
        "align/moves.py": {
            "states come from the column that they go to": (
                "step.src_cols.append(source)",
                "step.src_cols.append(column)",
                "lifecycle/v1-provenance lifecycle/v1-greedy",
            ),
            "states are moved to where they are already": (
                "step.dst_cols.append(column)",
                "step.dst_cols.append(source)",
                "lifecycle/v1-provenance",
            ),
            "running columns are counted from the step's first token": (
                "step.columns.append(column)",
                "step.columns.append((length - 1) // block_size)",
                "lifecycle/v1-provenance",
            ),
        },
        "align/kernels/preprocess.py": {
            "slots that come in get no column": (
                "tl.store(state_idx_ptr + slots, next_column, mask=mask)",
                "tl.store(state_idx_ptr + slots, next_column, mask=mask & (column >= 0))",
                "lifecycle/v2-provenance lifecycle/v2-greedy",
            ),
            "only states that go back are precopied": (
                "(src_col != dst_col)",
                "(src_col > dst_col)",
                "lifecycle/v2-provenance",
            ),
        },
    }
)
