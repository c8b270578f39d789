"""Values as plain JSON data, without anything that only this harness or Python knows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from statecheck.case.tensor import as_bytes
from statecheck.case.values import (
    ITEM_SIZES,
    Address,
    Call,
    Device,
    DType,
    Record,
    Returns,
    SameAs,
    Tensor,
    Value,
)

MOST_INLINE = 64
"""Elements that a tensor may have to stand in the JSON file itself."""
EXACT = 2**53 - 1
"""The largest integer that every reader of JSON keeps."""


class NotPlain(Exception):
    """A value that has no meaning outside of this harness, such as an address."""


@dataclass(frozen=True)
class Blob:
    """The elements of a tensor as bytes, little-endian and in row-major order."""

    dtype: str
    shape: tuple[int, ...]
    raw: bytes

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEM_SIZES[self.dtype]

    @property
    def key(self) -> str:
        """The same for the same contents."""
        form = f"{self.dtype} {list(self.shape)} ".encode()
        return hashlib.sha256(form + self.raw).hexdigest()[:16]


def plain(value: Value) -> Any:
    """The value as JSON data with blobs in it. Not every reader of JSON tells 4.0 from 4, so there are no floats.

    Raises:
        NotPlain: there is no such form.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= EXACT else str(value)
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case Tensor():
            return plain_tensor(value)
        case Record():
            return {"type": value.type, **{name: plain(item) for name, item in value.fields}}
        case _:
            return _plain_reference(value)


def _plain_reference(value: Value) -> Any:
    match value:
        case DType():
            return value.name
        case Device():
            return "device"
        case Returns():
            return {"returns": plain(value.value)}
        case SameAs():
            return {"same_as": value.path}
        case Address():
            return {"address_of": value.argument, "plus_bytes": value.offset}
        case Call():
            return {
                "constructed": value.function,
                **{name: plain(item) for name, item in value.named.items()},
            }
        case _:
            raise NotPlain(type(value).__name__)


def plain_tensor(tensor: Tensor) -> Any:
    """Elements in row-major order, in the JSON file itself or as a blob; shape and strides alone where no element matters."""
    form = {"dtype": tensor.dtype, "shape": list(tensor.shape)}
    if tensor.elements is None:
        return {**form, "strides": list(tensor.strides or tensor.contiguous_strides)}
    values = tensor.values()
    if not all(isinstance(one, int) for one in values):
        raise NotPlain("a tensor of addresses")
    if len(values) <= MOST_INLINE:
        return {**form, "data": plain(values)}
    return blob(tensor.dtype, tensor.shape, values)


def blob(dtype: str, shape: Sequence[int], values: Sequence[int]) -> Blob:
    """So many elements as bytes, whatever their number."""
    assert len(values) == prod(shape), f"{len(values)} elements do not fill {shape}"
    return Blob(dtype, tuple(shape), as_bytes(bytes(values) if dtype == "uint8" else tuple(values), dtype))
