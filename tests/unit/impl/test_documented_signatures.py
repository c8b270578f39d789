"""Every documented symbol takes the documented arguments, by position and by keyword; what we add has a default and stands last."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest
import torch

from lab.docs.symbols import MANIFEST
from subjects import load

IMPL = load("impl")
CONTEXT = "MambaSpecDecodeGPUContext"
_BUILDER = "kv_cache_spec layer_names vllm_config device"
_STATES = (
    "state_base_addrs_ptr state_block_strides_ptr state_elem_sizes_ptr state_inner_sizes_ptr "
    "state_conv_widths_ptr state_group_indices_ptr state_dim_row_count_ptr state_dim_row_stride_ptr"
)
_METADATA = (
    "* num_prefills num_prefill_tokens num_decodes num_decode_tokens num_reqs has_initial_states_p=None "
    "query_start_loc_p=None num_computed_tokens_p=None state_indices_tensor_p state_indices_tensor_d "
    "query_start_loc_d=None num_accepted_tokens=None block_idx_last_scheduled_token=None "
    "block_idx_first_scheduled_token_p=None block_idx_last_computed_token=None seq_lens cu_chunk_seqlen_p=None "
    "last_chunk_indices_p=None nums_dict=None batch_ptr=None token_chunk_offset_ptr=None"
)
_COPY = "state block_ids cur_block_idx num_accepted_tokens"
DOCUMENTED = {
    # Document 0.
    "compute_varlen_chunk_metadata": "query_start_loc chunk_size",
    # Document 1. Metadata are made with keywords there, and contract 1.11 lists their fields without an order.
    "BaseMambaAttentionMetadataBuilder": _BUILDER,
    "BaseMambaAttentionMetadataBuilder.build": (
        "common_prefix_len common_attn_metadata fast_build=False * num_accepted_tokens=None ** "
    ),
    "BaseMambaAttentionMetadataBuilder._compute_common_metadata": (
        "common_attn_metadata * num_accepted_tokens=None"
    ),
    "BaseMambaAttentionMetadataBuilder._compute_prefix_caching_block_indices": (
        "common_attn_metadata mamba_block_size"
    ),
    "BaseMambaAttentionMetadataBuilder._update_metadata_for_cudagraph_capture": "metadata",
    "BaseMambaAttentionMetadataBuilder.build_for_cudagraph_capture": "common_attn_metadata",
    "BaseMambaAttentionMetadataBuilder.update_block_table": "metadata blk_table slot_mapping",
    "Mamba1AttentionMetadataBuilder": _BUILDER,
    "Mamba2AttentionMetadataBuilder": _BUILDER,
    "BaseMambaAttentionMetadata": _METADATA,
    "Mamba1AttentionMetadata": _METADATA,
    "Mamba2AttentionMetadata": f"{_METADATA} prep_initial_states=False chunk_size=0 seq_idx_p=None",
    # Document 2.
    "MambaStateShapeCalculator": "",
    "MambaStateShapeCalculator.linear_attention_state_shape": "num_heads tp_size head_dim",
    "MambaStateShapeCalculator._orient_conv_shape": "dim state_len",
    "MambaStateShapeCalculator.mamba1_state_shape": "tp_world_size intermediate_size state_size conv_kernel",
    "MambaStateShapeCalculator.mamba2_state_shape": (
        "tp_world_size intermediate_size n_groups num_heads head_dim state_size conv_kernel num_spec=0"
    ),
    "MambaStateShapeCalculator.short_conv_state_shape": "tp_world_size intermediate_size conv_kernel",
    "MambaStateShapeCalculator.extra_groups_for_head_shards": "ngroups tp_size",
    "MambaStateShapeCalculator.gated_delta_net_state_shape": (
        "tp_world_size num_k_heads num_v_heads head_k_dim head_v_dim conv_kernel_size num_spec=0"
    ),
    "MambaStateShapeCalculator.kda_state_shape": (
        "tp_world_size num_heads head_dim num_k_heads=None head_k_dim=None conv_kernel_size=4 num_spec=0"
    ),
    "MambaCopySpec": "start_addr num_elements",
    "get_conv_copy_spec": _COPY,
    "get_temporal_copy_spec": _COPY,
    "get_conv_state_layout": "",
    "is_conv_state_dim_first": "",
    # Document 3.
    "GDNAttentionMetadataBuilder": _BUILDER,
    "GDNAttentionMetadataBuilder.build": (
        "common_prefix_len common_attn_metadata num_accepted_tokens=None num_decode_draft_tokens_cpu=None "
        "fast_build=False"
    ),
    "GDNAttentionMetadataBuilder.build_for_cudagraph_capture": "common_attn_metadata",
    "GDNAttentionMetadata": (
        "num_prefills num_prefill_tokens num_decodes num_decode_tokens num_spec_decodes num_spec_decode_tokens "
        "num_actual_tokens has_initial_state=None spec_query_start_loc=None non_spec_query_start_loc=None "
        "spec_state_indices_tensor=None non_spec_state_indices_tensor=None spec_sequence_masks=None "
        "spec_token_indx=None non_spec_token_indx=None num_accepted_tokens=None chunk_indices=None "
        "chunk_offsets=None nums_dict=None batch_ptr=None token_chunk_offset_ptr=None"
    ),
    # Document 4.
    "MambaBuffers": "preprocess postprocess_align",
    "MambaBuffers.create": (
        "max_num_reqs kv_cache_config copy_funcs make_buffer device with_postprocess_align"
    ),
    CONTEXT: (
        "state_base_addrs state_block_strides state_elem_sizes state_inner_sizes state_conv_widths "
        "state_group_indices state_dim_row_count state_dim_row_stride block_size num_layers num_state_types "
        "mamba_group_ids num_groups num_accepted_tokens_out block_table_ptrs block_table_stride_req=0 "
        "mamba_state_idx_buf=None num_scheduled_tokens_buf=None num_computed_tokens_buf=None "
        "num_draft_tokens_buf=None is_initialized=False"
    ),
    f"{CONTEXT}.create": "max_num_reqs kv_cache_config num_state_types device make_buffer",
    f"{CONTEXT}.initialize_from_forward_context": (
        "kv_cache_config forward_context mamba_state_copy_funcs block_tables"
    ),
    f"{CONTEXT}.run_fused_postprocess": (
        "num_reqs num_accepted_tokens_gpu mamba_state_idx_gpu num_scheduled_tokens_gpu num_computed_tokens_gpu "
        "num_draft_tokens_gpu"
    ),
    f"{CONTEXT}.run_fused_precopy": "num_reqs state_idx_gpu src_col_gpu token_bias_gpu idx_mapping",
    f"{CONTEXT}.run_fused_postprocess_align": (
        "num_reqs num_accepted_tokens_gpu state_idx_gpu new_num_computed_tokens_gpu idx_mapping"
    ),
    "_copy_mamba_state_block": (
        "state_idx bt_row_idx src_col dst_col token_bias block_table_ptrs_ptr block_table_stride_req "
        f"{_STATES} COPY_BLOCK_SIZE CONV_STATE_DIM_FIRST"
    ),
    "cleanup_mamba_state_idx": "scheduler_output mamba_state_idx",
    "postprocess_mamba_align_gpu": (
        "* bufs num_reqs num_accepted_tokens_gpu num_accepted_tokens_cpu_tensor input_batch kv_cache_config "
        "forward_context mamba_state_copy_funcs"
    ),
    "postprocess_mamba_all": (
        "scheduler_output kv_cache_config input_batch requests mamba_state_idx num_spec_tokens num_reqs"
    ),
    "postprocess_mamba_fused_kernel": (
        "num_accepted_tokens_ptr mamba_state_idx_ptr num_scheduled_tokens_ptr num_computed_tokens_ptr "
        f"num_draft_tokens_ptr block_table_ptrs_ptr block_table_stride_req {_STATES} num_accepted_tokens_out_ptr "
        "idx_mapping_ptr num_reqs block_size COPY_BLOCK_SIZE CONV_STATE_DIM_FIRST HAS_IDX_MAPPING=False "
        "PRECOMPUTED_NEW_COMPUTED=False"
    ),
    "precopy_mamba_align_fused_kernel": (
        "mamba_state_idx_ptr src_col_ptr token_bias_ptr block_table_ptrs_ptr block_table_stride_req "
        f"{_STATES} idx_mapping_ptr num_reqs COPY_BLOCK_SIZE CONV_STATE_DIM_FIRST"
    ),
    "preprocess_mamba": (
        "scheduler_output kv_cache_config cache_config mamba_state_idx input_batch requests forward_context "
        "mamba_state_copy_funcs copy_bufs"
    ),
    "preprocess_mamba_align_fused_kernel": (
        "idx_mapping_ptr state_idx_ptr num_computed_tokens_ptr query_start_loc_ptr num_accepted_tokens_ptr "
        "src_col_ptr src_off_ptr num_reqs BLOCK_SIZE MAMBA_BLOCK_SIZE"
    ),
    "stage_mamba_state_idx_to_gpu": "mamba_state_idx req_ids num_reqs gpu_buf",
    "stage_postprocess_inputs_to_gpu": "ctx scheduler_output req_ids num_reqs requests mamba_state_idx",
    "stage_postprocess_metadata_to_gpu": (
        "scheduler_output req_ids num_reqs requests num_scheduled_tokens_buf num_computed_tokens_buf "
        "num_draft_tokens_buf"
    ),
    # What the documents call, by the contract.
    "AttentionMetadataBuilder": _BUILDER,
    "cdiv": "x y",
    "divide": "x y",
    "split_decodes_and_prefills": (
        "common_attn_metadata decode_threshold=1 require_uniform=False treat_short_extends_as_decodes=True"
    ),
    "compute_causal_conv1d_metadata": "query_start_loc_p_cpu * device",
    "mamba_get_block_table_tensor": "block_table seq_lens kv_cache_spec mamba_cache_mode",
    "CommonAttentionMetadata": (
        "query_start_loc query_start_loc_cpu seq_lens num_reqs num_actual_tokens max_query_len max_seq_len "
        "block_table_tensor slot_mapping"
    ),
    "CommonAttentionMetadata.compute_num_computed_tokens": "",
    "CommonAttentionMetadata.naive_query_lens": "",
    "MambaSpec": (
        "block_size shapes dtypes page_size_padded=None mamba_type='mamba2' mamba_cache_mode='none' "
        "num_speculative_blocks=0"
    ),
    "MambaSpec.max_memory_usage_bytes": "vllm_config",
    "KVCacheTensor": "size shared_by",
    "KVCacheGroupSpec": "layer_names kv_cache_spec is_eagle_group=False",
    "KVCacheConfig": "num_blocks kv_cache_tensors kv_cache_groups",
    "get_mamba_groups": "kv_cache_config",
    "CpuGpuBuffer": "*size dtype device pin_memory with_numpy=True",
    "CpuGpuBuffer.copy_to_gpu": "n=None",
    "CpuGpuBuffer.copy_to_cpu": "n=None",
    "MambaCopyBuffers": "src_ptrs dst_ptrs sizes mamba_group_ids mamba_spec offset=0",
    "MambaCopyBuffers.create": "max_num_reqs kv_cache_config copy_funcs make_buffer",
    "collect_mamba_copy_meta": (
        "bufs kv_cache_config copy_funcs group_ids src_col dst_col bias req_state forward_context"
    ),
    "do_mamba_copy_block": "bufs",
    "batch_memcpy": "src_ptrs dst_ptrs sizes",
    "batch_memcpy_kernel": "src_ptrs dst_ptrs sizes BLOCK_SIZE",
    "prepare_chunk_indices": "cu_seqlens chunk_size",
    "prepare_chunk_offsets": "cu_seqlens chunk_size",
}
"""By symbol its parameters: `name`, `name=default`, `*` before those that are passed by keyword alone, `*name`, and `**`."""
NOT_CALLED = {
    "AttentionCGSupport",
    "CONV_BLOCK_M",
    "CUDAGraphMode",
    "CausalConv1dNums",
    "ConvStateLayoutType",
    "FLA_CHUNK_SIZE",
    "MambaCacheMode",
    "MambaSpec.page_size_bytes",
    "MambaStateCopyFunc",
    "NULL_BLOCK_ID",
    "PAD_SLOT_ID",
}
"""Constants, types and the property, which take no arguments."""


def documented(name: str) -> Iterator[inspect.Parameter]:
    """The parameters of the table's row."""
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for word in DOCUMENTED[name].split():
        parameter, _, default = word.partition("=")
        if word == "**":
            yield inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
        elif word.startswith("*"):
            kind = inspect.Parameter.KEYWORD_ONLY
            if parameter != "*":
                yield inspect.Parameter(parameter[1:], inspect.Parameter.VAR_POSITIONAL)
        else:
            value = eval(default, {}) if default else inspect.Parameter.empty  # noqa: S307 - a literal above
            yield inspect.Parameter(parameter, kind, default=value)


