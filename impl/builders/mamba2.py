"""The builder of Mamba-2 metadata."""

from typing import Any

import numpy as np
import torch

from ..checks import Int64s, int_at_least
from .base import BaseMambaAttentionMetadataBuilder
from .metadata import Mamba2AttentionMetadata


class Mamba2AttentionMetadataBuilder(BaseMambaAttentionMetadataBuilder[Mamba2AttentionMetadata]):
    """Builds what Mamba-2 layers read: the base, and the prefills cut at multiples of the model's chunk size.

    Those count from each request's first token, so that chunks end where the stored states do. That needs
    the prefills' lengths on the host: `seq_lens_cpu_upper_bound` of the batch, or `seq_lens` if it is there.
    `vllm_config.model_config.get_mamba_chunk_size()` is read beside what the base reads.

    Raises ValueError naming `chunk_size` if it is None or < 1, and what the base does. Source: contract 1.10.
    """

    metadata_cls = Mamba2AttentionMetadata

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        chunk_size = vllm_config.model_config.get_mamba_chunk_size()
        self.chunk_size = int_at_least("chunk_size", chunk_size, 1, type(self).__name__)
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._chunk_size_p = self.chunk_size

    def _new_metadata(self, **fields: Any) -> Mamba2AttentionMetadata:
        return Mamba2AttentionMetadata(chunk_size=self.chunk_size, **fields)

    def _add_chunks(
        self, metadata: Mamba2AttentionMetadata, chunks: list[torch.Tensor], computed: Int64s
    ) -> None:
        super()._add_chunks(metadata, chunks, computed)
        metadata.seq_idx_p = chunks[2]
        metadata.prep_initial_states = bool(np.count_nonzero(computed > 0))
