"""Defects of the copies of align mode: of their kernels, of the context that launches them, and of the host's side."""

from __future__ import annotations

from tests.breakages.variants import planted

KERNELS = planted(
    {
        "align/kernels/postprocess.py": {
            "a boundary that the sampled token reaches is not stored": (
                "bias, mask & (bias >= 0)",
                "bias, mask & (bias > 0)",
                "v1-postprocess/boundary lifecycle/v1-provenance lifecycle/v2-provenance",
            ),
            "a boundary is stored in the column behind it": (
                "return accepted, blocks - 1, bias",
                "return accepted, blocks, bias",
                "v1-postprocess/boundary v1-history/provenance v1-history/every-step history/same-bytes v1-postprocess/own-blocks v2-postprocess/own-blocks",
            ),
            "drafts count as tokens of the running state": (
                "running = computed + scheduled - drafts",
                "running = computed + scheduled",
                "align-postprocess/boundary-and-counts",
            ),
            "the first program sets the counts, not the last": (
                "if last_to_finish(programs, counters_ptr):",
                "if program == 0:",
                "v2-postprocess/boundary v2-postprocess/program-order",
            ),
            "counts of slots are set while siblings read them": (
                "if last_to_finish(programs, counters_ptr):",
                "if resets > 0:",
                "v2-postprocess/program-order lifecycle/v2-provenance",
            ),
            "counts of slots are never set": (
                "if resets > 0:",
                "if resets > num_reqs:",
                "v2-postprocess/boundary",
            ),
            "counts change where they are read": (
                "tl.store(num_accepted_tokens_out_ptr + slots, ",
                "tl.store(num_accepted_tokens_ptr + slots, ",
                "v1-postprocess/idempotent",
            ),
            "rows are never moved within their block": (
                "((run != dest) | (bias > 0))",
                "(run != dest)",
                "v2-postprocess/memmove lifecycle/v2-provenance",
            ),
            "what is in slots is read by row": (
                "run = tl.load(mamba_state_idx_ptr + slots, ",
                "run = tl.load(mamba_state_idx_ptr + rows, ",
                "v2-postprocess/boundary v2-postprocess/row-order",
            ),
            "counts of rows of the second pass are not written": (
                "mask=mask_b)",
                "mask=mask_b & (rows < 0))",
                "v1-postprocess/idle-rows",
            ),
            "rows of the second look that stay are not counted": (
                "resets += tl.sum(stays.to(tl.int32) + stays_b.to(tl.int32))",
                "resets += tl.sum(stays.to(tl.int32))",
                "v2-postprocess/idle-rows",
            ),
        },
        "align/kernels/work.py": {
            "only the first request that has to is stored": (
                "first += tiles[1]",
                "first += 0",
                "v1-postprocess/boundary v1-postprocess/row-order",
            ),
            "a row without a slot stops all the others": (
                "mask = mask & (slots >= 0)",
                "mask = mask & (slots * 0 + tl.min(tl.where(mask, slots, 0)) >= 0)",
                "v2-postprocess/boundary v2-postprocess/rows-without-slot v2-postprocess/null-block",
            ),
            "rows behind the first vector of them are not looked at": (
                "rows = start + tl.arange(0, REQUESTS)",
                "rows = 0 * start + tl.arange(0, REQUESTS)",
                "v1-postprocess/idle-rows v2-postprocess/idle-rows precopy/idle-rows",
            ),
        },
        "align/kernels/tickets.py": {
            "tickets are not taken back": (
                "tl.atomic_xchg(counters_ptr, 0, ",
                "tl.atomic_xchg(counters_ptr, tickets, ",
                "precopy/program-order v1-postprocess/program-order",
            ),
            "first tiles are waited for as if they had cost a draw": (
                "drawn == tickets - programs - 1",
                "drawn == tickets - 1",
                "precopy/program-order v1-postprocess/program-order",
            ),
            "a tile is drawn by no program": (
                "following = 2 * programs + drawn",
                "following = 2 * programs + drawn + 1",
                "v1-postprocess/boundary v1-postprocess/program-order",
            ),
        },
        "align/kernels/states.py": {
            "the null block is one like any other": (
                "(src_block > 0) & (dst_block > 0)",
                "(src_block >= 0) & (dst_block >= 0)",
                "precopy/null-block",
            ),
            "block 1 is taken for the null block": (
                "(src_block > 0) & (dst_block > 0)",
                "(src_block > 1) & (dst_block > 0)",
                "v1-postprocess/boundary v1-postprocess/relabelled-blocks precopy/relabelled-blocks",
            ),
            "columns behind the table are read": (
                "inside = (column >= 0) & (column < width)",
                "inside = column >= 0",
                "v1-postprocess/null-block",
            ),
            "the temporal state of a rejected draft is taken": (
                "src_col, src_col + token_bias)",
                "src_col, src_col + token_bias + 1)",
                "precopy/running-column v2-history/every-step",
            ),
            "accepted tokens count in the column that a state goes to": (
                "block_id(table, dst_col, table_width)",
                "block_id(table, dst_col + token_bias, table_width)",
                "precopy/own-blocks",
            ),
            "conv rows are not shifted": (
                "shift = tl.where(width > 0, token_bias, 0)",
                "shift = tl.where(width < 0, token_bias, 0)",
                "precopy/running-column v2-history/provenance",
            ),
            "a launch without tiles copies the first conv row only": (
                "size = row_bytes * tl.maximum(width, 1)",
                "size = row_bytes",
                "v1-postprocess/kernel-launch precopy/kernel-launch",
            ),
            "rows of a block are an element apart": (
                "slide_rows(src, shift, width, row_bytes, left, right, LANES)",
                "slide_rows(src, shift, width, elem, left, right, LANES)",
                "v1-postprocess/memmove v1-postprocess/shifted-rows v2-postprocess/shifted-rows",
            ),
            "offsets of blocks lose their 32nd bit": (
                "dst = base + dst_block * stride",
                "dst = base + (dst_block * stride & 2147483647)",
                "v1-postprocess/int64-offsets precopy/int64-offsets",
            ),
        },
        "align/kernels/copies.py": {
            "a channel is shifted into the next one": (
                "kept = (length - shift).to(tl.int32)",
                "kept = length.to(tl.int32)",
                "precopy/running-column",
            ),
            "rows slide from the wrong end": (
                "target = block + row * row_bytes + left",
                "target = block + (rows - shift - 1 - row) * row_bytes + left",
                "v1-postprocess/memmove",
            ),
            "a run that overlaps itself is moved from the wrong end": (
                "tl.where(dst < src, step, steps - 1 - step)",
                "tl.where(dst > src, step, steps - 1 - step)",
                "copy-meta/memmove copy-meta/every-byte",
            ),
        },
        "align/kernels/memcpy.py": {
            "a run that overlaps itself is cut in parts": (
                "if distance >= size:",
                "if distance > 0:",
                "copy-meta/program-order",
            ),
            "a launch without the number of entries copies none": (
                "        count = programs\n",
                "        count = 0\n",
                "copy-meta/kernel-launch",
            ),
        },
        "align/kernels/preprocess.py": {
            "a request is in a new block as soon as the old one is full": (
                "(computed + (end - begin) + (MAMBA_BLOCK_SIZE - 1)) // MAMBA_BLOCK_SIZE - 1",
                "(computed + (end - begin)) // MAMBA_BLOCK_SIZE",
                "preprocess-kernel/precopy",
            ),
            "the count of a request that stays is set": (
                "mask=mask & (column >= 0) & (column != next_column)",
                "mask=mask & (column >= 0)",
                "preprocess-kernel/columns",
            ),
            "lengths of rows are read by slot": (
                "tl.load(query_start_loc_ptr + rows, mask=mask, other=0)",
                "tl.load(query_start_loc_ptr + slots, mask=mask, other=0)",
                "preprocess-kernel/program-order",
            ),
            "a request that stays is shifted": (
                "(dst_col >= 0) & (src_col != dst_col)",
                "(dst_col >= 0)",
                "precopy/running-column",
            ),
            "what is precopied in rows of the second look is not counted": (
                " + leaves(src_col_b, dst_col_b).to(tl.int32))",
                ")",
                "precopy/idle-rows",
            ),
        },
    }
)

