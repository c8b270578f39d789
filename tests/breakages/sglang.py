"""Defects planted in a copy of SGLang's own files, and how many scenarios it takes to find each.

    .sglang/0.5.23/bin/python -m tests.breakages.sglang

prints the table, for release 0.5.23; `--only <word>` tries those whose name has the word. Each is tried in a process of its own, in which
the module is loaded from a changed copy. What is found is shrunk, and `requests` are those of the smallest scenario.
"""

from __future__ import annotations

from tests.breakages.release import planted, trials_of
from tests.breakages.scenarios import print_table

RELEASE = "0.5.23"
MAX_EXAMPLES = 400
_CACHE = "sglang.srt.mem_cache"
_POOL = f"{_CACHE}.memory_pool"
_SLOTS = f"{_CACHE}.allocator.mamba"
_STATES = f"{_CACHE}.unified_cache.components.mamba"
_BATCH = "sglang.srt.managers.schedule_batch"
_RESULTS = "sglang.srt.managers.scheduler_components.batch_result_processor"
_LAYERS = "sglang.srt.layers.attention.hybrid_linear_attn_backend"

OF_OVERLAP = planted(
    {
        _POOL: {
            "the slot that is not the last kept one is donated": (
                "        donate_idx = self.get_mamba_ping_pong_keep_idx(req)\n",
                "        donate_idx = req.kv.mamba_next_track_idx\n",
            ),
            "a donated slot stays with its request": (
                "        self.set_mamba_ping_pong_slot(req, donate_idx, new_slot[0])\n",
                "",
            ),
            "a finished request gives back the slot that the tree keeps": (
                "[p for p in range(size) if p != keep and not empty[p]]",
                "[p for p in range(size) if not empty[p]]",
            ),
            "a finished request gives back none of its slots at boundaries": (
                "            if len(positions) == size:\n                self.mamba_allocator.free(row)\n",
                "            if True:\n                pass\n",
            ),
        },
        _SLOTS: {
            "a slot is given out twice": (
                "self.free_slots = self.free_slots[need_size:]",
                "self.free_slots = self.free_slots[need_size - 1 :]",
            ),
        },
        _STATES: {
            "both parts of a split node have its state": (
                "        new_parent.component_data[ct].value = None\n",
                "        new_parent.component_data[ct].value = child.component_data[ct].value\n",
            ),
            "a finished request caches the state as that of all of its tokens": (
                "                cache_len, keep_idx = checkpoint\n",
                "                cache_len, keep_idx = token_ids_len, checkpoint[1]\n",
            ),
            "a hit does not copy the state": (
                "        req.kv.mamba_cow_src_index = src_index\n",
                "        req.kv.mamba_cow_src_index = None\n",
            ),
            "a state that the tree has already is lost": (
                "                insert_result is None or insert_result.mamba_exist\n",
                "                insert_result is None\n",
            ),
        },
        _BATCH: {
            "a prefill names the state that it keeps by its last token": (
                "            req.kv.mamba_last_track_seqlen = mamba_track_seqlen_aligned\n",
                "            req.kv.mamba_last_track_seqlen = seq_end\n",
            ),
            "a decode keeps the state one token behind a boundary": (
                "track_mask_cpu = track_remainders_cpu == 0",
                "track_mask_cpu = track_remainders_cpu == 1",
            ),
            "a new slot is not cleared": (
                "            elif req.kv.mamba_needs_clear:\n",
                "            elif False:\n",
            ),
        },
        _RESULTS: {
            "the slot for the next boundary never changes": (
                "batch.req_to_token_pool.get_mamba_ping_pong_other_idx(track_idx)",
                "track_idx",
            ),
            "a boundary is named by the step in flight": (
                "req.kv.mamba_last_track_seqlen = req.kv.kv_committed_len - lookahead",
                "req.kv.mamba_last_track_seqlen = req.kv.kv_committed_len",
            ),
        },
        _LAYERS: {
            "the convolution that a prefill keeps is one token behind": (
                "start_indices = query_start_loc[:-1] + aligned_len - conv_state_len",
                "start_indices = query_start_loc[:-1] + aligned_len - conv_state_len + 1",
            ),
            "a prefill keeps the last state at no boundary": (
                "            if forward_metadata.track_ssm_final_src.numel() > 0:\n",
                "            if False:\n",
            ),
        },
        "sglang.srt.managers.scheduler": {
            "a pause forgets the requests of the step in flight": (
                "            retract_reqs += [r for r in self.last_batch.reqs if not r.finished()]\n",
                "            pass\n",
            ),
        },
    },
    RELEASE,
    "radix-engine/overlap",
)
OF_SCARCE = planted(
    {
        _STATES: {
            "an evicted state keeps its slot": (
                "            device_frees[self.component_type].append(cd.value)\n",
                "",
            ),
        },
        f"{_CACHE}.common": {
            "a finished request keeps its prefix locked": ("    tree_cache.unlock(req.lock)\n", ""),
        },
    },
    RELEASE,
    "radix-engine/scarce",
)
OF_LAST_STATES = planted(
    {
        _POOL: {
            "a state is copied without its temporal part": (
                "            self.mamba_cache.temporal[:, dst_indices] = self.mamba_cache.temporal[\n",
                "            self.mamba_cache.temporal[:, src_indices] = self.mamba_cache.temporal[\n",
            ),
        },
        _STATES: {
            "the state of a chunk is cached without a copy": (
                "                mamba_value_donated = self._alloc_mamba_slot(req)\n",
                "                mamba_value_donated = req.kv.mamba_pool_idx.view(-1)\n",
            ),
        },
        _SLOTS: {
            "slots that a batch did not need are lost": (
                "                self.free(torch.cat(remaining))\n",
                "                pass\n",
            ),
        },
    },
    RELEASE,
    "radix-engine/no-buffer",
)
_VERIFY = "sglang.srt.speculative.spec_utils"
OF_DRAFTS = planted(
    {
        _VERIFY: {
            "the state after the first token of a step is taken for that after the accepted ones": (
                "accept_index[req_idx, (accept_lens - 1).to(torch.int64)] - accept_indices_offset",
                "accept_index[req_idx, 0] - accept_indices_offset",
            ),
            "a step keeps the state one draft behind the boundary": (
                "torch.clamp(tracking_point - seq_lens_pre_verify - 1, min=0)",
                "torch.clamp(tracking_point - seq_lens_pre_verify, min=0, max=accept_index.shape[1] - 1)",
            ),
            "a boundary at the last accepted token is missed": (
                "seq_lens_post_verify = batch.seq_lens + accept_lens",
                "seq_lens_post_verify = batch.seq_lens + accept_lens - 1",
            ),
        },
        _RESULTS: {
            "the state at a boundary is named by the last accepted token": (
                "                return True, cur // interval * interval\n",
                "                return True, cur\n",
            ),
        },
    },
    RELEASE,
    "radix-engine/drafts",
)
OF_LATE_BOUNDARIES = planted(
    {
        _STATES: {
            "the slot of the boundary before is the last one": (
                "return previous_cache_len, pool.get_mamba_ping_pong_other_idx(keep_idx)",
                "return previous_cache_len, keep_idx",
            ),
        },
    },
    RELEASE,
    "radix-engine/drafts",
)
OF_LAZY_DRAFTS = planted(
    {
        _RESULTS: {
            "the slot of the boundary before is not given back": (
                "            pool.mamba_allocator.free(keep_val.unsqueeze(0))\n",
                "",
            ),
        },
    },
    RELEASE,
    "radix-engine/lazy-drafts",
)
OF_HOST = planted(
    {
        f"{_CACHE}.pool_host.mamba": {
            "a convolution is not copied to host memory": (
                "                    dst=self.conv_buffer[conv_idx],\n",
                "                    dst=torch.empty_like(self.conv_buffer[conv_idx]),\n",
            ),
            "a convolution is not loaded back": (
                "                        dst=conv_layers[conv_idx][layer_id],\n",
                "                        dst=conv_layers[conv_idx][layer_id].clone(),\n",
            ),
        },
        _STATES: {
            "a state that is loaded back does not reach the slot of its request": (
                "            if mamba_pool_idx is not None and cd.host_value is not None:\n",
                "            if False:\n",
            ),
            "a prefix names another slot of host memory": (
                "                    cd.host_value = transfers[0].host_indices.clone()\n",
                "                    cd.host_value = transfers[0].host_indices + 1\n",
            ),
        },
    },
    RELEASE,
    "radix-engine/write-through",
)
_KEPT, _OPENED = "sglang.srt.session.streaming_session", "sglang.srt.session.session_controller"
OF_SESSIONS = planted(
    {
        _KEPT: {
            "a closed session keeps its slots of states": ("        self._free_slot_mamba(slot)\n", ""),
            "a closed session keeps its prefix locked": ("        self.cache.unlock(slot.lock)\n", ""),
            "an aborted turn leaves its slots to its session, too": (
                "            del self.slots[req.session.session_id]\n",
                "",
            ),
        },
        _OPENED: {
            "tokens of an aborted turn stay in its session": (
                "        del input_ids[self.committed_origin_len :]\n",
                "",
            ),
            "a branch keeps what was said although it should not": (
                "            input_ids = last_req.origin_input_ids[:]\n",
                "            input_ids = last_req.origin_input_ids + out_tail\n",
            ),
            "a session that was closed under a running request is never given back": (
                "                self._close(sid)\n\n            timed_out",
                "                pass\n\n            timed_out",
            ),
        },
    },
    RELEASE,
    "radix-engine/sessions",
)
OF_TREES = planted(
    {
        _VERIFY: {
            "the state of as many tokens as were accepted is taken for that of the last accepted one": (
                "accept_index[req_idx, (accept_lens - 1).to(torch.int64)] - accept_indices_offset",
                "(accept_lens - 1).to(torch.int64)",
            ),
            "the state at a boundary is that of as many tokens in the batch": (
                "candidate_track_steps = accept_index[req_idx, to_track_ith] - accept_indices_offset",
                "candidate_track_steps = to_track_ith",
            ),
            "keys of accepted drafts stay where they were computed": (
                "    token_to_kv_pool_allocator.get_kvcache().move_kv_cache(\n        tgt_cache_loc, accept_out_cache_loc\n    )",
                "    pass",
            ),
        },
    },
    RELEASE,
    "radix-engine/draft-trees",
)
OF_LATE_COPIES = planted(
    {
        _POOL: {
            "a forward does not wait for states from host memory": (
                "            self.layer_transfer_counter.wait_until(layer_id - self.start_layer)\n        return self.mamba_map",
                "            pass\n        return self.mamba_map",
            ),
            "a state is copied before it came from host memory": (
                "            self.layer_transfer_counter.wait_until(last_mamba_layer - self.start_layer)\n",
                "            pass\n",
            ),
        },
        f"{_CACHE}.unified_radix_cache": {
            "a prefix that is copied to host memory may be evicted": (
                "                lock_params = self.inc_lock_ref(node_id).to_dec_params()\n            publish",
                "                lock_params = None\n            publish",
            ),
        },
    },
    RELEASE,
    "radix-engine/write-through",
)
OF_EAGLE = planted(
    {
        "sglang.srt.speculative.eagle_worker_common": {
            "a step with drafts of a model leaves the state after its first token": (
                "        batch,\n        accept_lens,\n        accept_index,\n        num_draft_tokens,\n        prepared",
                "        batch,\n        torch.ones_like(accept_lens),\n        accept_index,\n        num_draft_tokens,\n        prepared",
            ),
            "a step with drafts of a model goes on one token too early": (
                "        new_seq_lens = batch.seq_lens + accept_lens\n",
                "        new_seq_lens = batch.seq_lens + accept_lens - 1\n",
            ),
        },
    },
    RELEASE,
    "radix-engine/eagle",
)
_MAMBA2 = "sglang.srt.layers.attention.mamba"
OF_MAMBA2 = planted(
    {
        f"{_MAMBA2}.prefill_track_metadata": {
            "states before chunks of the batch are taken for those before chunks of each row": (
                "plan.h_src.append(end // chunk_size if mamba2 else h_offsets[row] + chunk)",
                "plan.h_src.append(h_offsets[row] + chunk)",
            ),
            "a row that begins inside of a chunk keeps the state before that chunk": (
                "if mamba2 and end % chunk_size:",
                "if False:",
            ),
        },
        f"{_MAMBA2}.mamba": {
            "the convolution that a Mamba-2 prefill keeps is one token behind": (
                "x_to_track = x[:, metadata.track_conv_indices].transpose(0, 1)",
                "x_to_track = x[:, metadata.track_conv_indices - 1].transpose(0, 1)",
            ),
            "a Mamba-2 prefill behind a hit begins with no state": (
                "if has_initial_states_p is not None and prep_initial_states:",
                "if False:",
            ),
            "a Mamba-2 prefill leaves the state of another row": (
                "ssm_state[state_indices_tensor_p] = varlen_state\n",
                "ssm_state[state_indices_tensor_p] = varlen_state.flip(0)\n",
            ),
        },
        _LAYERS: {
            "a Mamba-2 decode keeps no state at a boundary": (
                "            if self.forward_metadata.num_decodes > 0:\n",
                "            if False:\n",
            ),
        },
    },
    RELEASE,
    "radix-engine/mamba2-overlap",
)
_COPIED = """                self.mamba_cache.conv[i][:, dst_indices] = self.mamba_cache.conv[i][
                    :, src_indices
                ]
            self.mamba_cache.temporal[:, dst_indices] = self.mamba_cache.temporal[
                :, src_indices
            ]
"""
_LOADED = "src={0},\n{2}dst={1}[layer_id],\n{2}src_indices=host_indices,\n{2}dst_indices=device_indices,\n{2}layer_id=layer_id,\n"
_LOADED_CONV = _LOADED.format("self.conv_buffer[conv_idx]", "conv_layers[conv_idx]", " " * 24)
_LOADED_TEMPORAL = _LOADED.format("self.temporal_buffer", "temporal_layers", " " * 24)
OF_LAYERS_OF_COPIES = planted(
    {
        _POOL: {
            "a copy of a state takes the temporal states of the layers in reverse order": (
                _COPIED,
                _COPIED.replace(
                    "                :, src_indices\n            ]\n",
                    "                :, src_indices\n            ].flip(0)\n",
                ),
            ),
            "a copy of a state has the convolution of the first layer in every layer": (
                _COPIED,
                _COPIED.replace(
                    "self.mamba_cache.conv[i][\n                    :, src_indices",
                    "self.mamba_cache.conv[i][\n                    :1, src_indices",
                ),
            ),
            "a copy of a state has the beginning of the temporal state as its convolution": (
                _COPIED,
                "                conv = self.mamba_cache.conv[i][:, dst_indices]\n"
                "                flat = self.mamba_cache.temporal[:, src_indices].flatten(2)[..., : conv[0, 0].numel()]\n"
                "                self.mamba_cache.conv[i][:, dst_indices] = flat.reshape(conv.shape)\n"
                + _COPIED[_COPIED.index("            self.mamba_cache.temporal") :],
            ),
        },
    },
    RELEASE,
    "radix-engine/no-buffer",
)
OF_LAYERS_OF_LOADS = planted(
    {
        f"{_CACHE}.pool_host.mamba": {
            "a load puts the convolution of the first layer into every layer": (
                _LOADED_CONV,
                _LOADED_CONV.replace("layer_id=layer_id", "layer_id=0"),
            ),
            "a load puts the temporal state of a layer into the next one": (
                _LOADED_TEMPORAL,
                _LOADED_TEMPORAL.replace(
                    "layer_id=layer_id", "layer_id=(layer_id + 1) % self.num_mamba_layers"
                ),
            ),
        },
        f"{_CACHE}.pool_host.mha": {
            "a load exchanges keys and values": (
                "                    src_ptrs=[self.k_buffer, self.v_buffer],\n                    dst_ptrs=[\n                        device_k,\n                        device_v,\n                    ],\n                    src_indices=host_indices,\n                    dst_indices=device_indices,\n                    layer_id=host_layer_id,\n",
                "                    src_ptrs=[self.v_buffer, self.k_buffer],\n                    dst_ptrs=[\n                        device_k,\n                        device_v,\n                    ],\n                    src_indices=host_indices,\n                    dst_indices=device_indices,\n                    layer_id=host_layer_id,\n",
            ),
        },
    },
    RELEASE,
    "radix-engine/write-through",
)
PLANTED = (
    *(OF_OVERLAP + OF_SCARCE + OF_LAST_STATES + OF_DRAFTS + OF_LAZY_DRAFTS + OF_HOST),
    *(OF_SESSIONS + OF_TREES + OF_LATE_COPIES + OF_LATE_BOUNDARIES + OF_EAGLE + OF_MAMBA2),
    *(OF_LAYERS_OF_COPIES + OF_LAYERS_OF_LOADS),
)


if __name__ == "__main__":
    print_table("tests.breakages.sglang", __doc__, "module", trials_of(PLANTED, shrinks=True), MAX_EXAMPLES)
