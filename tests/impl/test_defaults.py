"""Arguments and fields that callers of the documents may leave out: their defaults are the documents'."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from subjects import load

IMPL = load("impl")
CALCULATOR = "MambaStateShapeCalculator"
THRESHOLD = "AttentionMetadataBuilder._init_reorder_batch_threshold"
BUILD = {"fast_build": False, "num_accepted_tokens": None}
OPTIONAL_FIELDS = (
    "has_initial_states_p",
    "query_start_loc_p",
    "num_computed_tokens_p",
    "query_start_loc_d",
    "num_accepted_tokens",
    "block_idx_last_scheduled_token",
    "block_idx_first_scheduled_token_p",
    "block_idx_last_computed_token",
    "cu_chunk_seqlen_p",
    "last_chunk_indices_p",
    "nums_dict",
    "batch_ptr",
    "token_chunk_offset_ptr",
)
"""What metadata have if a step has a use for it."""
DEFAULTS: dict[str, dict[str, Any]] = {
    **{f"{CALCULATOR}.{family}_state_shape": {"num_spec": 0} for family in ("mamba2", "short_conv")},
    f"{CALCULATOR}.gated_delta_net_state_shape": {"num_spec": 0},
    f"{CALCULATOR}.kda_state_shape": {
        "num_k_heads": None,
        "head_k_dim": None,
        "conv_kernel_size": 4,
        "num_spec": 0,
    },
    "BaseMambaAttentionMetadataBuilder.build": BUILD,
    "GDNAttentionMetadataBuilder.build": {**BUILD, "num_decode_draft_tokens_cpu": None},
    THRESHOLD: {
        "reorder_batch_threshold": 1,
        "supports_spec_as_decode": False,
        "supports_dcp_with_varlen": False,
    },
    "CpuGpuBuffer": {"with_numpy": True},
    "CpuGpuBuffer.copy_to_gpu": {"n": None},
    "CpuGpuBuffer.copy_to_cpu": {"n": None},
    "MambaCopyBuffers": {"offset": 0, "moves": None, "context": None},
    "split_decodes_and_prefills": {
        "decode_threshold": 1,
        "require_uniform": False,
        "treat_short_extends_as_decodes": True,
    },
    "mamba_get_block_table_tensor": {"max_seq_len": None},
    "CommonAttentionMetadata": {
        "causal": True,
        "is_prefilling": None,
        "seq_lens_cpu_upper_bound": None,
    },
    "Mamba2AttentionMetadata": {
        **dict.fromkeys(OPTIONAL_FIELDS),
        "prep_initial_states": False,
        "chunk_size": 0,
        "seq_idx_p": None,
    },
    "MambaSpec": {
        "page_size_padded": None,
        "mamba_type": "mamba2",
        "mamba_cache_mode": "none",
        "num_speculative_blocks": 0,
    },
    "KVCacheGroupSpec": {"is_eagle_group": False},
}
FIELDS: dict[str, dict[str, Any]] = {
    "AttentionMetadataBuilder": {"reorder_batch_threshold": None, "supports_update_block_table": False},
    "BaseMambaAttentionMetadataBuilder": {"reorder_batch_threshold": 1, "supports_update_block_table": True},
    "GDNAttentionMetadataBuilder": {"reorder_batch_threshold": 1, "supports_update_block_table": False},
}
"""What an engine asks of a builder's class before it makes a builder."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_may_be_left_out_has_the_default_of_the_documents(name: str) -> None:
    parameters = inspect.signature(IMPL.resolve(name)).parameters.values()
    found = {one.name: one.default for one in parameters if one.default is not one.empty}
    assert found == DEFAULTS[name]


@pytest.mark.parametrize("name", FIELDS)
def test_classes_of_builders_say_what_the_documents_do(name: str) -> None:
    kind = IMPL.resolve(name)
    assert {field: getattr(kind, field) for field in FIELDS[name]} == FIELDS[name]
