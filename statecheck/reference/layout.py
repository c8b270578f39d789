"""Answers about layouts: the conv state layout and the copy specifications, state shapes (document 2), small arithmetic and cache configuration types
(contracts 1.1, 1.7 and 1.8).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oracle import layout, shapes, types
from oracle.rules import Refused
from statecheck.case.values import (
    ITEM_SIZES,
    Address,
    Call,
    Record,
    Tensor,
    Value,
    dense_strides,
    record,
)
from statecheck.reference import answers, whole
from statecheck.subject.profile import Profile


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


_CLASS = "MambaStateShapeCalculator"
_ORIENTED = ("mamba1", "mamba2", "short_conv", "gated_delta_net", "kda")


_RULES = {f"{_CLASS}.{family}_state_shape": getattr(shapes, f"{family}_state_shape") for family in _ORIENTED}


@answers(*_RULES, rule=_RULES)
def state_shape(call: Call, environment: dict[str, str], **arguments: Value) -> Value:
    """The states of a family, with the axes of conv states in the order of the layout."""
    return _RULES[call.function](layout=layout.conv_state_layout(environment), **_whole(arguments))


def _whole(arguments: dict[str, Value]) -> dict[str, Value]:
    return {name: value if value is None else whole(value, name) for name, value in arguments.items()}


@answers(f"{_CLASS}.linear_attention_state_shape", rule=shapes.linear_attention_state_shape)
def linear_attention_state_shape(**arguments: Value) -> Value:
    """One temporal state; it has no layout."""
    return shapes.linear_attention_state_shape(**_whole(arguments))


@answers(f"{_CLASS}.extra_groups_for_head_shards", rule=shapes.extra_groups_for_head_shards)
def extra_groups_for_head_shards(**arguments: Value) -> Value:
    """How many groups to add so that every rank holds whole groups."""
    return shapes.extra_groups_for_head_shards(**_whole(arguments))


@answers(f"{_CLASS}._orient_conv_shape", rule=shapes.orient_conv_shape)
def orient_conv_shape(environment: dict[str, str], dim: int, state_len: int) -> Value:
    """The pair in the order of the layout."""
    return shapes.orient_conv_shape(dim, state_len, layout.conv_state_layout(environment))


@answers("cdiv", rule=types.cdiv)
def cdiv(x: Value, y: Value) -> Value:
    """Elementwise on a tensor, dtype kept; so the dtype must hold the divisor, see docs/deviations.md."""
    if not isinstance(x, Tensor):
        return types.cdiv(whole(x, "x"), whole(y, "y"))
    if x.dtype not in ("int32", "int64"):
        raise Refused("x", x.dtype, "be an integer tensor")
    bits = 8 * ITEM_SIZES[x.dtype]
    if not -(1 << bits - 1) <= whole(y, "y") < 1 << bits - 1:
        raise Refused("y", y, f"be in the range of {x.dtype}")
    # A divisor of 0 is refused although there may be no element to divide.
    types.cdiv(0, y)
    return replace(x.dense(), elements=tuple(types.cdiv(value, y) for value in x.values()))


@answers("divide", rule=types.divide)
def divide(x: Value, y: Value) -> Value:
    """Exact quotient of two ints."""
    return types.divide(whole(x, "x"), whole(y, "y"))


def page_size_of(spec: Record) -> int:
    """Bytes of one block of `spec`."""
    fields: dict[str, Any] = dict(spec.fields)
    return types.page_size_bytes(
        fields["shapes"],
        tuple(ITEM_SIZES[dtype.name] for dtype in fields["dtypes"]),
        fields.get("page_size_padded"),
    )


@answers("MambaSpec.page_size_bytes.fget", rule=types.page_size_bytes)
def page_size_bytes(self: Record) -> Value:
    """The property of the frozen specification."""
    return page_size_of(self)


@answers("MambaSpec.max_memory_usage_bytes", rule=types.pages_per_request)
def max_memory_usage_bytes(profile: Profile, self: Record, vllm_config: Record) -> Value:
    """Pages that one request may hold at most, in bytes."""
    fields: dict[str, Any] = dict(self.fields)
    pages = types.pages_per_request(
        fields.get("mamba_cache_mode", "none"),
        fields.get("num_speculative_blocks", 0),
        fields["block_size"],
        vllm_config["model_config"]["max_model_len"],
        profile,
    )
    return pages * page_size_of(self)


@answers("harness.canary_identity")
def canary_identity(number: int, device: Value) -> Value:  # noqa: ARG001 - of any device
    """The number as it is."""
    return number
