"""The slices of a convolution with two heads and two groups, from two ranks to one."""

from sglang.srt.configs.mamba_utils import Mamba2StateShape
from sglang.srt.disaggregation.utils import compute_mamba_state_slice_byte_blocks

SHARDS = [["x0", "B0", "C0"], ["x1", "B1", "C1"]]  # of 2 ranks of a prefill
SIZES = {
    "intermediate_size": 2,
    "n_groups": 2,
    "num_heads": 2,
    "head_dim": 1,
    "state_size": 1,
    "conv_kernel": 2,
}


def shape(ranks):  # as NemotronHConfig, FalconH1Config, GraniteMoeHybridConfig and Mamba2Config make it
    return Mamba2StateShape.create(tp_world_size=ranks, **SIZES)


def test_each_part_of_a_convolution_is_cut_on_its_own():
    source, target = shape(2), shape(1)
    (read_from, _), (write_to, _) = source.conv[0], target.conv[0]
    slot = [None] * write_to
    for rank, shard in enumerate(SHARDS):
        blocks = compute_mamba_state_slice_byte_blocks(
            src_item_len=read_from,
            dst_item_len=write_to,
            src_dim=read_from,
            dst_dim=write_to,
            outer_count=1,
            src_attn_tp_size=2,
            dst_attn_tp_size=1,
            dst_tp_rank_in_group=0,
            local_tp_rank_in_group=rank,
            conv_shard_groups=source.conv_shard_groups,
        )
        for read, written, size in blocks:
            slot[written : written + size] = shard[read : read + size]
    assert slot == ["x0", "x1", "B0", "B1", "C0", "C1"]