@cache
def signature_of(name: str) -> inspect.Signature:
    """The signature of impl's symbol, without `self`; of a kernel, that of the function that is compiled."""
    if name == "_copy_mamba_state_block":
        found = importlib.import_module("impl.align.kernels.states")._copy_mamba_state_block
    else:
        found = IMPL.resolve(name)
    function: Callable[..., Any] = getattr(found, "fn", found)
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
    return inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in parameters])


def test_the_table_has_every_documented_symbol() -> None:
    symbols = {symbol.name for symbol in MANIFEST if symbol.document != "own"}
    assert symbols - set(DOCUMENTED) == NOT_CALLED
    assert set(DOCUMENTED) <= symbols


@pytest.mark.parametrize("name", DOCUMENTED)
def test_parameters_are_the_documented_ones_in_their_order_with_their_defaults(name: str) -> None:
    wanted = list(documented(name))
    known = {one.name for one in wanted}
    parameters = [one for one in signature_of(name).parameters.values() if one.name in known]
    assert parameters == wanted


@pytest.mark.parametrize("name", DOCUMENTED)
def test_parameters_that_we_add_have_defaults_and_stand_last(name: str) -> None:
    known = [one.name for one in documented(name)]
    added = [one for one in signature_of(name).parameters.values() if one.name not in known]
    assert [one.name for one in added if one.default is inspect.Parameter.empty] == []
    positional = [
        one.name
        for one in signature_of(name).parameters.values()
        if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    documented_ones = [one for one in positional if one in known]
    assert positional[: len(documented_ones)] == documented_ones


def fields_of_a_context(entries: int = 2) -> dict[str, Any]:
    """Document 4's required fields, for states that hold nothing."""
    int32, int64 = (partial(torch.zeros, entries, dtype=dtype) for dtype in (torch.int32, torch.int64))
    return {
        "state_base_addrs": int64(),
        "state_block_strides": int64(),
        "state_elem_sizes": int32(),
        "state_inner_sizes": int64(),
        "state_conv_widths": int32(),
        "state_group_indices": int32(),
        "state_dim_row_count": int32(),
        "state_dim_row_stride": int64(),
        "block_size": 4,
        "num_layers": 1,
        "num_state_types": entries,
        "mamba_group_ids": [0],
        "num_groups": 1,
        "num_accepted_tokens_out": int32(),
        "block_table_ptrs": torch.zeros(1, dtype=torch.int64),
    }


@pytest.mark.parametrize("by_position", [False, True])
def test_a_context_is_made_of_the_documented_fields_alone(by_position: bool) -> None:
    fields, make = fields_of_a_context(), IMPL.resolve(CONTEXT)
    context = make(*fields.values()) if by_position else make(**fields)
    assert all(getattr(context, name) is value for name, value in fields.items())
    assert context.counters.tolist() == [0, 0]
    assert context.tiles.shape == (0, 8)
    assert not context.is_initialized


@pytest.mark.parametrize("layout", ["SD", "DS"])
def test_a_context_of_filled_fields_copies_as_one_that_was_initialized(layout: str) -> None:
    """A conv state of three rows and a temporal state; block 1 goes to column 1, whose block is 2."""
    table = torch.tensor([[1, 2]], dtype=torch.int32)
    conv = torch.arange(3 * 6, dtype=torch.uint8).view(3, *((3, 2) if layout == "SD" else (2, 3)))
    temporal = torch.arange(3 * 5, dtype=torch.int32).view(3, 5)
    fields = fields_of_a_context() | {
        "state_base_addrs": torch.tensor([conv.data_ptr(), temporal.data_ptr()]),
        "state_block_strides": torch.tensor([6, 20]),
        "state_elem_sizes": torch.tensor([1, 4], dtype=torch.int32),
        "state_inner_sizes": torch.tensor([2 if layout == "SD" else 1, 5]),
        "state_conv_widths": torch.tensor([3, 0], dtype=torch.int32),
        "block_table_ptrs": torch.tensor([table.data_ptr()]),
        "block_table_stride_req": 2,
        "is_initialized": True,
    }
    if layout == "DS":
        fields["state_dim_row_count"] = torch.tensor([2, 0], dtype=torch.int32)
        fields["state_dim_row_stride"] = torch.tensor([3, 0])
    context = IMPL.resolve(CONTEXT)(**fields)
    one, zero = torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    context.run_fused_precopy(1, one, zero, zero, zero)
    assert torch.equal(conv[2], conv[1])
    assert torch.equal(temporal[2], temporal[1])
    if layout == "DS":
        shifted = conv[1, :, 1:].clone()
        table[0, 1] = 2
        context.run_fused_precopy(1, one, zero, one, zero)
        assert torch.equal(conv[2, :, :2], shifted)
