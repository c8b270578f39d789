"""The release's configuration of a small hybrid model, with a file that describes the model and no weights."""

import functools
import json
from typing import Any

from oracle.lifecycle.named_states import FIRST_SAMPLED
from statecheck.util.temporary import folder_of_process
from subjects.kit.ports import free_port, on_a_free_port
from subjects.sglang.engine.checkpoints import checkpoint_arguments
from subjects.sglang.engine.drafts import draft_arguments
from subjects.sglang.engine.host_tier import host_arguments
from subjects.sglang.engine.loop import session_arguments
from subjects.sglang.engine.releases import (
    allow_without_gpu,
    leave_process,
    make_scheduler,
    strategy_arguments,
)
from subjects.sglang.engine.settings import (
    CONV_WIDTH,
    INTERVAL,
    LAYERS,
    RECURRENT_LAYERS,
    VOCABULARY,
    RadixSettings,
)
from subjects.sglang.engine.storage import storage_arguments
from subjects.sglang.release import RELEASE, NotOffered, find

_OLDEST_WITH_PRIORITIES = (0, 5, 23)

_ANY = {
    "vocab_size": FIRST_SAMPLED + VOCABULARY + 64,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "dtype": "float32",
}
_GDN = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "full_attention_interval": INTERVAL,
    "head_dim": 8,
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 1,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": CONV_WIDTH,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": list(range(LAYERS)),
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "partial_rotary_factor": 0.25,
}
_MAMBA2 = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "model_type": "granitemoehybrid",
    "layer_types": ["mamba" if (layer + 1) % INTERVAL else "attention" for layer in range(LAYERS)],
    "mamba_d_conv": CONV_WIDTH,
    "mamba_d_state": 8,
    "mamba_d_head": 16,
    "mamba_n_heads": 2,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "shared_intermediate_size": 16,
}


@functools.cache
def model_folder(chunk: int, kind: str) -> str:
    """A folder with the description of the model, whose recurrent layers are of this kind and keep states every `chunk` tokens of a prefill."""
    folder = folder_of_process("statecheck-sglang-")
    described = {**_ANY, **{"gdn": _GDN, "mamba2": _MAMBA2}[kind], "mamba_chunk_size": chunk}
    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
    return str(folder)


def _priority_arguments(priorities: tuple[int, ...]) -> dict[str, Any]:
    """The arguments of an engine whose requests have these priorities.

    Raises:
        NotOffered: the adapter was not run with the release's priorities.
    """
    if not priorities:
        return {}
    if RELEASE < _OLDEST_WITH_PRIORITIES:
        raise NotOffered("priorities")
    # By default a priority has to be greater by 10.
    return {"enable_priority_scheduling": True, "priority_scheduling_preemption_threshold": 0}


def server_arguments(settings: RadixSettings) -> Any:
    """The release's ServerArgs of an engine with these settings."""
    model = model_folder(settings.mamba_chunk_size, settings.kind)
    arguments: dict[str, Any] = dict(
        model_path=model,
        load_format="dummy",
        device="cpu",
        dtype="float32",
        skip_tokenizer_init=True,
        attention_backend="torch_native",
        sampling_backend="pytorch",
        grammar_backend="none",
        disable_cuda_graph=True,
        log_level="error",
        watchdog_timeout=1_000_000,
        nccl_port=free_port(),
        context_length=settings.max_model_len,
        page_size=settings.page_size,
        max_total_tokens=settings.max_total_tokens,
        max_mamba_cache_size=settings.max_mamba_cache_size,
        max_running_requests=settings.max_running_requests,
        chunked_prefill_size=settings.chunked_prefill_size,
        disable_radix_cache=not settings.radix_cache,
        disable_overlap_schedule=not settings.overlap,
        enable_mixed_chunk=settings.mixed,
        **_priority_arguments(settings.priorities),
        **checkpoint_arguments(settings.checkpoints),
        **strategy_arguments(settings),
        **draft_arguments(settings, model),
        **host_arguments(settings.host_policy),
        **storage_arguments(settings.storage_policy),
        **session_arguments(settings.sessions),
    )
    return find("sglang.srt.server_args:ServerArgs")(**arguments)


_SIDE_STATES = {
    "short_conv_layer_ids": list(RECURRENT_LAYERS),
    "short_conv_state_shape": (2, 4),
    "ngram_context_len": 3,
    "ngram_eos_token_id": 0,
}
"""What the release hands to the pools of Qwen4-Exp, whose own layers are not run here."""


def _choose_side_states(settings: RadixSettings) -> None:
    """Let the release make pools with side states, or none.

    Raises:
        NotOffered: the release has no side states.
    """
    configurator = find("sglang.srt.mem_cache.kv_cache_configurator:KVCacheConfigurator")
    if hasattr(configurator, "_get_ple_req_pool_kwargs"):
        configurator._get_ple_req_pool_kwargs = lambda _: _SIDE_STATES if settings.side_states else {}
    elif settings.side_states:
        raise NotOffered("slots with side states")


def made_scheduler(settings: RadixSettings) -> Any:
    """The release's Scheduler, with its worker, pools and cache; the one that was made before cannot run any more."""

    def start() -> Any:
        leave_process()
        allow_without_gpu()
        _choose_side_states(settings)
        arguments = server_arguments(settings)
        return make_scheduler(arguments, find("sglang.srt.server_args:PortArgs").init_new(arguments))

    return on_a_free_port(start)
