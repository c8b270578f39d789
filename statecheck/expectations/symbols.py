"""Every documented symbol, with its rule and the tests that exercise it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from statecheck.case.values import Call

_CHECKS = "tests/impl/test_symbols.py::test_"
_CONSTANT = (f"{_CHECKS}constants_are_those_of_the_oracle",)
_PLAIN_DATA = (f"{_CHECKS}plain_data_has_exactly_the_documented_fields_and_defaults",)
_ALIAS = (f"{_CHECKS}copy_functions_have_the_signature_that_their_alias_states",)
_BACK = (f"{_CHECKS}the_first_rows_of_a_buffer_come_back_to_the_host",)
_SWITCH = (f"{_CHECKS}a_layout_is_selected_for_the_length_of_a_with_block",)


@dataclass(frozen=True)
class Symbol:
    """A documented symbol and where its rooms are.

    Args:
        document: a document's number, the contract's section, or "own" for what neither of them has.
        name: as users look it up, dotted for methods.
        impl: the topic whose module defines it.
        oracle: topic and name of its rule, the topic alone where all of it is the rule, or "" for plain fields and
            aliases, which have no rule.
        exercised_by: for types and constants, which no property calls: the functions whose properties use them, and
            tests as `path::name`.
    """

    document: str
    name: str
    impl: str
    oracle: str
    exercised_by: tuple[str, ...] = ()

    @property
    def functions(self) -> set[str]:
        return {self.name, *(name for name in self.exercised_by if "::" not in name)}

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Path and name of each test."""
        split = (name.partition("::") for name in self.exercised_by if "::" in name)
        return [(path, test) for path, _, test in split]


_VARLEN, _CONV = "compute_varlen_chunk_metadata", "compute_causal_conv1d_metadata"
_SPLIT, _GATHER = "split_decodes_and_prefills", "mamba_get_block_table_tensor"
_COPIES = ("get_conv_copy_spec", "get_temporal_copy_spec")
_SHAPES = "MambaStateShapeCalculator"
_METADATA = "CommonAttentionMetadata"
_COMPUTED, _LENS = f"{_METADATA}.compute_num_computed_tokens", f"{_METADATA}.naive_query_lens"
_BYTES, _BUDGET = "MambaSpec.page_size_bytes", "MambaSpec.max_memory_usage_bytes"
_FAMILIES = tuple(
    f"{_SHAPES}.{family}_state_shape"
    for family in ("linear_attention", "mamba1", "mamba2", "short_conv", "gated_delta_net", "kda")
)
_REST_OF_SHAPES = (f"{_SHAPES}.extra_groups_for_head_shards", f"{_SHAPES}._orient_conv_shape")

_BASE, _BASE_METADATA = "BaseMambaAttentionMetadataBuilder", "BaseMambaAttentionMetadata"
_GDN = "GDNAttentionMetadataBuilder"
_MAMBA = ("Mamba1AttentionMetadataBuilder", "Mamba2AttentionMetadataBuilder")
_METADATA_RULE = "builders/base.BaseMetadata"
_ENUMS = (f"{_CHECKS}enumerations_have_the_documented_members",)
_THRESHOLD = (f"{_CHECKS}the_reorder_threshold_of_state_builders_is_that_of_contract_and_oracle",)
_BUILD, _CAPTURE, _UPDATE = "build", "build_for_cudagraph_capture", "update_block_table"
_RULE = "builders/base.base_metadata"


def _of_both(method: str) -> tuple[str, ...]:
    """Where the abstract base's method is exercised."""
    return tuple(f"{name}.{method}" for name in _MAMBA)


