"""Answers about the conv state layout and the copy specifications (document 2, contract 1.8)."""

from __future__ import annotations

from oracle import layout
from oracle.errors import Refused
from statecheck.case.values import ITEM_SIZES, Address, Tensor, Value, dense_strides, record
from statecheck.reference import answers
from statecheck.reference.typed import whole


@answers("get_conv_state_layout", rule=layout.conv_state_layout)
def get_conv_state_layout(environment: dict[str, str]) -> Value:
    """The layout's name."""
    return layout.conv_state_layout(environment)


@answers("is_conv_state_dim_first", rule=layout.conv_state_layout)
def is_conv_state_dim_first(environment: dict[str, str]) -> Value:
    """Whether the layout is "DS"."""
    return layout.conv_state_layout(environment) == "DS"


@answers("get_conv_copy_spec", rule=layout.conv_copy_run)
def conv_copy_spec(
    environment: dict[str, str],
    state: Value,
    block_ids: Value,
    cur_block_idx: Value,
    num_accepted_tokens: Value,
) -> Value:
    """The run of bytes that holds the shifted conv window."""
    geometry = _geometry(state, ranks=(3,))
    where = whole(cur_block_idx, "cur_block_idx"), whole(num_accepted_tokens, "num_accepted_tokens")
    return _spec(
        layout.conv_copy_run(geometry, layout.conv_state_layout(environment), block_ids, *where), geometry
    )


@answers("get_temporal_copy_spec", rule=layout.temporal_copy_run)
def temporal_copy_spec(
    state: Value, block_ids: Value, cur_block_idx: Value, num_accepted_tokens: Value
) -> Value:
    """The run of bytes of the block that the accepted token wrote."""
    geometry = _geometry(state, ranks=range(2, 9))
    where = whole(cur_block_idx, "cur_block_idx"), whole(num_accepted_tokens, "num_accepted_tokens")
    return _spec(layout.temporal_copy_run(geometry, block_ids, *where), geometry)


def _geometry(state: Value, ranks: range | tuple[int, ...]) -> layout.StateGeometry:
    if not isinstance(state, Tensor) or len(state.shape) not in ranks:
        raise Refused("state", state, f"be a tensor with a rank in {ranks}")
    inner = state.shape[1:]
    dense, strides = dense_strides(inner), state.strides or state.contiguous_strides
    if any(size > 1 and stride != want for size, stride, want in zip(inner, strides[1:], dense, strict=True)):
        raise Refused("state", strides, f"have the inner strides {dense}")
    itemsize = ITEM_SIZES[state.dtype]
    return layout.StateGeometry(state.shape[0], inner, itemsize, strides[0] * itemsize)


def _spec(run: layout.ByteRun, geometry: layout.StateGeometry) -> Value:
    elements = run.length // geometry.itemsize
    return record("MambaCopySpec", start_addr=Address("state", run.offset), num_elements=elements)
