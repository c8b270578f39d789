"""The configuration of a small hybrid model for the release's engine, without a model on disk.

The classes are the release's own. Those that want a model directory, or a GPU, are made without their constructor and get
the attributes that an engine of this size reads.
"""

import functools
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from subjects.kit.objects import made_with, with_defaults
from subjects.vllm.engine.settings import (
    CHUNK,
    LiveSettings,
    layer_names,
    page_size,
    retention,
    states_of,
    types_of,
)
from subjects.vllm.release import find, optional

ATTRIBUTES = tomllib.loads(Path(__file__).with_name("attributes.toml").read_text(encoding="utf-8"))
"""Of what is made without a constructor."""
_MODEL = {
    **dict.fromkeys(ATTRIBUTES["model"]["false"], False),
    **dict.fromkeys(ATTRIBUTES["model"]["none"]),
    **ATTRIBUTES["model"]["values"],
    "dtype": torch.float32,
}
_BACKENDS = {
    "mamba1": "MAMBA1",
    "mamba2": "MAMBA2",
    "gdn": "GDN_ATTN",
    "kda": "GDN_ATTN",
    "short_conv": "SHORT_CONV",
}
BUILDERS = {
    "mamba1": "vllm.v1.attention.backends.mamba1_attn:Mamba1AttentionBackend",
    "mamba2": "vllm.v1.attention.backends.mamba2_attn:Mamba2AttentionBackend",
    "gdn": "vllm.v1.attention.backends.gdn_attn:GDNAttentionBackend",
    "kda": "vllm.v1.attention.backends.gdn_attn:GDNAttentionBackend",
    "short_conv": "vllm.v1.attention.backends.short_conv_attn:ShortConvAttentionBackend",
}


def model_config(settings: LiveSettings) -> Any:
    """As much of a ModelConfig as is read."""
    text = SimpleNamespace(
        model_type="toy", num_attention_heads=1, max_position_embeddings=settings.max_model_len
    )
    return SimpleNamespace(
        **_MODEL,
        max_model_len=settings.max_model_len,
        hf_config=text,
        hf_text_config=text,
        get_vocab_size=lambda: 1 << 30,
        get_mamba_chunk_size=lambda: CHUNK,
        get_sliding_window=lambda: None,
        get_hidden_size=lambda: 1,
        get_num_layers=lambda _: settings.layers * len(settings.groups),
        get_inputs_embeds_size=lambda: 1,
        get_num_attention_heads=lambda *_: 1,
        get_num_kv_heads=lambda *_: 1,
        get_total_num_kv_heads=lambda: 1,
        get_head_size=lambda: 8,
    )


def vllm_config(settings: LiveSettings) -> Any:
    """The release's VllmConfig of an engine with these settings."""
    Config = _config_of_runner(find("vllm.config:VllmConfig"), settings.runner)
    cache = find("vllm.config:CacheConfig")(
        block_size=settings.kv_block_size,
        enable_prefix_caching=settings.prefix_caching,
    )
    given = {
        "mamba_block_size": settings.mamba_block_size,
        "mamba_cache_mode": settings.mode,
        "num_gpu_blocks": settings.num_blocks,
        "prefix_match_unit": settings.prefix_match_unit or None,
        "prefix_cache_retention_interval": retention(settings),
        "enable_mamba_shared_prefix_checkpoint": settings.shared_prefix_checkpoint,
        "use_replayssm": settings.replayssm_buffer_len > 0,
        "replayssm_buffer_len": settings.replayssm_buffer_len,
    }
    for name, value in given.items():
        if hasattr(cache, name):
            object.__setattr__(cache, name, value)
    scheduler = find("vllm.config:SchedulerConfig")(
        max_model_len=settings.max_model_len,
        is_encoder_decoder=False,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        enable_chunked_prefill=True,
        async_scheduling=settings.async_scheduling,
        policy="priority" if settings.priorities else "fcfs",
    )
    made = with_defaults(
        Config,
        model_config=model_config(settings),
        cache_config=cache,
        scheduler_config=scheduler,
        device_config=find("vllm.config:DeviceConfig")(device="cpu"),
        speculative_config=speculative_config(settings),
        instance_id="statecheck",
        additional_config={},
    )
    made.parallel_config.pipeline_parallel_size = settings.stages
    graphs = find("vllm.config:CUDAGraphMode")
    full = settings.padding > 0
    compilation = made.compilation_config
    compilation.cudagraph_mode = graphs.FULL_DECODE_ONLY if full else graphs.NONE
    compilation.max_cudagraph_capture_size = 64 if full else None
    compilation.static_forward_context = {}
    return made