_BUILDER_SYMBOLS = (
    Symbol("1", _BASE, "builders/base", "builders/base", _of_both(_BUILD)),
    Symbol("1", f"{_BASE}.{_BUILD}", "builders/base", _RULE, _of_both(_BUILD)),
    Symbol("1", f"{_BASE}._compute_common_metadata", "builders/base", _RULE, _of_both(_BUILD)),
    Symbol("1", f"{_BASE}._compute_prefix_caching_block_indices", "builders/base", _RULE, _of_both(_BUILD)),
    Symbol("1", f"{_BASE}._update_metadata_for_cudagraph_capture", "builders/base", _RULE, _of_both(_BUILD)),
    Symbol("1", f"{_BASE}.{_CAPTURE}", "builders/base", _RULE, _of_both(_CAPTURE)),
    Symbol(
        "1", f"{_BASE}.{_UPDATE}", "builders/base", "builders/base.updated_block_table", _of_both(_UPDATE)
    ),
    Symbol("3", _GDN, "builders/gdn", "builders/gdn"),
    Symbol("3", f"{_GDN}.{_BUILD}", "builders/gdn", "builders/gdn.gdn_metadata"),
    Symbol("3", f"{_GDN}.{_CAPTURE}", "builders/gdn", "builders/gdn.gdn_metadata"),
    Symbol("contract 1.1", "AttentionCGSupport", "types", "", _ENUMS),
    Symbol("contract 1.1", "CUDAGraphMode", "types", "types.has_full_cudagraphs", _ENUMS),
    Symbol("contract 1.5", "AttentionMetadataBuilder", "builders/common", "builders/batch", _THRESHOLD),
    Symbol("contract 1.10", _MAMBA[0], "builders/mamba1", "builders/base"),
    Symbol(
        "contract 1.10", "Mamba1AttentionMetadata", "builders/metadata", _METADATA_RULE, _of_both(_BUILD)[:1]
    ),
    Symbol("contract 1.10", _MAMBA[1], "builders/mamba2", "builders/base"),
    Symbol(
        "contract 1.10", "Mamba2AttentionMetadata", "builders/metadata", _METADATA_RULE, _of_both(_BUILD)[1:]
    ),
    Symbol("contract 1.11", _BASE_METADATA, "builders/metadata", _METADATA_RULE, _of_both(_BUILD)),
    Symbol(
        "contract 1.12",
        "GDNAttentionMetadata",
        "builders/metadata",
        "builders/gdn.GDNMetadata",
        (f"{_GDN}.{_BUILD}",),
    ),
)

_CONTEXT = "MambaSpecDecodeGPUContext"
_CREATE, _INITIALIZE = f"{_CONTEXT}.create", f"{_CONTEXT}.initialize_from_forward_context"
_BY_ROW, _BY_SLOT = f"{_CONTEXT}.run_fused_postprocess", f"{_CONTEXT}.run_fused_postprocess_align"
_PRECOPY = f"{_CONTEXT}.run_fused_precopy"
_MEMCPY, _BUFFER = "batch_memcpy", "CpuGpuBuffer"
_STORED, _LISTED = "align/decisions.after_v1_steps", "align/pointers.memory_after"

