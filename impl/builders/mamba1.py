"""The builder of Mamba-1 metadata."""

from typing import Any

import torch

from ..checks import refuse
from .base import BaseMambaAttentionMetadataBuilder
from .metadata import Mamba1AttentionMetadata


class Mamba1AttentionMetadataBuilder(BaseMambaAttentionMetadataBuilder[Mamba1AttentionMetadata]):
    """Builds what Mamba-1 layers read; they know no speculative tokens.

    In mode all the prefills are cut into chunks of one block, as in Mamba-2.

    Raises ValueError naming `num_speculative_tokens` unless it is 0, and what the base does.
    Source: contract 1.10.
    """

    metadata_cls = Mamba1AttentionMetadata

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        if vllm_config.num_speculative_tokens:
            refuse("num_speculative_tokens", vllm_config.num_speculative_tokens, "0", type(self).__name__)
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._chunk_size_p = kv_cache_spec.block_size if self._mode == "all" else None
