"""The protocol of plain functions: what each is called with, and which documented symbols it answers for."""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 2
_CONTEXT = "MambaSpecDecodeGPUContext"
FAMILIES = ("linear_attention", "mamba1", "mamba2", "short_conv", "gated_delta_net", "kda")


TAKE_STARTS = ("varlen_chunks", "conv_tiles", "chunk_indices", "chunk_offsets")
"""Functions that are handed cumulative starts, as a list or, if a port asks for it, as a tensor."""


@dataclass(frozen=True)
class Plain:
    """A function of the protocol; the documented symbols that it answers for may need other functions too."""

    name: str
    arguments: tuple[str, ...]
    answers_for: tuple[str, ...]

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


_SIGNATURES = {
    "varlen_chunks(query_start_loc, chunk_size)": "compute_varlen_chunk_metadata",
    "conv_tiles(query_start_loc)": "compute_causal_conv1d_metadata",
    "chunk_indices(cu_seqlens, chunk_size)": "prepare_chunk_indices",
    "chunk_offsets(cu_seqlens, chunk_size)": "prepare_chunk_offsets",
    "split_batch(query_start_loc, num_tokens, decode_threshold, require_uniform, short_extends_are_decodes, is_prefilling)": "split_decodes_and_prefills",
    "query_lens(query_start_loc)": "CommonAttentionMetadata.naive_query_lens",
    "num_computed_tokens(query_start_loc, seq_lens)": "CommonAttentionMetadata.compute_num_computed_tokens",
    "gather_block_table(block_table, seq_lens, block_size, num_spec)": "mamba_get_block_table_tensor",
    "state_shapes(family, sizes, tp_size, num_spec, layout)": " ".join(
        f"MambaStateShapeCalculator.{family}_state_shape" for family in FAMILIES
    ),
    "page_size(shapes, itemsizes, padded)": "MambaSpec.page_size_bytes.fget",
    "conv_copy(shape, block_stride, block_ids, column, num_accepted_tokens, layout)": "get_conv_copy_spec",
    "temporal_copy(shape, block_stride, block_ids, column, num_accepted_tokens)": "get_temporal_copy_spec",
    "list_copies(states, block_ids, src_column, dst_column, bias, layout)": "collect_mamba_copy_meta",
    "copy_runs(src_ptrs, dst_ptrs, sizes)": "do_mamba_copy_block batch_memcpy",
    "preprocess_by_slot(idx_mapping, columns, num_computed_tokens, query_start_loc, num_accepted_tokens, src_columns, biases, block_size)": "preprocess_mamba_align_fused_kernel",
    "precopy_states(states, block_tables, idx_mapping, columns, src_columns, biases, layout)": f"{_CONTEXT}.run_fused_precopy",
    "postprocess_by_slot(states, block_tables, idx_mapping, num_accepted_tokens, columns, num_computed_tokens, block_size, layout)": f"{_CONTEXT}.run_fused_postprocess_align",
    "postprocess_by_row(states, block_tables, num_accepted_tokens, columns, num_scheduled_tokens, num_computed_tokens, num_draft_tokens, num_accepted_tokens_out, block_size, layout)": f"{_CONTEXT}.run_fused_postprocess postprocess_mamba_align_gpu",
    "preprocess_by_row(states, block_tables, columns, num_computed_tokens, num_scheduled_tokens, num_accepted_tokens, block_size, layout)": "preprocess_mamba",
    "drop_columns(columns, finished, preempted, resumed)": "cleanup_mamba_state_idx preprocess_mamba",
}
"""Each function as PROTOCOL.md has it, and the documented symbols that it answers for."""


def _plain(signature: str, symbols: str) -> Plain:
    name, _, arguments = signature.removesuffix(")").partition("(")
    return Plain(name, tuple(arguments.split(", ")), tuple(symbols.split()))


FUNCTIONS = tuple(_plain(*row) for row in _SIGNATURES.items())

_KERNELS = (
    "conv_update(x, weight, bias, activation, states, slots, query_start_loc, num_accepted)",
    "conv_prefill(x, weight, bias, activation, states, slots, query_start_loc, has_state)",
    "ssm_update(x, dt, A, B, C, D, z, dt_bias, dt_softplus, states, slots, query_start_loc, num_accepted)",
    "ssd_prefill(x, dt, A, B, C, D, z, dt_bias, dt_softplus, chunk_size, states, slots, query_start_loc, has_state)",
    "delta_recurrent(q, k, v, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted)",
    "delta_chunk(q, k, v, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state)",
    "gdn_recurrent(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted)",
    "gdn_chunk(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state)",
    "kda_recurrent(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted)",
    "kda_chunk(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state)",
    "linear_recurrent(q, k, v, g, scale, states, slots, query_start_loc, num_accepted)",
    "linear_chunk(q, k, v, g, scale, states, slots, query_start_loc, has_state)",
)
"""Each kernel of a recurrence as docs/recurrences.md has it."""
RECURRENCES = tuple(_plain(kernel, f"Recurrences.{kernel.partition('(')[0]}") for kernel in _KERNELS)

_ALLOCATOR = "TrackingPlan.allocate TrackingPlan.share TrackingPlan.admit"
_OF_ENGINES = {
    "new_slots(size)": _ALLOCATOR,
    "alloc_slots(allocator, count)": _ALLOCATOR,
    "free_slots(allocator, slots)": _ALLOCATOR,
    "count_free_slots(allocator)": "TrackingPlan.allocate",
    "share_slots(allocator, slots)": "TrackingPlan.share",
    "can_admit(allocator, count)": "TrackingPlan.admit",
    "clear_slots(states, slots)": "StateSlots.clear",
    "copy_slots(states, sources, targets)": "StateSlots.copy",
    "snapshot_points(num_tokens, block_size, interval)": "TrackingPlan.snapshot_points",
    "admit_tokens(num_computed, num_tokens, budget, block_size, interval)": "TrackingPlan.admit_tokens",
    "page_views(layers)": "StateSlots.copy_pages",
    "pair_blocks(source, target, num_computed, block_size)": "TrackingPlan.pair_blocks",
}
"""Each decision of an engine as PROTOCOL.md has it, and the function of engines that it answers for."""
ENGINES = tuple(_plain(*row) for row in _OF_ENGINES.items())
EVERY = (*FUNCTIONS, *RECURRENCES, *ENGINES)

_WITH_A_CONTEXT = ("precopy_states", "postprocess_by_slot", "postprocess_by_row")
SUPPLIED = {
    f"{_CONTEXT}.create": _WITH_A_CONTEXT,
    f"{_CONTEXT}.initialize_from_forward_context": _WITH_A_CONTEXT,
    "MambaCopyBuffers.create": ("list_copies", "preprocess_by_row"),
    "MambaBuffers.create": ("preprocess_by_row", "postprocess_by_row"),
    "stage_postprocess_inputs_to_gpu": ("postprocess_by_row",),
}
"""Documented symbols that only hold what plain functions take: the adapter's own, where one of these functions needs them."""

NEEDS = {
    symbol: tuple(plain.name for plain in EVERY if symbol in plain.answers_for)
    for symbol in dict.fromkeys(symbol for plain in EVERY for symbol in plain.answers_for)
}
"""The functions behind each documented symbol, all of which it needs."""
