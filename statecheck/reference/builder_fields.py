"""The oracle's metadata in the documented types of the builders' fields (contracts 1.11 and 1.12)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
_ONLY_MAMBA2 = ("seq_idx_p", "chunk_size", "prep_initial_states")
_MASKS = ("has_initial_states_p", "has_initial_state", "spec_sequence_masks")
_NO_FIELDS = ("owned", "token_index_dtype")
"""What the rules say about fields."""


def mamba_fields(
    kind: str, metadata: base.BaseMetadata, config: batch.BuilderConfig, width: int
) -> dict[str, Value]:
    """The fields of a Mamba builder's metadata."""
    widths = {"state_indices_tensor_d": _own_width(metadata, config, width)}
    if config.mode == "all":
        widths["state_indices_tensor_p"] = width
    gone = () if config.profile.keeps_all_blocks else _ONLY_ALL
    return _fields(metadata, widths, without=gone if kind == "mamba2" else (*gone, *_ONLY_MAMBA2))


def _own_width(metadata: base.BaseMetadata, config: batch.BuilderConfig, table_width: int) -> int:
    """Columns of the decode rows: which a matrix without rows does not say by itself."""
    if config.mode != "all":
        return 1 + config.num_spec
    captured = base.kept_width(config)
    return captured if "state_indices_tensor_d" in metadata.owned else table_width


def gdn_fields(metadata: gdn.GDNMetadata, config: batch.BuilderConfig) -> dict[str, Value]:
    """The fields of the Gated DeltaNet builder's metadata."""
    widths = {"spec_state_indices_tensor": 1 + config.num_spec, "chunk_indices": 2}
    positions = ("spec_token_indx", "non_spec_token_indx") if metadata.token_index_dtype == "int64" else ()
    return _fields(metadata, widths, int64s=("chunk_offsets", *positions))


def _fields(
    metadata: base.BaseMetadata | gdn.GDNMetadata,
    widths: Mapping[str, int],
    *,
    int64s: Collection[str] = (),
    without: Collection[str] = (),
) -> dict[str, Value]:
    """The fields in their order.

    Args:
        widths: columns of the fields that are matrices, of int32.
        int64s: fields that are vectors of int64; others are of int32.
    """
    fields: dict[str, Value] = {}
    for name, value in vars(metadata).items():
        if name == "conv":
            fields |= _conv(value)
        elif name in widths and value is not None:
            flat = tuple(number for row in value for number in row)
            fields[name] = Tensor("int32", (len(value), widths[name]), flat)
        elif isinstance(value, tuple):
            made: Any = boolean if name in _MASKS else int64 if name in int64s else int32
            fields[name] = made(value)
        elif name not in _NO_FIELDS:
            fields[name] = value
    return {name: value for name, value in fields.items() if name not in without}


def _conv(programs: ConvPrograms | None) -> dict[str, Value]:
    if programs is None:
        return {"nums_dict": None, "batch_ptr": None, "token_chunk_offset_ptr": None}
    variant = conv_variant(programs, "int32")
    return {"nums_dict": {CONV_BLOCK_M: variant}} | {name: variant[name] for name in CONV_VECTORS}


CONV_VECTORS = ("batch_ptr", "token_chunk_offset_ptr")
"""Vectors that stand beside the dictionary of variants, too."""


def conv_variant(programs: ConvPrograms, dtype: str) -> dict[str, Value]:
    """The entries of the one variant; `dtype` is that of `nums`."""
    return {
        "nums": Tensor(dtype, (len(programs.nums),), tuple(programs.nums), on="host"),
        "tot": len(programs.mlist),
        "mlist": int64(programs.mlist).on_host(),
        "mlist_len": len(programs.mlist),
        "offsetlist": int32(programs.offsetlist).on_host(),
        "batch_ptr": int32(programs.batch_ptr),
        "token_chunk_offset_ptr": int32(programs.token_chunk_offset_ptr),
    }
