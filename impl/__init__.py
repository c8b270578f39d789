"""The production implementation: metadata builders, state layouts, and cache configuration."""

from .batch import CommonAttentionMetadata, mamba_get_block_table_tensor, split_decodes_and_prefills
from .chunks import (
    CONV_BLOCK_M,
    CausalConv1dNums,
    compute_causal_conv1d_metadata,
    compute_varlen_chunk_metadata,
    prepare_chunk_indices,
    prepare_chunk_offsets,
)
from .layout import (
    ConvStateLayoutType,
    MambaCopySpec,
    MambaStateCopyFunc,
    conv_state_layout,
    get_conv_copy_spec,
    get_conv_state_layout,
    get_temporal_copy_spec,
    is_conv_state_dim_first,
)
from .models import PUBLISHED_MODELS, PublishedModel
from .shapes import MambaStateShapeCalculator
from .types import (
    FLA_CHUNK_SIZE,
    NULL_BLOCK_ID,
    PAD_SLOT_ID,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MambaCacheMode,
    MambaSpec,
    cdiv,
    divide,
)

__all__ = [
    "CONV_BLOCK_M",
    "FLA_CHUNK_SIZE",
    "NULL_BLOCK_ID",
    "PAD_SLOT_ID",
    "PUBLISHED_MODELS",
    "CausalConv1dNums",
    "CommonAttentionMetadata",
    "ConvStateLayoutType",
    "KVCacheConfig",
    "KVCacheGroupSpec",
    "KVCacheTensor",
    "MambaCacheMode",
    "MambaCopySpec",
    "MambaSpec",
    "MambaStateCopyFunc",
    "MambaStateShapeCalculator",
    "PublishedModel",
    "cdiv",
    "compute_causal_conv1d_metadata",
    "compute_varlen_chunk_metadata",
    "conv_state_layout",
    "divide",
    "get_conv_copy_spec",
    "get_conv_state_layout",
    "get_temporal_copy_spec",
    "is_conv_state_dim_first",
    "mamba_get_block_table_tensor",
    "prepare_chunk_indices",
    "prepare_chunk_offsets",
    "split_decodes_and_prefills",
]
