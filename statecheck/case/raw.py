"""Elements of a tensor and the bytes that they are in memory."""

from __future__ import annotations

import struct

from statecheck.case.values import ITEM_SIZES, Tensor


def described(dtype: str, shape: tuple[int, ...], raw: bytes) -> Tensor:
    """A view's elements in the form in which they are observed: those of a float type as the bytes that they are."""
    if "float" in dtype:
        return Tensor("uint8", (len(raw),), raw)
    return Tensor(dtype, shape, as_elements(raw, dtype))


def as_elements(raw: bytes, dtype: str) -> tuple[int, ...] | bytes:
    """The integers that `raw` holds; bytes stay bytes where the type is "uint8".

    Raises:
        ValueError: the type is a float type.
    """
    if dtype == "uint8":
        return raw
    return struct.unpack(_format(dtype, len(raw) // ITEM_SIZES[dtype]), raw)


def as_bytes(elements: tuple[int, ...] | bytes, dtype: str) -> bytes:
    """The memory of `elements`; the inverse of `as_elements`.

    Raises:
        ValueError: the type is a float type, and the elements are not bytes already.
    """
    if isinstance(elements, bytes):
        return elements
    return struct.pack(_format(dtype, len(elements)), *elements)


def _format(dtype: str, count: int) -> str:
    """How `struct` spells so many elements."""
    if "float" in dtype:
        raise ValueError(
            f"dtype = {dtype!r}, but should be an integer type, or its elements bytes [as_bytes]"
        )
    code = {1: "b", 2: "h", 4: "i", 8: "q"}[ITEM_SIZES[dtype]]
    return f"<{count}{code if dtype[0] == 'i' else code.upper()}"