_ALIGN_SYMBOLS = (
    Symbol("4", "MambaBuffers", "align/runner", "align/context", ("MambaBuffers.create",)),
    Symbol("4", "MambaBuffers.create", "align/runner", "align/context.require_context"),
    Symbol("4", _CONTEXT, "align/context", "align/context", (_CREATE, _INITIALIZE)),
    Symbol("4", _CREATE, "align/context", "align/context.require_context"),
    Symbol("4", _INITIALIZE, "align/context", "align/context.bound_states"),
    Symbol("4", _BY_ROW, "align/context", _STORED),
    Symbol("4", _PRECOPY, "align/context", "align/decisions.precopy_moves"),
    Symbol("4", _BY_SLOT, "align/context", "align/decisions.after_v2_steps"),
    Symbol(
        "4",
        "_copy_mamba_state_block",
        "align/kernels/states",
        "align/memory.state_copy",
        (_BY_ROW, _PRECOPY, _BY_SLOT),
    ),
    Symbol("4", "cleanup_mamba_state_idx", "align/moves", "align/runner.cleaned"),
    Symbol("4", "postprocess_mamba_align_gpu", "align/runner", _STORED),
    Symbol("4", "postprocess_mamba_all", "align/runner", "align/decisions.last_scheduled_columns"),
    Symbol(
        "4",
        "postprocess_mamba_fused_kernel",
        "align/kernels/postprocess",
        "align/decisions.after_step",
        (_BY_ROW, _BY_SLOT),
    ),
    Symbol(
        "4",
        "precopy_mamba_align_fused_kernel",
        "align/kernels/preprocess",
        "align/decisions.precopy_moves",
        (_PRECOPY,),
    ),
    Symbol("4", "preprocess_mamba", "align/runner", "align/runner.preprocess"),
    Symbol(
        "4", "preprocess_mamba_align_fused_kernel", "align/kernels/preprocess", "align/decisions.advanced"
    ),
    Symbol("4", "stage_mamba_state_idx_to_gpu", "align/staging", "align/runner.staged_columns"),
    Symbol("4", "stage_postprocess_inputs_to_gpu", "align/staging", "align/runner.staged"),
    Symbol("4", "stage_postprocess_metadata_to_gpu", "align/staging", "align/runner.staged_metadata"),
    Symbol("contract 1.7", "get_mamba_groups", "align/groups", "align/context.mamba_groups"),
    Symbol("contract 1.8", _BUFFER, "align/buffers", "align/buffers"),
    Symbol("contract 1.8", f"{_BUFFER}.copy_to_gpu", "align/buffers", "align/buffers.copied_elements"),
    Symbol("contract 1.8", f"{_BUFFER}.copy_to_cpu", "align/buffers", "align/buffers.copied_elements", _BACK),
    Symbol(
        "contract 1.8", "MambaCopyBuffers", "align/buffers", "align/context", ("MambaCopyBuffers.create",)
    ),
    Symbol("contract 1.8", "MambaCopyBuffers.create", "align/buffers", "align/context.copy_capacity"),
    Symbol("contract 1.8", "collect_mamba_copy_meta", "align/memcpy", "align/pointers.entries"),
    Symbol("contract 1.8", "do_mamba_copy_block", "align/memcpy", _LISTED),
    Symbol("contract 1.8", _MEMCPY, "align/memcpy", _LISTED),
    Symbol("contract 1.8", f"{_MEMCPY}_kernel", "align/kernels/memcpy", _LISTED, (_MEMCPY,)),
)