@functools.cache
def _config_of_runner(cls: Any, runner: str) -> Any:
    # The release's property reads a variable of the environment whenever it is asked: engines of two runners could not stand
    # side by side, and setting it would be a change of the process.
    return type(cls.__name__, (cls,), {"use_v2_model_runner": runner == "V2"})


def speculative_config(settings: LiveSettings) -> Any:
    """Drafts from somewhere; None where there are none."""
    if not settings.num_spec:
        return None
    draft = SimpleNamespace(hf_config=SimpleNamespace(model_type="toy"), architectures=["Toy"])
    return with_defaults(
        find("vllm.config:SpeculativeConfig"),
        method=settings.method,
        num_speculative_tokens=settings.num_spec,
        draft_model_config=draft,
    )


def kv_cache_config(settings: LiveSettings, dim_first: bool) -> Any:
    """A group of attention, one for each of the recurrent kinds, and one of sliding windows; layers at the same place of a group share memory."""
    interface = "vllm.v1.kv_cache_interface"
    Full, Mamba = find(f"{interface}:FullAttentionSpec"), find(f"{interface}:MambaSpec")
    Group, Whole = find(f"{interface}:KVCacheGroupSpec"), find(f"{interface}:KVCacheConfig")
    types = find("vllm.v1.attention.backends.registry:MambaAttentionBackendEnum")
    page = page_size(settings, dim_first)
    attention = {
        "block_size": settings.kv_block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "head_size_v": 1,
        "dtype": torch.float32,
        "page_size_padded": page,
    }
    groups = [Group(layer_names(settings, 0), made_with(Full, **attention))]
    if settings.method == "eagle" and settings.num_spec:
        # A draft's layers are of attention, and share the group of the model's.
        groups[0].is_eagle_group = True
    saves = settings.checkpoints and settings.prefix_caching and _saves_on_the_way()
    for number, kind in enumerate(settings.kinds):
        shapes, _ = states_of(settings, dim_first)
        if kind == "short_conv":
            shapes = shapes[:1]
        spec = made_with(
            Mamba,
            block_size=settings.mamba_block_size,
            shapes=shapes,
            dtypes=tuple(getattr(torch, dtype) for dtype in types_of(settings)[: len(shapes)]),
            page_size_padded=page,
            mamba_type=getattr(types, _BACKENDS[kind], kind),
            mamba_cache_mode=settings.mode,
            num_speculative_blocks=settings.num_spec,
            num_prefill_checkpoint_blocks=int(saves),
            prefill_checkpoint_alignment=1 if saves else None,
        )
        groups.append(Group(layer_names(settings, number + 1), spec))
    if settings.sliding_window:
        spec = made_with(
            find(f"{interface}:SlidingWindowSpec"), **attention, sliding_window=settings.sliding_window
        )
        groups.append(Group(layer_names(settings, len(groups)), spec))
    made = Whole(num_blocks=settings.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
    if hasattr(made, "prefix_cache_retention_interval"):
        made.prefix_cache_retention_interval = retention(settings)
    return made


def _saves_on_the_way() -> bool:
    """Whether the release's layers of Mamba-2 and GDN may save a state in the middle of a prefill."""
    return optional("vllm.v1.attention.backends.mamba2_attn:MambaPrefillCheckpointBuilder") is not None


def block_sizes(config: Any, caches: Any) -> tuple[int, int]:
    """Of the scheduler and of hashes, as the release resolves them."""
    return find("vllm.v1.core.kv_cache_utils:resolve_kv_cache_block_sizes")(caches, config)
