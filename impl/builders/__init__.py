"""The builders: one step's batch in, what each kind of layer reads out."""

from .base import BaseMambaAttentionMetadataBuilder
from .common import AttentionMetadataBuilder
from .gdn import GDNAttentionMetadataBuilder
from .mamba1 import Mamba1AttentionMetadataBuilder
from .mamba2 import Mamba2AttentionMetadataBuilder
from .metadata import (
    BaseMambaAttentionMetadata,
    GDNAttentionMetadata,
    Mamba1AttentionMetadata,
    Mamba2AttentionMetadata,
)

__all__ = [
    "AttentionMetadataBuilder",
    "BaseMambaAttentionMetadata",
    "BaseMambaAttentionMetadataBuilder",
    "GDNAttentionMetadata",
    "GDNAttentionMetadataBuilder",
    "Mamba1AttentionMetadata",
    "Mamba1AttentionMetadataBuilder",
    "Mamba2AttentionMetadata",
    "Mamba2AttentionMetadataBuilder",
]
