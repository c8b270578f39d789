"""Shapes of states, as the release has them, by the documents' names; and those of models, from the release's own configuration classes."""

import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from statecheck.subject.subject import NotOffered
from subjects.sglang.release import find

__all__ = ["MambaStateShapeCalculator"]


_CONFIGS = "sglang.srt.configs"
LAYERS = [0, 1]
Sizes = Mapping[str, int]


_MODELS = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def _attributes(described: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """The attributes of a model's configuration with these sizes."""
    return {name: _attribute(value, sizes) for name, value in described.items()}


def _attribute(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, dict):
        return _attributes(value, sizes)
    return math.prod(sizes[name] for name in value.split(" * ")) if isinstance(value, str) else value


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
    """Parameters of the release's pool of states, for as many ranks as it sees.

    Raises:
        NotOffered: the release does not have the model.
    """
    described = _MODELS[model]
    found = find(f"{_CONFIGS}.{described['class']}")
    layers = {
        "num_hidden_layers": len(LAYERS),
        **dict.fromkeys(("mamba_layer_ids", "linear_layer_ids"), LAYERS),
    }
    if not hasattr(found, "mamba2_cache_params"):
        raise NotOffered(f"states of {model}")
    return found.mamba2_cache_params.fget(
        SimpleNamespace(**layers, **_attributes(described["attributes"], sizes))
    )


_SHAPES = "sglang.srt.configs.mamba_utils"
_LAYOUT = "VLLM_SSM_CONV_STATE_LAYOUT"


def _mamba2(**sizes: int) -> Any:
    return find(f"{_SHAPES}:Mamba2StateShape").create(**sizes)


def _oriented(conv: tuple[int, int], *, rows_first: bool = False) -> tuple[int, int]:
    """A convolution in the layout that the environment names; the release has one layout for each kind of layer."""
    wanted = os.environ.get(_LAYOUT, "SD") == "SD"
    return conv if wanted == rows_first else conv[::-1]


def _without_drafts(num_spec: int) -> None:
    """Rows of drafts are in buffers of their own."""
    if num_spec:
        raise NotOffered("rows of drafts in the state of a convolution")


class MambaStateShapeCalculator:
    """The release's functions for state shapes, with the documents' arguments and results."""

    @staticmethod
    def linear_attention_state_shape(num_heads: int, tp_size: int, head_dim: int) -> Any:
        """As its models with lightning attention do."""
        sizes = {"num_heads": num_heads, "head_dim": head_dim, "state_size": head_dim}
        return (
            _mamba2(tp_world_size=tp_size, intermediate_size=0, n_groups=0, conv_kernel=1, **sizes).temporal,
        )

    @staticmethod
    def mamba1_state_shape(
        tp_world_size: int, intermediate_size: int, state_size: int, conv_kernel: int
    ) -> Any:
        """The release has a head for each channel.

        Raises:
            NotOffered: releases up to 0.5.19 have no shape of Mamba-1.
        """
        shape = find(f"{_SHAPES}:Mamba2StateShape")
        if not hasattr(shape, "create_full_rank"):
            raise NotOffered("Mamba2StateShape.create_full_rank")
        made = shape.create_full_rank(
            tp_world_size=tp_world_size,
            intermediate_size=intermediate_size,
            state_size=state_size,
            conv_kernel=conv_kernel,
        )
        channels, _, size = made.temporal
        return _oriented(made.conv[0]), (channels, size)

    @staticmethod
    def mamba2_state_shape(
        tp_world_size: int,
        intermediate_size: int,
        n_groups: int,
        num_heads: int,
        head_dim: int,
        state_size: int,
        conv_kernel: int,
        num_spec: int = 0,
    ) -> Any:
        """As the release."""
        _without_drafts(num_spec)
        made = _mamba2(
            tp_world_size=tp_world_size,
            intermediate_size=intermediate_size,
            n_groups=n_groups,
            num_heads=num_heads,
            head_dim=head_dim,
            state_size=state_size,
            conv_kernel=conv_kernel,
        )
        return _oriented(made.conv[0]), made.temporal

    @staticmethod
    def short_conv_state_shape(
        tp_world_size: int, intermediate_size: int, conv_kernel: int, num_spec: int = 0
    ) -> Any:
        """As its configuration of LFM2 does."""
        _without_drafts(num_spec)
        sizes = {"num_heads": tp_world_size, "head_dim": intermediate_size, "state_size": 0}
        made = _mamba2(
            tp_world_size=tp_world_size,
            intermediate_size=intermediate_size,
            n_groups=1,
            conv_kernel=conv_kernel,
            **sizes,
        )
        return (_oriented(made.conv[0]),)

    @staticmethod
    def gated_delta_net_state_shape(
        tp_world_size: int,
        num_k_heads: int,
        num_v_heads: int,
        head_k_dim: int,
        head_v_dim: int,
        conv_kernel_size: int,
        num_spec: int = 0,
    ) -> Any:
        """As its configuration of Qwen3-Next does: keys are groups."""
        _without_drafts(num_spec)
        made = _mamba2(
            tp_world_size=tp_world_size,
            intermediate_size=num_v_heads * head_v_dim,
            n_groups=num_k_heads,
            num_heads=num_v_heads,
            head_dim=head_v_dim,
            state_size=head_k_dim,
            conv_kernel=conv_kernel_size,
        )
        return _oriented(made.conv[0]), made.temporal

    @staticmethod
    def kda_state_shape(
        tp_world_size: int,
        num_heads: int,
        head_dim: int,
        num_k_heads: int | None = None,
        head_k_dim: int | None = None,
        conv_kernel_size: int = 4,
        num_spec: int = 0,
    ) -> Any:
        """The release has one convolution, of values and keys and keys, channel behind channel; here they are three."""
        _without_drafts(num_spec)
        made = find(f"{_SHAPES}:KimiLinearStateShape").create(
            tp_world_size=tp_world_size,
            num_heads=num_heads,
            head_dim=head_dim,
            num_k_heads=num_k_heads,
            head_k_dim=head_k_dim,
            conv_kernel_size=conv_kernel_size,
        )
        rows, channels = made.conv[0]
        values, *keys = (part // tp_world_size for part in made.conv_shard_groups)
        if values + sum(keys) != channels:
            return (_oriented((rows, channels), rows_first=True), made.temporal)
        parts = (_oriented((rows, part), rows_first=True) for part in (values, *keys))
        return (*parts, made.temporal)

    @staticmethod
    def extra_groups_for_head_shards(ngroups: int, tp_size: int) -> int:
        """As the release."""
        found: int = find(f"{_SHAPES}:extra_groups_for_head_shards")(ngroups, tp_size)
        return found
