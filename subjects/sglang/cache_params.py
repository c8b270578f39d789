"""State shapes of models, from the release's own configuration classes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from subjects.sglang.release import NotOffered, find

_CONFIGS = "sglang.srt.configs"
LAYERS = [0, 1]
Sizes = Mapping[str, int]


def _mamba2(names: str) -> Callable[[Sizes], dict[str, Any]]:
    """The attributes of a configuration, named in the order groups, heads, head's channels, state size, kernel, channels."""

    def attributes(sizes: Sizes) -> dict[str, Any]:
        given = [sizes[name] for name in ("n_groups", "num_heads", "head_dim", "state_size", "conv_kernel")]
        return dict(zip(names.split(), (*given, sizes["num_heads"] * sizes["head_dim"]), strict=False))

    return attributes


def _gated(sizes: Sizes) -> dict[str, Any]:
    return {
        "linear_num_key_heads": sizes["num_k_heads"],
        "linear_num_value_heads": sizes["num_v_heads"],
        "linear_key_head_dim": sizes["head_k_dim"],
        "linear_value_head_dim": sizes["head_v_dim"],
        "linear_conv_kernel_dim": sizes["conv_kernel"],
    }


def _kimi(sizes: Sizes) -> dict[str, Any]:
    heads = {name: sizes[name] for name in ("num_heads", "head_dim")}
    return {"linear_attn_config": {**heads, "short_conv_kernel_size": sizes["conv_kernel"]}}


def _zaya(sizes: Sizes) -> dict[str, Any]:
    return {
        "num_attention_heads": sizes["num_heads"],
        "num_key_value_heads": sizes["num_kv_heads"],
        "head_dim": sizes["head_dim"],
        "hidden_size": sizes["hidden_size"],
        "cca_time0": sizes["conv_kernel"],
        "cca_time1": 1,
    }


_MODELS: Mapping[str, tuple[str, Callable[[Sizes], dict[str, Any]]]] = {
    "bailing_hybrid": (
        "bailing_hybrid:BailingHybridConfig",
        lambda sizes: {
            "use_kda": False,
            "num_linear_key_value_heads": sizes["num_heads"],
            "head_dim": sizes["head_dim"],
        },
    ),
    "lfm2": (
        "lfm2:Lfm2Config",
        lambda sizes: {"hidden_size": sizes["channels"], "conv_L_cache": sizes["conv_kernel"]},
    ),
    "mamba": (
        "mamba:MambaConfig",
        lambda sizes: {
            "intermediate_size": sizes["channels"],
            "state_size": sizes["state_size"],
            "conv_kernel": sizes["conv_kernel"],
        },
    ),
    "kimi_linear": ("kimi_linear:KimiLinearConfig", _kimi),
    "qwen3_next": ("qwen3_next:Qwen3NextConfig", _gated),
    "gigachat35": ("gigachat35:GigaChat35Config", _gated),
    "mamba2": (
        "mamba2:Mamba2Config",
        _mamba2("n_groups num_heads head_dim state_size conv_kernel intermediate_size"),
    ),
    "nemotron_h": (
        "nemotron_h:NemotronHConfig",
        _mamba2("n_groups mamba_num_heads mamba_head_dim ssm_state_size conv_kernel"),
    ),
    "falcon_h1": (
        "falcon_h1:FalconH1Config",
        _mamba2("mamba_n_groups mamba_n_heads mamba_d_head mamba_d_state mamba_d_conv mamba_intermediate"),
    ),
    "granitemoehybrid": (
        "granitemoehybrid:GraniteMoeHybridConfig",
        _mamba2(
            "mamba_n_groups mamba_n_heads mamba_d_head mamba_d_state mamba_d_conv mamba_intermediate_size"
        ),
    ),
    "zaya": ("zaya:ZayaConfig", _zaya),
}
"""By model, its class below the release's configurations, and the attributes that its state shape is computed from."""


@contextmanager
def ranks(size: int, rank: int = 0) -> Iterator[None]:
    """Have the release see so many tensor-parallel ranks, of which this is one, and a GPU's layout of states."""
    parallel = find("sglang.srt.runtime_context:get_parallel")()
    widths = {"tp_size": size, "attn_tp_size": size, "tp_rank": rank, "attn_tp_rank": rank}
    alone = {
        "attn_cp_size": 1,
        "attn_dp_size": 1,
        "dp_size": 1,
        "pp_size": 1,
        "enable_cp_tp_group_sharing": False,
    }
    # A scheduler that ran in this process before leaves its groups, of one rank each.
    group = SimpleNamespace(world_size=size)
    left = {
        "moe_dp_size": 1,
        "moe_ep_size": 1,
        "moe_tp_size": size,
        "tp_group": group,
        "attn_tp_group": group,
    }
    fields = find("sglang.srt.runtime_context:_parallel_fields")()
    with ExitStack() as stack:
        stack.enter_context(
            parallel.override(**widths, **alone, **{name: left[name] for name in left.keys() & fields})
        )
        for module in (f"{_CONFIGS}.qwen3_next", "sglang.srt.mem_cache.memory_pool"):
            names = vars(__import__(module, fromlist=["_"]))
            if "_is_cpu" in names:
                stack.enter_context(mock.patch.dict(names, {"_is_cpu": False}))
        yield


def cache_params(model: str, sizes: Sizes) -> Any:
    """What the release's pool of states is made of, for as many ranks as it sees.

    Raises:
        NotOffered: the release does not have the model.
    """
    place, attributes = _MODELS[model]
    found = find(f"{_CONFIGS}.{place}")
    layers = {
        "num_hidden_layers": len(LAYERS),
        **dict.fromkeys(("mamba_layer_ids", "linear_layer_ids"), LAYERS),
    }
    if not hasattr(found, "mamba2_cache_params"):
        raise NotOffered(f"states of {model}")
    return found.mamba2_cache_params.fget(SimpleNamespace(**layers, **attributes(sizes)))
