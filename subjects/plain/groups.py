"""Which states layers keep, as plain tuples."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subjects.plain.states import get_conv_copy_spec

PlainState = tuple[torch.Tensor, str, int]
"""A view [num_blocks, ...] of all blocks, "conv" or "temporal", and the place of the group among those with states."""


def groups_with_states(kv_cache_config: Any) -> list[int]:
    """The numbers of the groups that keep states, among all groups."""
    groups = enumerate(kv_cache_config.kv_cache_groups)
    return [number for number, group in groups if hasattr(group.kv_cache_spec, "shapes")]


def plain_states(
    kv_cache_config: Any,
    group_ids: Sequence[int],
    forward_context: Mapping[str, Any],
    copy_funcs: Sequence[Any],
) -> list[PlainState]:
    """Every state of every layer, by group, layer and state; a layer may keep fewer than there are copy functions."""
    kinds = ["conv" if function is get_conv_copy_spec else "temporal" for function in copy_funcs]
    return [
        (state, kind, place)
        for place, number in enumerate(group_ids)
        for layer in kv_cache_config.kv_cache_groups[number].layer_names
        for state, kind in zip(forward_context[layer].kv_cache, kinds, strict=False)
    ]
