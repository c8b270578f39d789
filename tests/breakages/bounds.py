"""Defects that show only beyond a bound: more drafts than four, more rows than a vector, more chunks than a byte counts."""

from __future__ import annotations

from tests.breakages.variants import planted

BOUNDS = planted(
    {
        "layout.py": {
            "a conv copy counts at most four accepted tokens": (
                "shift = accepted - 1",
                "shift = min(accepted, 4) - 1",
                "conv-copy/start",
            ),
            "a temporal copy counts at most four accepted tokens": (
                "_block_address(state, block_ids, column + accepted - 1, function)",
                "_block_address(state, block_ids, column + min(accepted, 4) - 1, function)",
                "temporal-copy/start",
            ),
        },
        "shapes.py": {
            "a key convolution has rows for at most four drafts": (
                "k_conv = cls._orient_conv_shape(k_heads * k_dim, kernel - 1 + spec)",
                "k_conv = cls._orient_conv_shape(k_heads * k_dim, kernel - 1 + min(spec, 4))",
                "state-shape/formula",
            ),
        },
        "types.py": {
            "the bytes of a page wrap around at 2^31": (
                "return sum(prod(shape) * dtype.itemsize for shape, dtype in pairs)",
                "return sum(prod(shape) * dtype.itemsize for shape, dtype in pairs) % 2**31",
                "page-size/all-states",
            ),
        },
        "batch.py": {
            "a batch has at most 64 rows": (
                "ends = _ends_of_decodes(lengths, longest, threshold, require_uniform)",
                "ends = _ends_of_decodes(lengths[:64], longest, threshold, require_uniform)",
                "split/partition",
            ),
            "a batch has at most eight rows": (
                "ends = _ends_of_decodes(lengths, longest, threshold, require_uniform)",
                "ends = _ends_of_decodes(lengths[:8], longest, threshold, require_uniform)",
                "split/partition",
            ),
            "lengths of requests pass through float32": (
                "seq_lens.clamp(min=1).to(torch.int64) - 1",
                "seq_lens.clamp(min=1).to(torch.float32).to(torch.int64) - 1",
                "block-table/align-columns",
            ),
            "at most four speculative columns are gathered": (
                "torch.arange(1 + extra, device=columns.device)",
                "torch.arange(1 + extra, device=columns.device).clamp(max=4)",
                "block-table/align-columns",
            ),
        },
        "chunks.py": {
            "chunks of a sequence are numbered by eight bits": (
                "rows[1::2] = ordinals",
                "rows[1::2] = ordinals.astype(np.uint8)",
                "fla-chunks/indices",
            ),
            "chunks are counted by sixteen bits": (
                "counts.cumsum(out=offsets[1:])",
                "counts.astype(np.uint16).astype(np.int64).cumsum(out=offsets[1:])",
                "fla-chunks/offsets",
            ),
            "programs of a row are numbered by sixteen bits": (
                "ordinals -= firsts.repeat(counts)",
                "ordinals = (ordinals - firsts.repeat(counts)).astype(np.uint16).astype(np.int32)",
                "conv1d-metadata/tiles",
            ),
            "a launch of just 1,024 programs has one too few": (
                "        total = self.owners.size\n",
                "        total = self.owners.size - (self.owners.size == 1024)\n",
                "conv1d-metadata/tiles",
            ),
            "lengths of sequences pass through float32": (
                "-(-(starts[1:] - starts[:-1]) // min(chunk_size, INT64_MAX))",
                "-(-(starts[1:] - starts[:-1]).astype(np.float32) // chunk_size).astype(np.int64)",
                "fla-chunks/indices",
            ),
        },
        "align/kernels/preprocess.py": {
            "a state is precopied behind at most three accepted drafts": (
                "return rows, src_col, dst_col, tl.load(token_bias_ptr + slots, mask=mask, other=0)",
                "return rows, src_col, dst_col, tl.minimum(tl.load(token_bias_ptr + slots, mask=mask, other=0), 3)",
                "precopy/running-column",
            ),
            "tokens of a request pass through float32": (
                "    computed = tl.load(num_computed_tokens_ptr + slots, mask=mask, other=0)\n",
                (
                    "    computed = tl.load(num_computed_tokens_ptr + slots, mask=mask, other=0)\n"
                    "    computed = computed.to(tl.float32).to(tl.int32)\n"
                ),
                "preprocess-kernel/columns",
            ),
        },
        "align/kernels/postprocess.py": {
            "rows behind the 256th keep their states": (
                "for start in range(0, num_reqs, 2 * REQUESTS):",
                "for start in range(0, tl.minimum(num_reqs, 256), 2 * REQUESTS):",
                "v1-postprocess/idle-rows",
            ),
        },
        "builders/decodes.py": {
            "more than four accepted tokens of a decode are not counted": (
                "    counts = counts[:decodes]\n",
                "    counts = counts[:decodes].clamp(max=4)\n",
                "builder/fields",
            ),
        },
    }
)
