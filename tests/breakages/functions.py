"""Defects planted in functions of a release's own files, and how many examples it takes to find each.

    .sglang/0.5.23/bin/python -m tests.breakages.functions
    .vllm/0.33.0/bin/python -m tests.breakages.functions

print the tables, for releases 0.5.23 and 0.33.0; `--only <word>` tries those whose name has the word. Each is tried in a process of its own, in
which the module is loaded from a changed copy.
"""

from __future__ import annotations

from importlib.util import find_spec

from tests.breakages.release import RELEASE as VLLM
from tests.breakages.release import planted, trials_of
from tests.breakages.scenarios import print_table
from tests.breakages.sglang import RELEASE as SGLANG

MAX_EXAMPLES = 400
_DISAGGREGATION = "sglang.srt.disaggregation"
_CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1"

SLICES_OF_SGLANG = planted(
    {
        f"{_DISAGGREGATION}.utils": {
            "each rank gets the first slice of a convolution's part": (
                "        src_start = src_off + (dst_tp_rank_in_group * dst_sub) % src_sub\n",
                "        src_start = src_off\n",
            ),
            "all ranks write the first slice of a convolution's part": (
                "            blocks.append((src_off, dst_off + local_writer_idx * src_sub, src_sub))\n",
                "            blocks.append((src_off, dst_off, src_sub))\n",
            ),
            "each rank gets the first heads of a temporal state": (
                "        src_dim_start = (dst_tp_rank_in_group * dst_dim) % src_dim\n",
                "        src_dim_start = 0\n",
            ),
            "rows of channels are as wide as those of the source": (
                "        dst_row_offset = outer_idx * dst_dim * dst_bytes_per_dim\n",
                "        dst_row_offset = outer_idx * src_dim * dst_bytes_per_dim\n",
            ),
        },
        f"{_DISAGGREGATION}.common.conn": {
            "a rank asks the wrong rank for its state": (
                "                self.attn_tp_size // info.attn_tp_size\n            )\n            required",
                "                self.attn_tp_size // info.attn_tp_size\n            ) * 0\n            required",
            ),
        },
        f"{_DISAGGREGATION}.mooncake.conn": {
            "a state is read from the slot that it is sent to": (
                "src_addr = src_state_data_ptrs[i] + length * int(prefill_mamba_index[0])",
                "src_addr = src_state_data_ptrs[i] + length * int(dst_mamba_index[0])",
            ),
        },
        "sglang.srt.mem_cache.memory_pool": {
            "a convolution with rows first is cut along its rows": (
                '            slice_axis = self.conv_slice_axis if field == "conv" else 0\n',
                "            slice_axis = 0\n",
            ),
            "only the first layer is sent": (
                "                for layer_index, layer_id in enumerate(self.mamba_layer_ids):\n",
                "                for layer_index, layer_id in enumerate(self.mamba_layer_ids[:1]):\n",
            ),
        },
    },
    SGLANG,
    "state-transfer/mooncake",
)
_SCATTER = "sglang.kernels.ops.mamba.mamba_state_scatter_triton"
_FUSED = "sglang.srt.mem_cache.mamba_slot_fused"
KERNELS_OF_SGLANG = (
    *planted(
        {
            _FUSED: {
                "slots of all layers are cleared in the first one": (
                    "        base\n        + lid * tl.load(layer_stride_arr + tid)\n",
                    "        base\n        + 0 * tl.load(layer_stride_arr + tid)\n",
                ),
            },
        },
        SGLANG,
        "state-slots/clear",
    ),
    *planted(
        {
            _FUSED: {
                "the first row of each pair of slots is copied for all": (
                    "    dst_row = base + layer_off + tl.load(dst_arr + iid) * slot_stride\n",
                    "    dst_row = base + layer_off + tl.load(dst_arr) * slot_stride\n",
                ),
                "elements of the largest convolution are copied of all": (
                    "        mask = cols < feat\n        tl.store(dst_row",
                    "        mask = cols < feat + 1\n        tl.store(dst_row",
                ),
            },
        },
        SGLANG,
        "state-slots/copy",
    ),
    *planted(
        {
            _SCATTER: {
                "a window is read from the first draft": (
                    (
                        "            src_off = (\n                pid_layer * src_layer_stride\n"
                        "                + src_idx * src_req_stride\n                + step_idx * src_step_stride\n"
                    ),
                    (
                        "            src_off = (\n                pid_layer * src_layer_stride\n"
                        "                + src_idx * src_req_stride\n                + 0 * src_step_stride\n"
                    ),
                ),
                "rejected rows are copied": (
                    "    # Early exit if this request is not valid (step < 0)\n    if step_idx < 0:\n",
                    "    # Early exit if this request is not valid (step < 0)\n    if step_idx < -1:\n",
                ),
                "slots at boundaries get the last accepted states": (
                    (
                        "                mamba_track_indices,\n                mamba_steps_to_track,\n                src_indices_raw,\n"
                        "            )\n\n    pairs"
                    ),
                    (
                        "                mamba_track_indices,\n                last_correct_step_indices,\n                src_indices_raw,\n"
                        "            )\n\n    pairs"
                    ),
                ),
                "windows of the second set begin with the rows of the first": (
                    "    off2 = pid_req - n1\n",
                    "    off2 = pid_req\n",
                ),
            },
        },
        SGLANG,
        "state-slots/accepted",
    ),
    *planted(
        {
            _SCATTER: {
                "rows without a slot are copied": (
                    "        if (not check_freed_slots) or ((src_idx >= 0) & (dst_idx >= 0)):\n",
                    "        if True:\n",
                ),
                "the row behind a tracked row is copied": (
                    "            tl.where((track_rank == rank + 1) & (track != 0), rows, 0), axis=0\n",
                    "            tl.where(track_rank == rank + 1, rows, 0), axis=0\n",
                ),
                "the temporal state is copied to its own slot": (
                    (
                        "                    ssm_states_ptr + layer_idx * ssm_layer_stride,\n"
                        "                    src_idx * ssm_row_stride,\n                    dst_idx * ssm_row_stride,\n"
                    ),
                    (
                        "                    ssm_states_ptr + layer_idx * ssm_layer_stride,\n"
                        "                    src_idx * ssm_row_stride,\n                    src_idx * ssm_row_stride,\n"
                    ),
                ),
            },
        },
        SGLANG,
        "state-slots/boundary",
    ),
    *planted(
        {
            _SCATTER: {
                "a boundary is a token late": (
                    "        ti = tp - pre - 1\n",
                    "        ti = tp - pre\n",
                ),
                "a row that ends at a boundary passes none": (
                    "        cross = (pre // interval) != (post // interval)\n",
                    "        cross = (pre // interval) != ((post - 1) // interval)\n",
                ),
            },
        },
        SGLANG,
        "state-slots/last-accepted",
    ),
    *planted(
        {
            "sglang.kernels.ops.mamba.mamba_state_indices_triton": {
                "padded rows have the slot of the first row": (
                    "    out_val = tl.where(valid, idx.to(tl.int32), -1)\n",
                    "    out_val = idx.to(tl.int32)\n",
                ),
                "rows of padding keep their number": (
                    "    tl.store(req_pool_indices_ptr + offs, zeros, mask=in_range & (~valid))\n",
                    "",
                ),
            },
        },
        SGLANG,
        "state-slots/padded-rows",
    ),
)
_PREFILL = "sglang.srt.layers.attention.mamba"
METADATA_OF_SGLANG = (
    *planted(
        {
            f"{_PREFILL}.prefill_track_metadata": {
                "chunks of earlier rows are counted without their rests": (
                    "accumulate(((n + chunk_size - 1) // chunk_size for n in extend_lens), initial=0)",
                    "accumulate((n // chunk_size for n in extend_lens), initial=0)",
                ),
                "a state inside of a chunk is taken from the chunk's beginning": (
                    "        if mamba2 and end % chunk_size:\n",
                    "        if False:\n",
                ),
                "a boundary is counted from the first token of the request": (
                    "        length = track_lens[row] - prefix_lens[row]\n",
                    "        length = track_lens[row]\n",
                ),
            },
        },
        SGLANG,
        "tracking-plan/kept-states",
    ),
    *planted(
        {
            f"{_PREFILL}.mamba2_metadata": {
                "a sequence that begins inside of a chunk has no logical chunk": (
                    "            p += s % chunk_size > 0\n",
                    "            p += s % chunk_size > 1\n",
                ),
                "a logical chunk begins at the chunk's beginning": (
                    "            chunk_offsets[_s] = s % chunk_size\n",
                    "            chunk_offsets[_s] = 0\n",
                ),
            },
        },
        SGLANG,
        "tracking-plan/logical-chunks",
    ),
    *planted(
        {
            "sglang.srt.mem_cache.allocator.mamba": {
                "a slot stays free when it is given": (
                    "        self.free_slots = self.free_slots[need_size:]\n",
                    "        self.free_slots = self.free_slots[need_size - 1 :]\n",
                ),
                "the first slot is given, too": (
                    "            1, self.size + 1, dtype=torch.int64",
                    "            0, self.size, dtype=torch.int64",
                ),
                "slots of a group that are left are lost": (
                    "            if remaining:\n",
                    "            if False:\n",
                ),
                "slots are views of the free list, and those that come back are written over the ones before": (
                    "        self.free_slots = torch.cat((self.free_slots, free_index))\n",
                    "        back = free_index.clone()\n        whole = self.free_slots._base\n        whole = self.free_slots if whole is None else whole\n        first = len(whole) - len(self.free_slots) - len(back)\n        whole[first : first + len(back)] = back\n        self.free_slots = whole[first:]\n",
                ),
            },
        },
        SGLANG,
        "slot-allocator/owners",
    ),
)
SLICES_OF_NIXL = planted(
    {
        f"{_CONNECTORS}.ssm_conv_transfer_utils": {
            "each rank reads the first slice of a convolution's part": (
                "offsets.append((remote_base + local_rank_offset * size, size))",
                "offsets.append((remote_base, size))",
            ),
            "keys and values of GDN are taken for parts of one size": (
                "local_proj_dims = (key_dim_local, key_dim_local, value_dim_local)",
                "local_proj_dims = (value_dim_local, key_dim_local, key_dim_local)",
            ),
        },
        f"{_CONNECTORS}.nixl.base_worker": {
            "each rank reads the first heads of a temporal state": (
                "ssm_addr = base_addr + conv_size_remote + local_offset * ssm_read_size",
                "ssm_addr = base_addr + conv_size_remote",
            ),
            "states of several ranks are written to one place": (
                "                handle[ssm_split, 0] += p_idx * handle[ssm_split, 1]\n",
                "",
            ),
            "blocks of several kernel pages lie as close as pages": (
                "            block_stride = self.block_stride_per_layer[i] * physical_per_logical\n",
                "            block_stride = self.block_stride_per_layer[i]\n",
            ),
        },
    },
    VLLM,
    "state-transfer/nixl",
)
SLICES_OF_MORIIO = planted(
    {
        f"{_CONNECTORS}.moriio.moriio_layout": {
            "each rank gets the first slice of a state": (
                "        return local_slice * remote_bytes, 0, remote_bytes\n",
                "        return 0, 0, remote_bytes\n",
            ),
            "a part begins where that of the source does": (
                "        conv_parts.append((local_base + local_off, remote_base + remote_off, size))\n",
                "        conv_parts.append((local_base + local_off, local_base + remote_off, size))\n",
            ),
        },
    },
    VLLM,
    "state-transfer/moriio",
)
SLICES_OF_MORI = planted(
    {
        f"{_DISAGGREGATION}.mori.conn": {
            "MORI-IO writes all slices of a state to its beginning": (
                "                        dst_idx * dst_item_len + dst_offset,\n",
                "                        dst_idx * dst_item_len,\n",
            ),
            "MORI-IO writes a state to the slot that it is read from": (
                "                    (src_idx * src_item_len, dst_idx * src_item_len, src_item_len)\n",
                "                    (src_idx * src_item_len, src_idx * src_item_len, src_item_len)\n",
            ),
        },
    },
    SGLANG,
    "state-transfer/moriio",
)
OF_SGLANG = SLICES_OF_SGLANG + SLICES_OF_MORI + KERNELS_OF_SGLANG + METADATA_OF_SGLANG
OF_VLLM = SLICES_OF_NIXL + SLICES_OF_MORIIO


if __name__ == "__main__":
    chosen = OF_VLLM if find_spec("vllm") else OF_SGLANG
    print_table("tests.breakages.functions", __doc__, "module", trials_of(chosen), MAX_EXAMPLES)