CONTEXT = planted(
    {
        "align/fused.py": {
            "the last of several tiles is left out": (
                '"num_tiles": ctx.tiles.size(0),',
                '"num_tiles": ctx.tiles.size(0) - (ctx.tiles.size(0) > 1),',
                "v1-postprocess/boundary v1-postprocess/another-group",
            ),
        },
        "align/context.py": {
            "a new context takes itself to be bound": (
                "is_initialized: bool = False",
                "is_initialized: bool = True",
                "align-context/unbound",
            ),
            "a context can be bound again": (
                "        if self.is_initialized:\n            return\n",
                "",
                "align-context/bound-once",
            ),
            "states of all groups are found in the first group's table": (
                "row.entry(addresses[row.state_group_indices])",
                "row.entry(addresses[0])",
                "v1-postprocess/boundary",
            ),
        },
        "align/states.py": {
            "a page is as long as a state": (
                "state_block_strides=state.stride(0) * elem",
                "state_block_strides=elements * elem",
                "v1-postprocess/boundary precopy/page-padding",
            ),
            "a whole page is copied": (
                "block_bytes=elements * elem",
                "block_bytes=state.stride(0) * elem",
                "v1-postprocess/boundary v1-postprocess/red-zone v2-postprocess/red-zone precopy/red-zone",
            ),
            "layout DS counts elements per row": (
                "1 if channels_first else elements // max(width, 1)",
                "elements // max(width, 1)",
                "align-context/state-metadata",
            ),
            "addresses lose their last bit": (
                "return address - 2**64 if address >= 2**63 else address",
                "return address & 2**63 - 1",
                "align-context/int64-addresses",
            ),
        },
        "align/geometry.py": {
            "a block table of one column may not have any stride": (
                "(table.size(1) > 1 and table.stride(1) != 1)",
                "table.stride(1) != 1",
                "align-context/one-column",
            ),
            "drafts may reach two boundaries": (
                "if tokens > spec.block_size:",
                "if tokens > 2 * spec.block_size:",
                "align-context/no-room-for-drafts",
            ),
        },
        "align/launch.py": {
            "vectors with gaps are taken": (
                "and vector.device == device\n            and vector.is_contiguous()",
                "and vector.device == device",
                "bad-input/align-mode",
            ),
        },
    }
)

