"""Which way round a conv state is stored, and where one block's state lies in memory."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import torch

from .checks import as_int, describe, int_at_least, one_of, refuse
from .types import NULL_BLOCK_ID

ConvStateLayoutType = Literal["SD", "DS"]
"""SD stores a conv state as (state_len, dim), DS as (dim, state_len)."""

_LAYOUTS = ("SD", "DS")
_VARIABLE = "VLLM_SSM_CONV_STATE_LAYOUT"


@functools.lru_cache
def get_conv_state_layout() -> ConvStateLayoutType:
    """The layout that environment variable VLLM_SSM_CONV_STATE_LAYOUT selects, SD if it is unset.

    The first answer is kept for the life of the process; `get_conv_state_layout.cache_clear()` forgets it.
    Raises ValueError naming the variable if it is neither SD nor DS. Source: document 2.
    """
    layout = os.environ.get(_VARIABLE, "SD")
    one_of(_VARIABLE, layout, _LAYOUTS, "get_conv_state_layout")
    return cast(ConvStateLayoutType, layout)


def is_conv_state_dim_first() -> bool:
    """Whether a block stores its conv state as (dim, state_len). Source: document 2."""
    return get_conv_state_layout() == "DS"


def conv_state_layout(layout: ConvStateLayoutType) -> AbstractContextManager[None]:
    """Select a layout for the length of a `with` block; environment and cache are as before afterwards.

    Raises ValueError naming `layout` if it is neither SD nor DS, with the environment untouched.
    """
    one_of("layout", layout, _LAYOUTS, "conv_state_layout")
    return _selected(layout)


@contextmanager
def _selected(layout: ConvStateLayoutType) -> Iterator[None]:
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = layout
    get_conv_state_layout.cache_clear()
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before
        get_conv_state_layout.cache_clear()


@dataclass
class MambaCopySpec:
    """One contiguous run to copy: byte address of its first element, and number of elements.

    Source: document 2, MambaCopySpec.
    """

    start_addr: int
    num_elements: int


MambaStateCopyFunc: TypeAlias = Callable[[torch.Tensor, list[int], int, int], MambaCopySpec]
"""(state, block_ids, cur_block_idx, num_accepted_tokens) -> the run that holds the accepted state."""


def get_conv_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> MambaCopySpec:
    """The run of a conv state that is valid after `num_accepted_tokens` accepted tokens.

    `state`: [num_blocks, state_len, dim] (SD) or [num_blocks, dim, state_len] (DS), any dtype, each block
    contiguous; stride(0) is free (the page stride). The run starts at row num_accepted_tokens - 1 of block
    `block_ids[cur_block_idx]` and ends with that block.

    Raises ValueError naming the argument if the state has another form, the speculative blocks after
    cur_block_idx are not all in block_ids, the id is null or outside the state, or more tokens were
    accepted than rows are stored. Raises NotImplementedError for DS with more than one token, because a
    shift along the last dimension is no single run. Source: document 2, get_conv_copy_spec.
    """
    function = "get_conv_copy_spec"
    if not isinstance(state, torch.Tensor) or state.ndim != 3:
        refuse("state", describe(state), "3-D", function)
    _check_blocks_contiguous(state, function)
    column, accepted = _checked_columns(block_ids, cur_block_idx, num_accepted_tokens, function)
    dim_first = is_conv_state_dim_first()
    rows = state.size(2) if dim_first else state.size(1)
    if accepted > rows:
        refuse("num_accepted_tokens", accepted, f"<= {rows}, the rows of a block", function)
    address = _block_address(state, block_ids, column, function)
    if not dim_first:
        shift = accepted - 1
        address += shift * state.stride(1) * state.element_size()
        return MambaCopySpec(address, (rows - shift) * state.size(2))
    if accepted > 1:
        raise NotImplementedError(
            f"num_accepted_tokens = {accepted}, but only 1 is possible with layout DS [{function}]"
        )
    return MambaCopySpec(address, state.size(1) * rows)


def get_temporal_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> MambaCopySpec:
    """The whole block that holds the temporal state after `num_accepted_tokens` accepted tokens.

    `state`: [num_blocks, ...], any dtype, each block contiguous; stride(0) is free (the page stride). The
    block is `block_ids[cur_block_idx + num_accepted_tokens - 1]`: speculative blocks follow the running one.

    Raises ValueError naming the argument if the state has another form, that column is not in block_ids, or
    the id is null or outside the state. Source: document 2, get_temporal_copy_spec.
    """
    function = "get_temporal_copy_spec"
    if not isinstance(state, torch.Tensor) or state.ndim < 2:
        refuse("state", describe(state), "at least 2-D", function)
    _check_blocks_contiguous(state, function)
    column, accepted = _checked_columns(block_ids, cur_block_idx, num_accepted_tokens, function)
    address = _block_address(state, block_ids, column + accepted - 1, function)
    return MambaCopySpec(address, state.shape[1:].numel())


def _check_blocks_contiguous(state: torch.Tensor, function: str) -> None:
    if state.size(0) > 0 and not state.select(0, 0).is_contiguous():
        seen = f"{describe(state)} with strides {state.stride()}"
        refuse("state", seen, "contiguous within each block", function)


def _checked_columns(
    block_ids: Sequence[int], cur_block_idx: int, num_accepted_tokens: int, function: str
) -> tuple[int, int]:
    column = int_at_least("cur_block_idx", cur_block_idx, 0, function)
    accepted = int_at_least("num_accepted_tokens", num_accepted_tokens, 1, function)
    if column >= len(block_ids):
        refuse("cur_block_idx", column, f"< {len(block_ids)}, the length of block_ids", function)
    if column + accepted > len(block_ids):
        rule = f"<= {len(block_ids) - column}, the blocks from cur_block_idx = {column} on"
        refuse("num_accepted_tokens", accepted, rule, function)
    return column, accepted


def _block_address(state: torch.Tensor, block_ids: Sequence[int], column: int, function: str) -> int:
    argument = f"block_ids[{column}]"
    block = as_int(argument, block_ids[column], function)
    if not NULL_BLOCK_ID < block < state.size(0):
        rule = f"> {NULL_BLOCK_ID} (the null block) and < {state.size(0)}"
        refuse(argument, block, rule, function)
    return state.data_ptr() + block * state.stride(0) * state.element_size()
