"""Answers about small arithmetic and cache configuration types (contracts 1.1 and 1.7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oracle import types
from oracle.errors import Refused
from statecheck.case.values import ITEM_SIZES, DType, Record, Tensor, Value
from statecheck.reference import answers
from statecheck.reference.typed import whole
from statecheck.subject.profile import Profile


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


def item_sizes(dtypes: tuple[DType, ...]) -> tuple[int, ...]:
    """Bytes of one element, for each dtype."""
    return tuple(ITEM_SIZES[dtype.name] for dtype in dtypes)


def page_size_of(spec: Record) -> int:
    """Bytes of one block of `spec`."""
    fields: dict[str, Any] = dict(spec.fields)
    return types.page_size_bytes(
        fields["shapes"], item_sizes(fields["dtypes"]), fields.get("page_size_padded")
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