HOST = planted(
    {
        "align/moves.py": {
            "a new request comes from the column of its next token": (
                "source = (computed - 1) // block_size",
                "source = computed // block_size",
                "preprocess/block-tables",
            ),
            "columns of resumed requests are kept": (
                "in chain(scheduler_output.finished_req_ids, preempted, resumed):",
                "in chain(scheduler_output.finished_req_ids, preempted):",
                "cleanup/state-idx lifecycle/v1-provenance",
            ),
            "numbers of tokens may be no ints": (
                "if not computed.__class__ is length.__class__ is int:",
                "if False:",
                "bad-input/align-values",
            ),
            "columns are remembered before anything is refused": (
                "remembered = dict(mamba_state_idx)",
                "remembered = mamba_state_idx",
                "preprocess/bad-row",
            ),
        },
        "align/runner.py": {
            "what is forgotten is forgotten before anything is refused": (
                "step = decide(scheduler_output,",
                "step = cleanup_mamba_state_idx(scheduler_output, mamba_state_idx) or decide(scheduler_output,",
                "preprocess/shift-by-pointers",
            ),
            "columns of requests that do not move are not remembered": (
                "mamba_state_idx.update(zip(input_batch.req_ids, step.columns, strict=True))",
                "mamba_state_idx.update((input_batch.req_ids[row], step.columns[row]) for row in step.rows)",
                "preprocess/idempotent",
            ),
            "counts of requests that moved are kept": (
                "input_batch.num_accepted_tokens_cpu[step.rows] = 1",
                "input_batch.num_accepted_tokens_cpu[step.rows] *= 1",
                "preprocess/pointer-lists",
            ),
            "there is always a context for after the step": (
                "if with_postprocess_align:",
                "if copy_funcs:",
                "align-buffers/context",
            ),
            "mode all takes every row for a full decode": (
                "scheduled.get(req_id) == 1 + num_spec_tokens",
                "scheduled.get(req_id, 0) >= 1",
                "all-mode/last-block",
            ),
        },
        "align/memcpy.py": {
            "copies to and from the null block are written down": (
                "if blocks[column] <= NULL_BLOCK_ID:",
                "if blocks[column] < NULL_BLOCK_ID:",
                "copy-meta/bad-column",
            ),
            "lists of pointers forget the accepted tokens": (
                "run = copy_func(state, blocks, src_col, bias + 1)",
                "run = copy_func(state, blocks, src_col, 1)",
                "preprocess/pointer-lists v1-history/pointer-lists",
            ),
            "pointers lose their last bit": (
                "np.array(addresses, np.uint64)",
                "np.array([one & 2**63 - 1 for one in addresses], np.uint64)",
                "copy-meta/int64-pointers",
            ),
            "sizes of 32 bits are refused": (
                "_SIZE_DTYPES = (torch.int32, torch.int64)",
                "_SIZE_DTYPES = (torch.int64,)",
                "copy-meta/size-widths",
            ),
            "a state that stays is written down": (
                "if src_col == dst_col and bias == 0:",
                "if src_col == dst_col and bias > 0:",
                "copy-meta/nothing-to-copy",
            ),
        },
        "align/staging.py": {
            "half of the rows is uploaded": (
                "buffer.copy_to_gpu(rows)",
                "buffer.copy_to_gpu(rows // 2)",
                "staging/all-inputs",
            ),
            "staging clears the rows behind": (
                "buffer.np[:rows] = values",
                "buffer.np[:] = values + [0] * (len(buffer.np) - rows)",
                "staging/some-rows",
            ),
            "running columns are staged in ascending order": (
                '"mamba_state_idx": [mamba_state_idx[req_id] for req_id in ids]',
                '"mamba_state_idx": sorted(mamba_state_idx[req_id] for req_id in ids)',
                "staging/columns",
            ),
            "scheduled and computed tokens are mixed up": (
                "buffers = num_scheduled_tokens_buf, num_computed_tokens_buf, num_draft_tokens_buf",
                "buffers = num_computed_tokens_buf, num_scheduled_tokens_buf, num_draft_tokens_buf",
                "staging/token-counts",
            ),
        },
        "align/groups.py": {
            "groups with states are counted without the others": (
                "return group_ids, first",
                "return list(range(len(group_ids))), first",
                "mamba-groups/found",
            ),
        },
        "align/buffers.py": {
            "lists have room for one state per layer": (
                "entries = requests * context.num_layers * len(copy_funcs)",
                "entries = requests * context.num_layers",
                "copy-meta/copied",
            ),
            "lists know groups by their place among those with states": (
                "mamba_group_ids=group_ids,",
                "mamba_group_ids=list(range(len(group_ids))),",
                "copy-buffers/room",
            ),
        },
    }
)

ALIGN = (*KERNELS, *CONTEXT, *HOST)
