"""Builders of attention metadata, as the release has them, called as the release's runner calls them."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from subjects.vllm.functions import require_mode
from subjects.vllm.release import adapter_of, optional

__all__ = [
    "GDNAttentionMetadataBuilder",
    "Mamba1AttentionMetadataBuilder",
    "Mamba2AttentionMetadataBuilder",
]

NULL_BLOCK_ID = optional("vllm.v1.attention.backends.utils:NULL_BLOCK_ID")
ReleasedMamba1Builder: Any = (
    optional("vllm.v1.attention.backends.mamba1_attn:Mamba1AttentionMetadataBuilder") or object
)
ReleasedMamba2Builder: Any = (
    optional("vllm.v1.attention.backends.mamba2_attn:Mamba2AttentionMetadataBuilder") or object
)
ReleasedGDNBuilder: Any = (
    optional("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder") or object
)

_LATER_CACHE_CONFIG = {"use_replayssm": False, "replayssm_buffer_len": 0}
_LATER_CONFIG = {"additional_config": {}, "use_v2_model_runner": False, "num_hash_lookahead_tokens": 0}


def complete_config(config: Any) -> Any:
    """The configuration with what releases read besides, such as rings of replayed states."""
    require_mode(config.cache_config.mamba_cache_mode)
    cache = SimpleNamespace(**_LATER_CACHE_CONFIG, **vars(config.cache_config))
    speculative = config.speculative_config
    if speculative is not None:
        # Asked since 0.33 about a prefix cache's last block, which is EAGLE's.
        speculative = SimpleNamespace(**vars(speculative), use_eagle_block_drop=lambda: False)
    given = vars(config) | {"cache_config": cache, "speculative_config": speculative}
    return SimpleNamespace(**(_LATER_CONFIG | given))


def as_runners_pad(metadata: Any) -> Any:
    """The metadata with null blocks in the table rows of padding, where runners put them."""
    table = padded_with_null(metadata.block_table_tensor, metadata.query_start_loc_cpu)
    return dataclasses.replace(metadata, block_table_tensor=table)


def padded_with_null(table: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """A block table whose last rows, those without tokens, hold the null block."""
    used = int((starts < starts[-1]).sum())
    if used >= len(table):
        return table
    padded = table.clone()
    padded[used:] = NULL_BLOCK_ID
    return padded


def as_runners_capture(metadata: Any) -> Any:
    """The metadata of a capture, with marks of prompts and lengths on the host as runners' dummy steps have them."""
    marks = torch.zeros(metadata.num_reqs, dtype=torch.bool)
    return dataclasses.replace(
        as_runners_pad(metadata), is_prefilling=marks, seq_lens_cpu_upper_bound=metadata.seq_lens.cpu()
    )


class RunnersMambaBuilder:
    """The common part of Mamba-1's and Mamba-2's builders."""

    use_spec_decode: bool

    def __init__(self, kv_cache_spec: Any, layer_names: Any, vllm_config: Any, device: Any) -> None:
        super().__init__(kv_cache_spec, layer_names, complete_config(vllm_config), device)  # type: ignore[call-arg]

    def build(self, common_prefix_len: int, common_attn_metadata: Any, *rest: Any, **options: Any) -> Any:
        """The release's metadata; accepted counts that belong to no decode are left out."""
        given = as_runners_pad(common_attn_metadata)
        built = super().build(common_prefix_len, given, *rest, **options)  # type: ignore[misc]
        counts = built.num_accepted_tokens if built.num_decodes and self.use_spec_decode else None
        return dataclasses.replace(built, num_accepted_tokens=counts)

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        """The release's, for a dummy step as its runner makes it."""
        return super().build_for_cudagraph_capture(as_runners_capture(common_attn_metadata))  # type: ignore[misc]

    def update_block_table(self, metadata: Any, blk_table: Any, slot_mapping: Any) -> Any:
        """The release's, for a table as its runner pads it."""
        padded = blk_table.clone()
        padded[metadata.seq_lens.cpu() == 0] = NULL_BLOCK_ID
        return super().update_block_table(metadata, padded, slot_mapping)  # type: ignore[misc]


class _NotOffered:
    """A method that a builder inherits from a base class, where it raises NotImplementedError."""

    def __get__(self, _: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__} offers no such method")


@adapter_of(ReleasedMamba1Builder)
class Mamba1AttentionMetadataBuilder(RunnersMambaBuilder, ReleasedMamba1Builder):
    """Mamba-1's builder of the release."""


@adapter_of(ReleasedMamba2Builder)
class Mamba2AttentionMetadataBuilder(RunnersMambaBuilder, ReleasedMamba2Builder):
    """Mamba-2's builder of the release."""


_GDN_LAYER = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"


@contextmanager
def triton_prefills() -> Iterator[None]:
    """GDN's builder asks the layer which prefill kernels are in use; let it be Triton's, as on a CPU.

    The layer's module, which imports whole models and what these need, is not loaded for that.
    """
    layer = ModuleType(_GDN_LAYER)
    vars(layer)["_resolve_gdn_prefill_backend"] = lambda config: ("triton", "triton")
    loaded = sys.modules.get(_GDN_LAYER)
    sys.modules[_GDN_LAYER] = layer
    try:
        yield
    finally:
        if loaded is None:
            del sys.modules[_GDN_LAYER]
        else:
            sys.modules[_GDN_LAYER] = loaded


def without_prefill_blocks(built: Any) -> Any:
    """The metadata without the blocks of prefills, which the release repeats in a field that no document has."""
    return dataclasses.replace(built, prefill_state_indices=None)


@adapter_of(ReleasedGDNBuilder)
class GDNAttentionMetadataBuilder(ReleasedGDNBuilder):
    """GDN's builder of the release, with Triton's prefill kernels in mind."""

    def __init__(self, kv_cache_spec: Any, layer_names: Any, vllm_config: Any, device: Any) -> None:
        with triton_prefills():
            super().__init__(kv_cache_spec, layer_names, complete_config(vllm_config), device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, *rest: Any, **options: Any) -> Any:
        """The release's, without the blocks of prefills."""
        given = as_runners_pad(common_attn_metadata)
        built = without_prefill_blocks(super().build(common_prefix_len, given, *rest, **options))
        built.batch_of_runner = given
        return built

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        """The release's, for a dummy step as its runner makes it."""
        return super().build_for_cudagraph_capture(as_runners_capture(common_attn_metadata))

    update_block_table: Any = _NotOffered()
    if "update_block_table" in vars(ReleasedGDNBuilder):

        def update_block_table(self, metadata: Any, blk_table: Any, slot_mapping: Any) -> Any:
            """The release's, for a table as its runner pads it; the runner gathers the running blocks in mode align."""
            batch, mode = metadata.batch_of_runner, self.vllm_config.cache_config.mamba_cache_mode
            padded = padded_with_null(blk_table, batch.query_start_loc_cpu)
            gather = optional("vllm.v1.attention.backends.utils:mamba_get_block_table_tensor")
            self.mamba_aligned_state_indices = gather(padded, batch.seq_lens, self.kv_cache_spec, mode)
            return without_prefill_blocks(super().update_block_table(metadata, padded, slot_mapping))
