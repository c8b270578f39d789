"""Inputs on which shapes, batches and chunks deviate from the documents: see docs/deviations.md."""

from __future__ import annotations

from statecheck.case.values import (
    Call,
    Device,
    DType,
    Let,
    Name,
    Overwrite,
    Step,
    Tensor,
    boolean,
    call,
    int32,
    record,
)
from tests.docs.deviations import Row

_CALCULATOR = "MambaStateShapeCalculator"


def _shape(family: str, **arguments: int) -> tuple[Step, ...]:
    return (Call(f"{_CALCULATOR}.{family}", (), tuple(arguments.items())),)


def _split(lens: tuple[int, ...], prefilling: tuple[bool, ...], threshold: int, **options: object) -> Call:
    starts = int32([sum(lens[:row]) for row in range(len(lens) + 1)])
    batch = record(
        "CommonAttentionMetadata",
        query_start_loc=starts,
        query_start_loc_cpu=starts.on_host(),
        seq_lens=int32(lens),
        num_reqs=len(lens),
        num_actual_tokens=sum(lens),
        max_query_len=max(lens, default=0),
        max_seq_len=max(lens, default=0),
        block_table_tensor=Tensor("int32", (len(lens), 1), (1,) * len(lens)),
        slot_mapping=Tensor("int64", (0,), ()),
        is_prefilling=boolean(prefilling).on_host(),
    )
    keywords = {"decode_threshold": threshold, **options}
    return Call("split_decodes_and_prefills", (("common_attn_metadata", batch),), tuple(keywords.items()))


def _gather(seq_len: int, mode: str) -> Call:
    return call(
        "mamba_get_block_table_tensor",
        block_table=int32([[7]]).on_host(),
        seq_lens=int32([seq_len]).on_host(),
        kv_cache_spec=record("Spec", block_size=4, num_speculative_blocks=0),
        mamba_cache_mode=mode,
    )


def _copy(function: str, block_ids: list[int], accepted: int) -> Call:
    state = Tensor("float32", (3, 2, 1), None)
    return call(function, state=state, block_ids=block_ids, cur_block_idx=0, num_accepted_tokens=accepted)


def _fla(starts: list[int]) -> Call:
    return call("prepare_chunk_indices", cu_seqlens=int32(starts), chunk_size=1)


def _conv(starts: list[int]) -> Call:
    arguments = (("query_start_loc_p_cpu", int32(starts).on_host()),)
    return Call("compute_causal_conv1d_metadata", arguments, (("device", Device()),))


def _varlen(starts: list[int], chunk_size: int) -> Call:
    return call("compute_varlen_chunk_metadata", query_start_loc=int32(starts), chunk_size=chunk_size)


_LIVE = record(
    "CommonAttentionMetadata",
    query_start_loc=int32([0, 1]),
    query_start_loc_cpu=int32([0, 1]).on_host(),
    seq_lens=Name("seq_lens"),
    num_reqs=1,
    num_actual_tokens=1,
    max_query_len=1,
    max_seq_len=2,
    block_table_tensor=int32([[1]]),
    slot_mapping=Tensor("int64", (1,), (0,)),
)
_COMPUTED = call("CommonAttentionMetadata.compute_num_computed_tokens", self=Name("batch"))

