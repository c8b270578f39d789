"""Tiny sizes for the fields of a model's configuration, by the names that libraries share."""

import re

VOCABULARY = 64
_HIDDEN = 32
# The first pattern that matches a whole name decides. Chunks are shorter than most prompts, so that several of them are computed.
_SIZES: tuple[tuple[str, int], ...] = (
    (r"(unpadded_)?vocab_size", VOCABULARY),
    (r"max_inference_chunksize", 32),
    (
        r"num_attention_heads|swa_num_attention_heads|num_query_groups|linear_num_heads|linear_num_value_heads",
        4,
    ),
    (r"num_heads|mamba_n_heads|n_mamba_heads|mamba_num_heads", 8),
    (r"(swa_)?num_key_value_heads|linear_num_key_heads|(index|indexer)_n_heads|heads_per_ngram", 2),
    (r"n_groups|mamba_n_?groups|o_groups|indexer_compress_ratio", 2),
    (r"chunk_size|mamba_chunk_size|block_size", 4),
    (r"mamba_dt_rank|time_step_rank|mamba_d_conv", 4),
    (r"conv_window", 2),
    (r".*(head_?dim|d_head|d_state|state_size|_rank|rank_dim|d_rel|_lowrank|size_per_head)", 8),
    (r"num_(local_)?experts|n_routed_experts", 4),
    (r"num_experts_per_tok(en)?", 2),
    (
        r"num_expert_group|n_group|topk_group|n_shared_experts|num_shared_experts|num_nextn_predict_layers|num_mem_blocks|indexer_kv_heads",
        1,
    ),
    (
        r"num_dense_layers|first_k_dense_replace|attn_layer_offset|loop_layer_index_start|n_layers_per_attn_res_block",
        1,
    ),
    (
        r"loop_layer_index_end|.*_period|layer_group_size|full_attention_interval|hc_sinkhorn_iters|mamba_step",
        2,
    ),
    (r"expert_layer_offset", 0),
    (r"attention_window_size|sliding_window(_size)?|rel_extent|index_topk|indexer_budget|.*multiple_of", 8),
    (r"max_position_embeddings|context_length|model_max_length", 512),
    (r"ngram_vocab_size_base|split_ngram_parts|make_ngram_vocab_size_divisible_by", 16),
)
# These grow together, where a configuration derives other sizes from them.
_WIDTHS: tuple[tuple[str, int], ...] = (
    (r"hidden_size|embedding_dim|lru_width|block_dim", _HIDDEN),
    (r"mamba_d_ssm", 2 * _HIDDEN),
    (
        r"(moe_|shared_|moe_shared_expert_|shared_expert_)?intermediate_size|ple_embed_dim|router_hidden_size",
        _HIDDEN,
    ),
)


class NotBuilt(Exception):
    """No configuration was found with which an architecture runs."""


def tiny(name: str, scale: int = 1) -> int | None:
    """The size of a field; None for a field that is no size.

    Args:
        scale: multiplies widths.
    """
    width = next((width for pattern, width in _WIDTHS if re.fullmatch(pattern, name)), None)
    if width is not None:
        return width * scale
    return next((size for pattern, size in _SIZES if re.fullmatch(pattern, name)), None)
