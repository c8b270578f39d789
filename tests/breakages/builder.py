"""Defects of the metadata builders, and of what they alone use."""

from __future__ import annotations

from tests.breakages.variants import planted

BUILDERS = planted(
    {
        "builders/host.py": {
            "more tokens are accepted than a decode has": (
                "if least < 1 or greatest > most:",
                "if least < 1:",
                "bad-input/counts-on-host",
            ),
            "a short row is a decode, whatever state it has": (
                "ends = batch.stateless",
                "ends = None",
                "builder/no-prior-state builder/prompt-rows lifecycle/no-copies",
            ),
            "a row in its prompt is a decode where a longer row is there": (
                "ends = too_long if ends is None else too_long | ends",
                "ends = too_long",
                "builder/prompt-rows",
            ),
            "padding counts as rows without prior state": (
                "fresh[queries.filled :] = False",
                "fresh[fresh.size :] = False",
                "builder/padding-rows builder/full-graphs",
            ),
            "a batch of as many rows has the lengths of the one before": (
                "if queries is None or raw != queries.raw or rows != queries.rows:",
                "if queries is None or rows != queries.rows:",
                "builder/several-steps",
            ),
            "rows of no token may come before others": (
                "if not (front and shortest >= 0 and starts.item(0) == 0 == starts.item(starts.argmin())):",
                "if not (shortest >= 0 and starts.item(0) == 0 == starts.item(starts.argmin())):",
                "builder/empty-row",
            ),
        },
        "checks.py": {
            "a tensor on the host may have another number of rows than the batch": (
                "value.is_cpu and value.shape == (rows,)",
                "value.is_cpu and value.ndim == 1",
                "bad-input/builders",
            ),
        },
        "batch.py": {
            "the tokens of a batch of decodes are its rows": (
                "return ends.size, 0, tokens, 0",
                "return ends.size, 0, ends.size, 0",
                "builder/partition builder/padding-rows",
            ),
        },
        "builders/base.py": {
            "every prefill has an initial state": (
                "torch.gt(seq_lens[first:] if first else seq_lens, own)",
                "torch.ge(seq_lens[first:] if first else seq_lens, own)",
                "builder/fields builder/several-steps",
            ),
            "the starts of prefills count the tokens of decodes": (
                "starts, lengths = batch.starts[first:] - batch.starts[first], batch.lengths[first:]",
                "starts, lengths = batch.starts[first:], batch.lengths[first:]",
                "builder/fields",
            ),
            "the split of the first step is kept": (
                "split = split_batch(batch, 1 if num_accepted_tokens is None else 1 + self.num_spec_tokens)",
                'split = vars(self).setdefault("kept", split_batch(batch, 1 if num_accepted_tokens is None else 1 + self.num_spec_tokens))',
                "builder/several-steps builder/no-stale-step",
            ),
            "accepted counts do not make a row with drafts a decode": (
                "1 if num_accepted_tokens is None else 1 + self.num_spec_tokens",
                "1",
                "builder/full-graphs",
            ),
            "builders of one shape share their buffers": (
                "return torch.empty(shape, dtype=torch.int32, device=device)",
                "return globals().setdefault(str(shape), torch.empty(shape, dtype=torch.int32, device=device))",
                "builder/two-builders",
            ),
            "a graph is handed a copy of the state indices": (
                "ids_d, starts_d, counts_d, _ = stage(common, batch, counts, batch.filled)",
                "ids_d, starts_d, counts_d, _ = stage(common, batch, counts, batch.filled); ids_d = ids_d.clone()",
                "builder/own-buffers",
            ),
            "a graph is captured with one accepted token per row": (
                "torch.diff(m.query_start_loc) if",
                "torch.diff(m.query_start_loc).clamp(min=1, max=1) if",
                "builder/capture",
            ),
            "in mode all, padding is written into the runner's table": (
                'if filled < rows and self._mode != "align":',
                'if filled < rows and self._mode == "none":',
                "builder/fields builder/several-steps",
            ),
            "decodes of padding keep what the runner left in the table": (
                "ids_d[filled:].fill_(PAD_SLOT_ID)",
                "ids_d[filled:]",
                "builder/padding-blocks builder/full-graphs",
            ),
            "missing accepted counts are taken for ones": (
                "counts = check_counts(counts, decodes, self._device, function)",
                "counts = torch.ones_like(seq_lens) if counts is None else check_counts(counts, decodes, self._device, function)",
                "mamba2-builder/accepted-counts",
            ),
            "another block table leaves padding with its blocks": (
                "ids_d.masked_fill(padding[:decodes], PAD_SLOT_ID)",
                "ids_d",
                "builder/update-block-table",
            ),
            "the starts of prefills begin one token late where rows of padding follow": (
                "starts, lengths = batch.starts[first:] - batch.starts[first], batch.lengths[first:]",
                "starts, lengths = batch.starts[first:] - batch.starts[first] + (batch.filled < batch.rows), batch.lengths[first:]",
                "builder/padding-rows",
            ),
        },
        "builders/columns.py": {
            "the first block to write is the last one": (
                "metadata.block_idx_first_scheduled_token_p = blocks.column_of_next(computed, most)",
                "metadata.block_idx_first_scheduled_token_p = blocks.column_of_last(common.seq_lens[first:], most)",
                "builder/fields builder/several-steps",
            ),
        },
        "builders/common.py": {
            "fewer speculative blocks than drafts are enough": (
                'int_at_least("num_speculative_blocks", kv_cache_spec.num_speculative_blocks, num_spec, function)',
                'int_at_least("num_speculative_blocks", kv_cache_spec.num_speculative_blocks, 0, function)',
                "builder/bad-config",
            ),
            "a batch as large as the largest graph does not run as one": (
                "if size > self.decode_cudagraph_max_bs:",
                "if size >= self.decode_cudagraph_max_bs:",
                "builder/own-buffers",
            ),
        },
        "builders/blocks.py": {
            "a row that fills its block runs on the next one": (
                "self.ends(seq_lens, table.size(1)))",
                "self.ends(seq_lens, table.size(1)), right=True)",
                "builder/fields",
            ),
            "block ids are kept in one byte": (
                "return table.gather(1, first)",
                "return table.gather(1, first) % 256",
                "builder/relabelled-blocks",
            ),
        },
        "builders/drafts.py": {
            "a prompt that has drafts is a speculative row": (
                "        spec &= with_state\n",
                "        pass\n",
                "builder/prompt-rows",
            ),
            "a decode that drafted nothing is no speculative row": (
                "single = (batch.lengths == 1) & with_state",
                "single = (batch.lengths == 0) & with_state",
                "gdn-builder/no-drafts",
            ),
            "a prompt's tail of one token is speculative": (
                "single = (batch.lengths == 1) & with_state",
                "single = batch.lengths == 1",
                "builder/prompt-rows builder/no-prior-state",
            ),
        },
        "builders/gdn.py": {
            "padding counts as prefills": (
                "prefills = max(filled - decodes, 0)",
                "prefills = rows - decodes",
                "builder/fields",
            ),
            "GDN writes padding into the runner's table": (
                'ids = ids.clone() if self._mode == "none" else ids',
                "ids = ids.view_as(ids)",
                "builder/fields",
            ),
            "the starts of GDN's decodes stay in the runner's memory": (
                "            non_spec_query_start_loc=starts,\n",
                "            non_spec_query_start_loc=m.query_start_loc,\n",
                "builder/own-buffers",
            ),
            "the last speculative token is in both lists": (
                "index[:tokens], index[tokens:]",
                "index[:tokens], index[tokens - 1 :]",
                "gdn-builder/token-indices",
            ),
            "accepted counts of speculative rows between others stay in the order of the batch": (
                "ids, seq_lens, counts = (t.index_select(0, rows) for t in (ids, seq_lens, counts))",
                "ids, seq_lens = (t.index_select(0, rows) for t in (ids, seq_lens))",
                "gdn-builder/no-drafts builder/no-stale-step",
            ),
            "a decode with drafts may have no computed token where only its length makes it a decode": (
                "                check_decodes_have_state(batch, spec, function)\n",
                "",
                "builder/unmarked-first-chunk",
            ),
            "rows of padding behind GDN's decodes keep what the runner left in the table": (
                "            ids[filled:].fill_(NULL_BLOCK_ID)\n",
                "            pass\n",
                "builder/padding-blocks",
            ),
        },
        "builders/decodes.py": {
            "padding behind speculative rows accepts no token": (
                "(self._counts, 1)",
                "(self._counts, 0)",
                "builder/capture builder/full-graph-drafts",
            ),
            "padding behind speculative rows is speculative": (
                "(self._masks, False)",
                "(self._masks, True)",
                "builder/capture builder/full-graph-drafts",
            ),
        },
        "builders/mamba2.py": {
            "initial states are prepared only where every prefill has one": (
                "bool(np.count_nonzero(computed > 0))",
                "bool((computed > 0).all())",
                "builder/fields",
            ),
        },
        "builders/mamba1.py": {
            "Mamba-1 is constructed with one draft": (
                "if vllm_config.num_speculative_tokens:",
                "if vllm_config.num_speculative_tokens > 1:",
                "builder/bad-config",
            ),
        },
        "chunks.py": {
            "prefills are cut at multiples counted from the step's first token": (
                "phases = computed % chunk_size",
                "phases = computed * 0",
                "builder/fields builder/several-steps",
            ),
        },
        "types.py": {
            "a page may be smaller than its states if its padding is not 0": (
                "if self.page_size_padded is not None:",
                "if self.page_size_padded == 0:",
                "page-size/too-small",
            ),
        },
    }
)