ROWS: tuple[Row, ...] = (
    (
        "document 0, `compute_varlen_chunk_metadata`",
        (_varlen([0, 1], -1),),
    ),
    (
        "document 0, `compute_varlen_chunk_metadata`, its claim to mirror the builder",
        (_varlen([0, 3, 10], 4),),
    ),
    (
        "documents 0 and 2, every `assert` on an argument",
        (_varlen([1, 2], 4),),
    ),
    (
        "document 2, `linear_attention_state_shape`",
        _shape("linear_attention_state_shape", num_heads=3, tp_size=2, head_dim=1),
    ),
    (
        "document 2, `extra_groups_for_head_shards`",
        (call(f"{_CALCULATOR}.extra_groups_for_head_shards", ngroups=3, tp_size=2),),
    ),
    (
        "document 2, `extra_groups_for_head_shards`",
        (call(f"{_CALCULATOR}.extra_groups_for_head_shards", ngroups=2, tp_size=3),),
    ),
    (
        "document 2, `gated_delta_net_state_shape`",
        _shape(
            "gated_delta_net_state_shape",
            tp_world_size=2,
            num_k_heads=1,
            num_v_heads=2,
            head_k_dim=1,
            head_v_dim=1,
            conv_kernel_size=2,
        ),
    ),
    (
        "document 2, `kda_state_shape`, `num_k_heads`",
        _shape("kda_state_shape", tp_world_size=2, num_heads=2, head_dim=1, num_k_heads=1, head_k_dim=2),
    ),
    (
        "document 2, `kda_state_shape`, `num_spec`",
        _shape("kda_state_shape", tp_world_size=1, num_heads=1, head_dim=1, conv_kernel_size=2, num_spec=1),
    ),
    (
        "document 2, `short_conv_state_shape`",
        _shape("short_conv_state_shape", tp_world_size=1, intermediate_size=1, conv_kernel=2, num_spec=1),
    ),
    (
        "document 2, `get_conv_copy_spec`",
        (_copy("get_conv_copy_spec", [1, 2], 0),),
    ),
    (
        "document 2, `get_temporal_copy_spec`",
        (_copy("get_temporal_copy_spec", [1, 2], 0),),
    ),
    (
        "document 2, both copy specifications",
        (_copy("get_temporal_copy_spec", [0], 1),),
    ),
    (
        "document 2, `get_conv_state_layout`",
        (call("get_conv_state_layout", environment={"VLLM_SSM_CONV_STATE_LAYOUT": "NHD"}),),
    ),
    (
        "contract 1.2, `split_decodes_and_prefills`",
        (_split((1, 1), (False, True), 1, require_uniform=True, treat_short_extends_as_decodes=False),),
    ),
    (
        "contract 1.2, `split_decodes_and_prefills`, releases that dropped that shortcut",
        (_split((1, 0), (False, False), 1, require_uniform=True, treat_short_extends_as_decodes=False),),
    ),
    (
        "contract 1.2, `split_decodes_and_prefills`",
        (_split((), (), 1, treat_short_extends_as_decodes=False),),
    ),
    (
        "contract 1.3, `compute_causal_conv1d_metadata`",
        (_conv([1, 0]),),
    ),
    (
        "contract 1.4, `mamba_get_block_table_tensor`",
        (_gather(1, "aligned"),),
    ),
    (
        "contract 1.4, `mamba_get_block_table_tensor`",
        (_gather(5, "align"),),
    ),
    (
        "contract 1.6, `compute_num_computed_tokens`",
        (
            Let("seq_lens", int32([1])),
            Let("batch", _LIVE),
            _COMPUTED,
            Overwrite("seq_lens", (2,)),
            _COMPUTED,
        ),
    ),
    (
        "contract 1.9, `prepare_chunk_indices`",
        (_fla([0, 0, 1]),),
    ),
    (
        "contract 1.9, `prepare_chunk_indices`",
        (_fla([0]),),
    ),
    (
        "contract 1.9, both chunk helpers",
        (
            Let("starts", int32([0, 1])),
            call("prepare_chunk_indices", cu_seqlens=Name("starts"), chunk_size=1),
            Overwrite("starts", (0, 2)),
            call("prepare_chunk_indices", cu_seqlens=Name("starts"), chunk_size=1),
        ),
    ),
    (
        "contract 1.7, `MambaSpec`",
        (
            call(
                "MambaSpec.page_size_bytes.fget",
                self=record(
                    "MambaSpec", block_size=1, shapes=((1,),), dtypes=(DType("float32"),), page_size_padded=3
                ),
            ),
        ),
    ),
)
