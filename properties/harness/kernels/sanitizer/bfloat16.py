"""bfloat16 in Triton's interpreter: 16 bits in an integer, with which it computes as if they were the number.

Whatever moves the bits is right. Casts are compared with the right result; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

_ANY_TYPE = (
    "create_erf",
    "create_rsqrt",
    "create_fma",
    "create_dot",
    "create_dot_scaled",
    "unary_op",
    "create_clampf",
)
_BITWISE = ("XCHG", "AND", "OR", "XOR")

Refuse = Callable[[str], NoReturn]


def is_bfloat16(handle: Any) -> bool:
    return hasattr(handle, "dtype") and handle.dtype.scalar.name == "bf16"


def wrappers(builder: Any, refuse: Refuse) -> dict[str, Callable[..., Any]]:
    """Methods of the interpreter's builder that refuse what the plain ones would get wrong."""
    found = {
        name: _refusing(getattr(builder, name), name, refuse) for name in _ANY_TYPE if hasattr(builder, name)
    }
    found["binary_op"] = _binary(builder.binary_op, refuse)
    found["ternary_op"] = _ternary(builder.ternary_op, refuse)
    found["create_atomic_rmw"] = _atomic(builder.create_atomic_rmw, refuse)
    found |= {name: _cast(getattr(builder, name), refuse) for name in ("cast_impl", "create_fp_to_fp")}
    return found


def _refusing(plain: Callable[..., Any], name: str, refuse: Refuse) -> Callable[..., Any]:
    def checked(*arguments: Any, **keywords: Any) -> Any:
        if any(map(is_bfloat16, arguments)):
            refuse(name.removeprefix("create_").removesuffix("_op"))
        return plain(*arguments, **keywords)

    return checked


def _binary(plain: Callable[..., Any], refuse: Refuse) -> Callable[..., Any]:
    def checked(lhs: Any, rhs: Any, op: Any) -> Any:
        if lhs.dtype.scalar.name == "bf16" or rhs.dtype.scalar.name == "bf16":
            refuse(op.__name__)
        return plain(lhs, rhs, op)

    return checked


def _ternary(plain: Callable[..., Any], refuse: Refuse) -> Callable[..., Any]:
    def checked(one: Any, two: Any, three: Any, op: Any) -> Any:
        if op is not np.where and any(map(is_bfloat16, (one, two, three))):
            refuse(op.__name__)
        return plain(one, two, three, op)

    return checked


def _atomic(plain: Callable[..., Any], refuse: Refuse) -> Callable[..., Any]:
    def checked(op: Any, pointers: Any, value: Any, *rest: Any, **keywords: Any) -> Any:
        if is_bfloat16(value) and op.name not in _BITWISE:
            refuse(f"atomic {op.name.lower()}")
        return plain(op, pointers, value, *rest, **keywords)

    return checked


def _cast(plain: Callable[..., Any], refuse: Refuse) -> Callable[..., Any]:
    def checked(source: Any, to: Any, *rest: Any, **keywords: Any) -> Any:
        result = plain(source, to, *rest, **keywords)
        if is_bfloat16(source) or is_bfloat16(result):
            right = _converted(source, to.scalar.name)
            if right is not None and not _agree(result.data, right):
                refuse(f"cast from {source.dtype.scalar.name} to {to.scalar.name}")
        return result

    return checked


_TORCH_TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8e5": torch.float8_e5m2,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5b16": torch.float8_e5m2fnuz,
    "fp8e4b8": torch.float8_e4m3fnuz,
}


def _converted(source: Any, name: str) -> torch.Tensor | None:
    """What the cast should give, rounded to the nearest, ties to even; None where torch has no such type."""
    if name not in _TORCH_TYPES:
        return None
    data = np.ascontiguousarray(source.data)
    numbers = torch.from_numpy(data if data.flags.writeable else data.copy())
    if source.dtype.scalar.name in _TORCH_TYPES:
        numbers = numbers.view(_TORCH_TYPES[source.dtype.scalar.name])
    elif data.dtype.kind == "f":
        return None
    # Through the widest type: what torch rounds twice on the way is not what is asked for.
    return numbers.to(_TORCH_TYPES[name])


def _agree(found: NDArray[Any], right: torch.Tensor) -> bool:
    """Whether all bits agree, except those that tell one NaN from another."""
    bits = np.ascontiguousarray(found)
    got = (
        torch.from_numpy(bits if bits.flags.writeable else bits.copy()).view(right.dtype).reshape(right.shape)
    )
    same = got.view(torch.uint8) == right.view(torch.uint8) if got.dim() else None
    if same is not None and bool(same.all()):
        return True
    wide, wanted = got.to(torch.float64), right.to(torch.float64)
    equal = (wide == wanted) & (torch.signbit(wide) == torch.signbit(wanted))
    return bool((equal | (wide.isnan() & wanted.isnan())).all())


def reduce_and_scan(plain: Callable[..., Any], refuse: Refuse) -> Callable[..., Any]:
    """Reductions and scans, which have a class of their own instead of a method of the builder."""

    def checked(self: Any, arguments: Any) -> Any:
        if isinstance(arguments, tuple) and any(
            is_bfloat16(getattr(one, "handle", None)) for one in arguments
        ):
            refuse("scan" if type(self).__name__ == "ScanOps" else "reduction")
        return plain(self, arguments)

    return checked
