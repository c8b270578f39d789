"""Defects of the half of the implementation that has no builders."""

from __future__ import annotations

from tests.breakages.variants import planted

STATELESS = planted(
    {
        "chunks.py": {
            "a sequence is cut at multiples counted from its own start": (
                "_split_into_chunks(begins, lengths, begins % chunk_size, chunk_size)",
                "_split_into_chunks(begins, lengths, begins * 0, chunk_size)",
                "varlen-chunks/boundaries varlen-chunks/ends",
            ),
            "an empty sequence keeps the last chunk of the one before": (
                "last = np.where(counts > 0, so_far - 1, -1)",
                "last = so_far - 1",
                "varlen-chunks/last-chunk varlen-chunks/empty-rows",
            ),
            "a sequence that ends at a boundary gets an empty chunk": (
                "-(-(phases + lengths) // chunk_size)",
                "(phases + lengths) // chunk_size + 1",
                "varlen-chunks/partition varlen-chunks/ends",
            ),
            "starts are read once per tensor object": (
                'start_offsets("cu_seqlens", cu_seqlens, function).astype(np.int64)',
                'vars(cu_seqlens).setdefault("kept", start_offsets("cu_seqlens", cu_seqlens, function).astype(np.int64))',
                "chunk-metadata/changed-in-place",
            ),
            "the last tokens of a row that do not fill a program are dropped": (
                "counts = -(-lengths // CONV_BLOCK_M)",
                "counts = lengths // CONV_BLOCK_M",
                "conv1d-metadata/partition conv1d-metadata/tiles",
            ),
            "the last tokens of a sequence that do not fill a chunk are dropped": (
                "-(-(starts[1:] - starts[:-1]) // min(chunk_size, INT64_MAX))",
                "(starts[1:] - starts[:-1]) // min(chunk_size, INT64_MAX)",
                "fla-chunks/indices fla-chunks/offsets",
            ),
            "programs begin at multiples of 8 of the packed tokens": (
                "conv_programs(np.diff(starts.astype(np.int64)))",
                "conv_programs(8 * np.diff(-(-starts.astype(np.int64) // 8)))",
                "conv1d-metadata/moved-starts",
            ),
            "the program tables are filled up with row 0": (
                "buffer[filler:end] = PAD_SLOT_ID",
                "buffer[filler:end] = 0",
                "conv1d-metadata/padding",
            ),
            "the program tables never grow": (
                "size = 2 * max(1024, self.owners.size)",
                "size = 2 * 1024",
                "conv1d-metadata/padding conv1d-metadata/tiles",
            ),
            "empty sequences are not counted in the chunk indices": (
                "rows[::2] = owners",
                "rows[::2] = np.unique(owners, return_inverse=True)[1]",
                "fla-chunks/indices fla-chunks/partition",
            ),
            "chunk offsets are the counts and not their sums": (
                "counts.cumsum(out=offsets[1:])",
                "offsets[1:] = counts",
                "fla-chunks/offsets fla-chunks/partition",
            ),
        },
        "checks.py": {
            "starts are compared at their two ends only": (
                "decreases = starts[1:] < starts[:-1]",
                "decreases = starts[-1:] < starts[:1]",
                "chunk-metadata/decreasing-starts",
            ),
            "every least value is one too low": (
                "if number < least:",
                "if number < least - 1:",
                "chunk-metadata/chunk-size state-shape/no-ranks copy-spec/accepted-below-one",
            ),
            "a bool passes for an int": (
                "isinstance(value, (int, np.integer)) and not isinstance(value, bool)",
                "isinstance(value, (int, np.integer))",
                "bad-input/stateless bad-input/forms",
            ),
            "a matrix passes for a vector": (
                "if value.ndim != ndim:",
                "if value.ndim < ndim:",
                "bad-input/stateless",
            ),
        },
        "batch.py": {
            "a decode has fewer tokens than the threshold": (
                "too_long: npt.NDArray[np.bool_] = lengths > threshold",
                "too_long: npt.NDArray[np.bool_] = lengths >= threshold",
                "split/decodes-first",
            ),
            "a decode may have one token more than the threshold": (
                "too_long: npt.NDArray[np.bool_] = lengths > threshold",
                "too_long: npt.NDArray[np.bool_] = lengths > threshold + 1",
                "split/threshold split/short-prefills",
            ),
            "decodes are counted wherever they stand": (
                "first = int(ends.argmax())",
                "first = int((~ends).sum()) % ends.size",
                "split/short-prefills split/padding-rows",
            ),
            "padded tokens count in neither kind": (
                "return first, ends.size - first, decode_tokens, tokens - decode_tokens",
                "return first, ends.size - first, decode_tokens, int(starts[-1]) - decode_tokens",
                "split/partition",
            ),
            "a mark of prompt counts only for rows that are too long anyway": (
                "ends = ends | _host_prefilling(",
                "ends = ends & _host_prefilling(",
                "split/prompt-rows",
            ),
            "uniform lengths are not asked for": (
                "return too_long | uneven",
                "return too_long",
                "split/uniform",
            ),
            "padding makes a uniform batch uneven": (
                "((lengths == lengths[0]) | (lengths == 0)).all()",
                "(lengths == lengths[0]).all()",
                "split/padding-rows",
            ),
            "the bound of the query lengths is not checked": (
                'int_at_least("max_query_len", common_attn_metadata.max_query_len, longest, function)',
                'int_at_least("max_query_len", common_attn_metadata.max_query_len, 0, function)',
                "split/max-query-len",
            ),
            "a full block runs on the next one": (
                "seq_lens.clamp(min=1).to(torch.int64) - 1",
                "seq_lens.clamp(min=1).to(torch.int64)",
                "block-table/align-columns",
            ),
            "a row of padding looks in the column before the first": (
                "seq_lens.clamp(min=1).to(torch.int64) - 1",
                "seq_lens.to(torch.int64) - 1",
                "block-table/align-columns",
            ),
            "a row is looked up with the length of the row before": (
                "seq_lens.clamp(min=1).to(torch.int64) - 1",
                "seq_lens.clamp(min=1).to(torch.int64).roll(1) - 1",
                "block-table/row-order",
            ),
            "the speculative blocks are taken to begin one column later": (
                "torch.arange(1 + extra, device=columns.device)",
                "torch.arange(1, 2 + extra, device=columns.device)",
                "block-table/align-columns",
            ),
            "the rows of a table are taken to lie side by side": (
                "block_table.gather(1, columns)",
                "block_table.as_strided(block_table.shape, (width, 1)).gather(1, columns)",
                "block-table/own-row block-table/row-order",
            ),
            "block ids pass through float32": (
                "block_table.gather(1, columns)",
                "block_table.float().gather(1, columns).to(block_table.dtype)",
                "block-table/relabelled-blocks",
            ),
            "the table is copied where it should be handed back": (
                "        return block_table\n",
                "        return block_table.clone()\n",
                "block-table/none-and-all",
            ),
            "mode all gathers as align does": (
                'if mamba_cache_mode != "align":',
                'if mamba_cache_mode == "none":',
                "block-table/none-and-all",
            ),
            "a length may reach into the speculative columns": (
                "longest = (width - extra) * block_size",
                "longest = width * block_size",
                "block-table/seq-len-past-row block-table/max-seq-len",
            ),
            "the query tokens count as computed": (
                "return seq_lens - (starts[1:] - starts[:-1])",
                "return seq_lens",
                "common-metadata/computed-tokens",
            ),
            "computed tokens are kept on the batch": (
                "return seq_lens - (starts[1:] - starts[:-1])",
                'return vars(self).setdefault("kept", seq_lens - (starts[1:] - starts[:-1]))',
                "common-metadata/changed-in-place",
            ),
            "computed tokens overwrite the sequence lengths": (
                "return seq_lens - (starts[1:] - starts[:-1])",
                "return seq_lens.sub_(starts[1:] - starts[:-1])",
                "common-metadata/computed-tokens",
            ),
            "query lengths are the ends of the queries": (
                "return starts[1:] - starts[:-1]",
                "return starts[1:] - starts[0]",
                "common-metadata/query-lens",
            ),
        },
        "layout.py": {
            "DS is the default layout": (
                'os.environ.get(_VARIABLE, "SD")',
                'os.environ.get(_VARIABLE, "DS")',
                "conv-layout/environment",
            ),
            "a layout may be in lower case": (
                'one_of(_VARIABLE, layout, _LAYOUTS, "get_conv_state_layout")',
                'one_of(_VARIABLE, layout.upper(), _LAYOUTS, "get_conv_state_layout")',
                "conv-layout/unknown",
            ),
            "a conv copy starts at the first row, whatever was accepted": (
                "shift = accepted - 1",
                "shift = 0",
                "conv-copy/start",
            ),
            "a conv copy is as long wherever it starts": (
                "return MambaCopySpec(address, (rows - shift) * state.size(2))",
                "return MambaCopySpec(address, rows * state.size(2))",
                "conv-copy/one-block conv-copy/one-more-accepted",
            ),
            "the rows of a conv copy are counted in bytes": (
                "address += shift * state.stride(1) * state.element_size()",
                "address += shift * state.stride(1)",
                "conv-copy/one-more-accepted conv-copy/start",
            ),
            "pages are taken to lie side by side": (
                "block * state.stride(0) * state.element_size()",
                "block * state.select(0, 0).numel() * state.element_size()",
                "conv-copy/one-block temporal-copy/one-block",
            ),
            "block offsets wrap around at 2^31 bytes": (
                "block * state.stride(0) * state.element_size()",
                "block * state.stride(0) * state.element_size() % 2**31",
                "temporal-copy/start conv-copy/start",
            ),
            "the temporal state is always that of the running block": (
                "_block_address(state, block_ids, column + accepted - 1, function)",
                "_block_address(state, block_ids, column, function)",
                "temporal-copy/start temporal-copy/one-more-accepted",
            ),
            "a temporal copy takes the padding of its page along": (
                "return MambaCopySpec(address, state.shape[1:].numel())",
                "return MambaCopySpec(address, state.stride(0))",
                "temporal-copy/one-block",
            ),
            "no token need be accepted": (
                'int_at_least("num_accepted_tokens", num_accepted_tokens, 1, function)',
                'int_at_least("num_accepted_tokens", num_accepted_tokens, 0, function)',
                "copy-spec/accepted-below-one",
            ),
            "one token more than the drafts and one may be accepted": (
                "if column + accepted > len(block_ids):",
                "if column + accepted > len(block_ids) + 1:",
                "copy-spec/accepted-above-drafts",
            ),
            "a negative column counts from the end": (
                'int_at_least("cur_block_idx", cur_block_idx, 0, function)',
                'int_at_least("cur_block_idx", cur_block_idx, -len(block_ids), function)',
                "copy-spec/column-outside",
            ),
            "the null block is owned by a request": (
                "if not NULL_BLOCK_ID < block < state.size(0):",
                "if not NULL_BLOCK_ID <= block < state.size(0):",
                "copy-spec/unowned-block",
            ),
        },
        "shapes.py": {
            "both layouts are the same way round": (
                "(dim, state_len) if is_conv_state_dim_first() else (state_len, dim)",
                "(state_len, dim)",
                "state-shape/conv-layout state-shape/channels-first",
            ),
            "each rank holds the temporal state of all channels": (
                "return cls._orient_conv_shape(channels, kernel - 1), (channels, state_size)",
                "return cls._orient_conv_shape(channels, kernel - 1), (inner, state_size)",
                "state-shape/temporal-ranks state-shape/formula",
            ),
            "groups that ranks need a copy of are left out": (
                'groups = (groups + _extra_groups("n_groups", groups, "tp_world_size", tp, function)) // tp',
                "groups = groups // tp",
                "state-shape/conv-ranks",
            ),
            "the key convolutions have no row for the drafts": (
                "k_conv = cls._orient_conv_shape(k_heads * k_dim, kernel - 1 + spec)",
                "k_conv = cls._orient_conv_shape(k_heads * k_dim, kernel - 1)",
                "state-shape/draft-rows state-shape/formula",
            ),
            "what does not divide evenly is rounded down": (
                "if size % tp != 0:",
                "if size < tp:",
                "state-shape/uneven-ranks",
            ),
            "groups that match no rank are replicated as well": (
                "if groups % tp != 0 and tp % groups != 0:",
                "if groups % tp != 0 and tp < groups:",
                "state-shape/replicated-groups",
            ),
        },
        "types.py": {
            "ceiling division is the one for positive divisors": (
                'return -(-as_int("x", x, "cdiv") // divisor)',
                'return (as_int("x", x, "cdiv") + divisor - 1) // divisor',
                "cdiv/either-sign",
            ),
            "a negative remainder is none": (
                "(torch.remainder(x, y) != 0)",
                "(torch.remainder(x, y) > 0)",
                "cdiv/tensor",
            ),
            "tensors are divided as floating-point numbers": (
                'torch.div(x, y, rounding_mode="floor") + (torch.remainder(x, y) != 0)',
                "torch.ceil(x / y)",
                "cdiv/tensor",
            ),
            "a quotient is exact where its remainder is negative": (
                "if dividend % divisor != 0:",
                "if dividend % divisor > 0:",
                "divide/exact",
            ),
            "every state is taken to have the dtype of the first": (
                "return sum(prod(shape) * dtype.itemsize for shape, dtype in pairs)",
                "return sum(prod(shape) * self.dtypes[0].itemsize for shape, _ in pairs)",
                "page-size/all-states",
            ),
            "the padded size is added to the page": (
                "return self.unpadded_page_size_bytes if self.page_size_padded is None else self.page_size_padded",
                "return self.unpadded_page_size_bytes + (self.page_size_padded or 0)",
                "page-size/padded",
            ),
            "a padded size of 0 is none": (
                "if self.page_size_padded is not None:",
                "if self.page_size_padded:",
                "page-size/too-small",
            ),
            "align mode keeps no block for the boundary": (
                "return (2 + self.num_speculative_blocks) * self.page_size_bytes",
                "return (1 + self.num_speculative_blocks) * self.page_size_bytes",
                "memory-usage/cache-mode",
            ),
        },
    }
)