MANIFEST = (
    Symbol("0", _VARLEN, "chunks", "chunks.varlen_chunk_metadata"),
    Symbol("2", _SHAPES, "shapes", "shapes", _FAMILIES),
    *(Symbol("2", family, "shapes", f"shapes.{family.partition('.')[2]}") for family in _FAMILIES),
    Symbol("2", _REST_OF_SHAPES[0], "shapes", "shapes.extra_groups_for_head_shards"),
    Symbol("2", _REST_OF_SHAPES[1], "shapes", "shapes.orient_conv_shape"),
    Symbol("2", "MambaCopySpec", "layout", "layout.ByteRun", _COPIES),
    Symbol("2", "MambaStateCopyFunc", "layout", "", _ALIAS),
    Symbol("2", "get_conv_copy_spec", "layout", "layout.conv_copy_run"),
    Symbol("2", "get_temporal_copy_spec", "layout", "layout.temporal_copy_run"),
    Symbol("2", "ConvStateLayoutType", "layout", "layout.Layout", ("get_conv_state_layout",)),
    Symbol("2", "get_conv_state_layout", "layout", "layout.conv_state_layout"),
    Symbol("2", "is_conv_state_dim_first", "layout", "layout.conv_state_layout"),
    Symbol("own", "conv_state_layout", "layout", "layout.conv_state_layout", _SWITCH),
    *_BUILDER_SYMBOLS,
    *_ALIGN_SYMBOLS,
    Symbol("contract 1.1", "PAD_SLOT_ID", "types", "types.PAD_SLOT_ID", (_CONV, *_CONSTANT)),
    Symbol("contract 1.1", "NULL_BLOCK_ID", "types", "types.NULL_BLOCK_ID", (*_COPIES, *_CONSTANT)),
    Symbol("contract 1.1", "FLA_CHUNK_SIZE", "types", "chunks.FLA_CHUNK_SIZE", _CONSTANT),
    Symbol("contract 1.1", "cdiv", "types", "types.cdiv"),
    Symbol("contract 1.1", "divide", "types", "types.divide"),
    Symbol("contract 1.2", _SPLIT, "batch", "batch.split_decodes_and_prefills"),
    Symbol("contract 1.3", "CONV_BLOCK_M", "chunks", "chunks.CONV_BLOCK_M", (_CONV, *_CONSTANT)),
    Symbol("contract 1.3", "CausalConv1dNums", "chunks", "chunks.ConvPrograms", (_CONV,)),
    Symbol("contract 1.3", _CONV, "chunks", "chunks.causal_conv1d_metadata"),
    Symbol("contract 1.4", _GATHER, "batch", "batch.block_table_rows"),
    Symbol("contract 1.6", _METADATA, "batch", "batch", (_SPLIT, _COMPUTED, _LENS)),
    Symbol("contract 1.6", _COMPUTED, "batch", "batch.num_computed_tokens"),
    Symbol("contract 1.6", _LENS, "batch", "batch.query_lens"),
    Symbol("contract 1.7", "MambaCacheMode", "types", "types.pages_per_request", (_GATHER, _BUDGET)),
    Symbol("contract 1.7", "MambaSpec", "types", "types", (_BYTES, _BUDGET)),
    Symbol("contract 1.7", _BYTES, "types", "types.page_size_bytes"),
    Symbol("contract 1.7", _BUDGET, "types", "types.pages_per_request"),
    Symbol("contract 1.7", "KVCacheTensor", "types", "", _PLAIN_DATA),
    Symbol("contract 1.7", "KVCacheGroupSpec", "types", "", _PLAIN_DATA),
    Symbol("contract 1.7", "KVCacheConfig", "types", "", _PLAIN_DATA),
    Symbol("contract 1.9", "prepare_chunk_indices", "chunks", "chunks.chunk_indices"),
    Symbol("contract 1.9", "prepare_chunk_offsets", "chunks", "chunks.chunk_offsets"),
)
OF_RELEASES = {
    f"{_GDN}.{_UPDATE}": "builders/gdn.updated_gdn_metadata",
    "StateSlots.clear": "slots.cleared_slots",
    "StateSlots.copy": "slots.copied_slots",
    "StateSlots.last_accepted": "slots.last_accepted",
    "StateSlots.of_rows": "slots.slots_of_rows",
    "StateSlots.scatter": "slots.accepted_states",
    "StateSlots.track": "slots.tracked_slots",
    "TrackingPlan.allocate": "",
    "TrackingPlan.kept_states": "tracking.kept_states",
    "TrackingPlan.logical_chunks": "tracking.logical_chunks",
    **{f"StateTransfer.{name}": "shards.sent_states" for name in ("mooncake", "moriio", "nixl")},
}
"""Rules of functions that releases have, and neither a document nor `impl`; "" where a law alone decides."""
_RULES = {
    name: f"oracle.{rule}".replace("/", ".")
    for name, rule in (OF_RELEASES | {symbol.name: symbol.oracle for symbol in MANIFEST}).items()
    if rule
}


def require_rule(call: Call, rule: Callable[..., object]) -> None:
    """Refuse a rule that is not the one behind the call's answer.

    Raises:
        ValueError: the oracle has another rule for the function, or none.
    """
    function = call.function.removesuffix(".fget")
    if function == "harness.launch":
        function = str(call.named["kernel"])
    asked = _RULES.get(re.sub("^Mamba[12]Attention", "BaseMambaAttention", function), "")
    named = f"{rule.__module__}.{rule.__qualname__}"
    if named != asked:
        raise ValueError(f"rule = {named}, but should be {asked or 'none'} [{function}]")
