"""Reading where the states of the mamba layers lie, and refusing those that the copies cannot work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..checks import describe, refuse
from ..layout import (
    MambaStateCopyFunc,
    get_conv_copy_spec,
    get_temporal_copy_spec,
    is_conv_state_dim_first,
)

_FUNCTION = "initialize_from_forward_context"

STATE_FIELDS = (
    "state_base_addrs",
    "state_block_strides",
    "state_elem_sizes",
    "state_inner_sizes",
    "state_conv_widths",
    "state_group_indices",
    "state_dim_row_count",
    "state_dim_row_stride",
)
"""The vectors of a context, in the order in which kernels are handed them."""


@dataclass(frozen=True)
class StateRow:
    """One state's entries in the vectors of a context, and the bytes of one of its blocks."""

    state_base_addrs: int
    state_block_strides: int
    state_elem_sizes: int
    state_inner_sizes: int
    state_conv_widths: int
    state_group_indices: int
    state_dim_row_count: int
    state_dim_row_stride: int
    row_bytes: int
    block_bytes: int

    @classmethod
    def of_vectors(
        cls,
        base: int,
        stride: int,
        elem: int,
        inner: int,
        width: int,
        group: int,
        channels: int,
        channel_bytes: int,
    ) -> StateRow:
        """The row of these entries, in the order of STATE_FIELDS; without bytes where all of them are zero."""
        if channels:
            row_bytes, block_bytes = channel_bytes, channel_bytes * channels
        else:
            row_bytes, block_bytes = inner * elem, inner * elem * max(width, 1)
        return cls(base, stride, elem, inner, width, group, channels, channel_bytes, row_bytes, block_bytes)

    def entry(self, table_address: int) -> tuple[int, ...]:
        """What a tile of this state says of it: see `copy_tile`."""
        return (
            self.state_base_addrs,
            self.state_block_strides,
            table_address,
            self.state_conv_widths,
            self.row_bytes,
            self.state_elem_sizes,
        )

    def tiles(self, most: int) -> list[tuple[int, int]]:
        """First and end byte of what programs copy of a block at a time, at most `most` bytes."""
        # Shifts within channels go element by element and take longer than runs do.
        step = most // 4 if self.state_dim_row_count else most
        return [(first, min(first + step, self.block_bytes)) for first in range(0, self.block_bytes, step)]


def signed(address: int) -> int:
    """The int64 with the bits of an unsigned 64-bit address."""
    return address - 2**64 if address >= 2**63 else address


def read_states(
    kv_cache_config: Any,
    group_ids: Sequence[int],
    forward_context: Mapping[str, Any],
    copy_funcs: Sequence[MambaStateCopyFunc],
    rows_needed: int,
) -> list[StateRow]:
    """One row per state, in the order group, layer, state.

    Raises ValueError naming `mamba_state_copy_funcs[i]` if it is unknown, `forward_context` if a layer is missing,
    a layer's `kv_cache` if it has more states than copy functions, and a state whose form or rows do not fit.
    """
    for i, copy_func in enumerate(copy_funcs):
        if copy_func is not get_conv_copy_spec and copy_func is not get_temporal_copy_spec:
            rule = "get_conv_copy_spec or get_temporal_copy_spec"
            refuse(f"mamba_state_copy_funcs[{i}]", copy_func, rule, _FUNCTION)
    return [
        _state_row(f"{place}[{i}]", state, copy_func is get_conv_copy_spec, group, rows_needed)
        for group, place, states in _layers(kv_cache_config, group_ids, forward_context, len(copy_funcs))
        for i, (state, copy_func) in enumerate(zip(states, copy_funcs, strict=False))
    ]


def _layers(
    kv_cache_config: Any, group_ids: Sequence[int], forward_context: Mapping[str, Any], most: int
) -> Iterator[tuple[int, str, Sequence[torch.Tensor]]]:
    for group, group_id in enumerate(group_ids):
        for layer in kv_cache_config.kv_cache_groups[group_id].layer_names:
            if layer not in forward_context:
                refuse("forward_context", sorted(forward_context), f"with layer {layer!r}", _FUNCTION)
            states = forward_context[layer].kv_cache
            place = f"forward_context[{layer!r}].kv_cache"
            if len(states) > most:
                rule = f"{most} at most, the copy functions"
                refuse(place, f"{len(states)} states", rule, _FUNCTION)
            yield group, place, states


def _state_row(place: str, state: Any, is_conv: bool, group: int, rows_needed: int) -> StateRow:
    _check_form(place, state, is_conv)
    elem, dim_first = state.element_size(), is_conv_state_dim_first()
    elements = state.shape[1:].numel()
    width = state.size(2 if dim_first else 1) if is_conv else 0
    if is_conv and width < rows_needed:
        rule = f"with at least {rows_needed} conv rows, one for each token of a step"
        refuse(place, describe(state), rule, _FUNCTION)
    channels_first = is_conv and dim_first
    return StateRow(
        state_base_addrs=signed(state.data_ptr()),
        state_block_strides=state.stride(0) * elem,
        state_elem_sizes=elem,
        state_inner_sizes=1 if channels_first else elements // max(width, 1),
        state_conv_widths=width,
        state_group_indices=group,
        state_dim_row_count=state.size(1) if channels_first else 0,
        state_dim_row_stride=width * elem if channels_first else 0,
        row_bytes=elements // state.size(1) * elem,
        block_bytes=elements * elem,
    )


def _check_form(place: str, state: Any, is_conv: bool) -> None:
    if not isinstance(state, torch.Tensor) or (state.ndim != 3 if is_conv else state.ndim < 2):
        refuse(place, describe(state), "3-D, a conv state" if is_conv else "at least 2-D", _FUNCTION)
    inner, expected = state.stride()[1:], 1
    for size, stride in zip(reversed(state.shape[1:]), reversed(inner), strict=True):
        if size > 1 and stride != expected:
            seen = f"{describe(state)} with strides {state.stride()}"
            refuse(place, seen, "contiguous within each block", _FUNCTION)
        expected *= size
