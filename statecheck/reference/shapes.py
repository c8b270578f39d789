"""Answers about state shapes (document 2, MambaStateShapeCalculator)."""

from __future__ import annotations

from oracle import layout, shapes
from statecheck.case.values import Call, Value
from statecheck.reference import answers
from statecheck.reference.typed import whole

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
