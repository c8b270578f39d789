"""The oracle's metadata in the documented types of the builders' fields (contracts 1.11 and 1.12)."""

from __future__ import annotations

from typing import Any

from oracle.builders import base, batch, gdn
from oracle.chunks import CONV_BLOCK_M, ConvPrograms
from statecheck.case.values import Tensor, Value, boolean, int32, int64

_ONLY_ALL = (
    "num_computed_tokens_p",
    "block_idx_last_scheduled_token",
    "block_idx_first_scheduled_token_p",
    "block_idx_last_computed_token",
)
"""Fields of mode "all" alone."""


def mamba_fields(
    kind: str, metadata: base.BaseMetadata, config: batch.BuilderConfig, width: int
) -> dict[str, Value]:
    """The fields of a Mamba builder's metadata."""
    fields = _base_fields(metadata, config, width)
    if kind == "mamba2":
        fields |= {"seq_idx_p": _ints(metadata.seq_idx_p), "chunk_size": metadata.chunk_size}
        fields["prep_initial_states"] = metadata.prep_initial_states
    gone = () if config.profile.keeps_all_blocks else _ONLY_ALL
    return {name: value for name, value in fields.items() if name not in gone}


def _ints(values: Any) -> Value:
    return None if values is None else int32(values)


def _bools(values: tuple[bool, ...] | None) -> Value:
    return None if values is None else boolean(values)


def _rows(rows: Any, width: int) -> Value:
    if rows is None:
        return None
    flat = tuple(number for row in rows for number in row)
    return Tensor("int32", (len(rows), width), flat)


def _conv(programs: ConvPrograms | None) -> dict[str, Value]:
    if programs is None:
        return {"nums_dict": None, "batch_ptr": None, "token_chunk_offset_ptr": None}
    batch_ptr, offset_ptr = int32(programs.batch_ptr), int32(programs.token_chunk_offset_ptr)
    variant = {
        "nums": int32(programs.nums).on_host(),
        "tot": len(programs.mlist),
        "mlist": int64(programs.mlist).on_host(),
        "mlist_len": len(programs.mlist),
        "offsetlist": int32(programs.offsetlist).on_host(),
        "batch_ptr": batch_ptr,
        "token_chunk_offset_ptr": offset_ptr,
    }
    return {
        "nums_dict": {CONV_BLOCK_M: variant},
        "batch_ptr": batch_ptr,
        "token_chunk_offset_ptr": offset_ptr,
    }


def _base_fields(
    metadata: base.BaseMetadata, config: batch.BuilderConfig, table_width: int
) -> dict[str, Value]:
    own_width = _own_width(metadata, config, table_width)
    prefills = metadata.state_indices_tensor_p
    by_row = config.mode == "all"
    return {
        "num_prefills": metadata.num_prefills,
        "num_prefill_tokens": metadata.num_prefill_tokens,
        "num_decodes": metadata.num_decodes,
        "num_decode_tokens": metadata.num_decode_tokens,
        "num_reqs": metadata.num_reqs,
        "has_initial_states_p": _bools(metadata.has_initial_states_p),
        "query_start_loc_p": _ints(metadata.query_start_loc_p),
        "num_computed_tokens_p": _ints(metadata.num_computed_tokens_p),
        "state_indices_tensor_p": _rows(prefills, table_width) if by_row else _ints(prefills),
        "state_indices_tensor_d": _rows(metadata.state_indices_tensor_d, own_width),
        "query_start_loc_d": _ints(metadata.query_start_loc_d),
        "num_accepted_tokens": _ints(metadata.num_accepted_tokens),
        "block_idx_last_scheduled_token": _ints(metadata.block_idx_last_scheduled_token),
        "block_idx_first_scheduled_token_p": _ints(metadata.block_idx_first_scheduled_token_p),
        "block_idx_last_computed_token": _ints(metadata.block_idx_last_computed_token),
        "seq_lens": _ints(metadata.seq_lens),
        "cu_chunk_seqlen_p": _ints(metadata.cu_chunk_seqlen_p),
        "last_chunk_indices_p": _ints(metadata.last_chunk_indices_p),
        **_conv(metadata.conv),
    }


def _own_width(metadata: base.BaseMetadata, config: batch.BuilderConfig, table_width: int) -> int:
    """Columns of the decode rows: which a matrix without rows does not say by itself."""
    if config.mode != "all":
        return 1 + config.num_spec
    captured = base.kept_width(config)
    return captured if "state_indices_tensor_d" in metadata.owned else table_width


def gdn_fields(metadata: gdn.GDNMetadata, config: batch.BuilderConfig) -> dict[str, Value]:
    """The fields of the Gated DeltaNet builder's metadata."""
    indices = int64 if metadata.token_index_dtype == "int64" else int32
    tokens = {
        name: None if values is None else indices(values)
        for name, values in (
            ("spec_token_indx", metadata.spec_token_indx),
            ("non_spec_token_indx", metadata.non_spec_token_indx),
        )
    }
    return {
        "num_prefills": metadata.num_prefills,
        "num_prefill_tokens": metadata.num_prefill_tokens,
        "num_decodes": metadata.num_decodes,
        "num_decode_tokens": metadata.num_decode_tokens,
        "num_spec_decodes": metadata.num_spec_decodes,
        "num_spec_decode_tokens": metadata.num_spec_decode_tokens,
        "num_actual_tokens": metadata.num_actual_tokens,
        "has_initial_state": _bools(metadata.has_initial_state),
        "spec_query_start_loc": _ints(metadata.spec_query_start_loc),
        "non_spec_query_start_loc": _ints(metadata.non_spec_query_start_loc),
        "spec_state_indices_tensor": _rows(metadata.spec_state_indices_tensor, 1 + config.num_spec),
        "non_spec_state_indices_tensor": _ints(metadata.non_spec_state_indices_tensor),
        "spec_sequence_masks": _bools(metadata.spec_sequence_masks),
        "num_accepted_tokens": _ints(metadata.num_accepted_tokens),
        "chunk_indices": _rows(metadata.chunk_indices, 2),
        "chunk_offsets": None if metadata.chunk_offsets is None else int64(metadata.chunk_offsets),
        **tokens,
        **_conv(metadata.conv),
    }
