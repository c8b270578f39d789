"""Plain data and arithmetic, as the release has them."""

from types import SimpleNamespace
from typing import Any

from statecheck.subject.not_offered import NotOffered
from subjects.vllm.release import RELEASE, adapter_of, optional

__all__ = [
    "FLA_CHUNK_SIZE",
    "NULL_BLOCK_ID",
    "PAD_SLOT_ID",
    "AttentionCGSupport",
    "CUDAGraphMode",
    "KVCacheConfig",
    "KVCacheGroupSpec",
    "KVCacheTensor",
    "MambaSpec",
    "cdiv",
    "divide",
]

cdiv = optional("vllm.utils.math_utils:cdiv")
divide = optional("vllm.distributed.utils:divide")
PAD_SLOT_ID = optional("vllm.v1.attention.backends.utils:PAD_SLOT_ID")
NULL_BLOCK_ID = optional("vllm.v1.attention.backends.utils:NULL_BLOCK_ID")
FLA_CHUNK_SIZE = optional("vllm.third_party.flash_linear_attention.ops.utils:FLA_CHUNK_SIZE")
ReleasedMambaSpec: Any = optional("vllm.v1.kv_cache_interface:MambaSpec") or object
KVCacheTensor = optional("vllm.v1.kv_cache_interface:KVCacheTensor")
KVCacheGroupSpec = optional("vllm.v1.kv_cache_interface:KVCacheGroupSpec")
KVCacheConfig = optional("vllm.v1.kv_cache_interface:KVCacheConfig")
AttentionCGSupport = optional("vllm.v1.attention.backend:AttentionCGSupport")
CUDAGraphMode = optional("vllm.config.compilation:CUDAGraphMode")


def require_mode(mode: str) -> None:
    """Mode "all" is gone since 0.32.

    Raises:
        NotOffered: it is asked for there.
    """
    if mode == "all" and RELEASE >= (0, 32):
        raise NotOffered('mode "all" is gone since 0.32')


@adapter_of(ReleasedMambaSpec)
class MambaSpec(ReleasedMambaSpec):
    """The release's specification, whose budget asks the configuration for the mode that it has itself."""

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """The budget in the specification's own mode."""
        require_mode(self.mamba_cache_mode)
        cache = SimpleNamespace(mamba_cache_mode=self.mamba_cache_mode)
        return int(super().max_memory_usage_bytes(SimpleNamespace(**vars(vllm_config), cache_config=cache)))
