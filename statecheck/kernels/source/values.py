"""Values of Triton's types as Python and NumPy hold them, see `arithmetic.elements`, and as memory does."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic.elements import DTYPES, FLOATS
from statecheck.kernels.source.ir import NotUnderstoodError

_STORED = {"bf16": np.dtype(np.uint16), "i1": np.dtype(np.bool_)}


@cache
def dtype_of(element: str) -> np.dtype[Any]:
    """Of a tile of this type in hand."""
    if element.startswith("f8"):
        return np.dtype(np.uint8)
    if element not in DTYPES:
        raise NotUnderstoodError(f"the type {element}")
    return np.dtype(DTYPES[element])


@cache
def stored_dtype(element: str) -> np.dtype[Any]:
    """Of the same in memory."""
    return _STORED.get(element) or dtype_of(element)


def size_of(element: str) -> int:
    """Bytes in memory."""
    return stored_dtype(element).itemsize if element else 0


def number(text: str, element: str) -> Any:
    """A literal of the IR as a scalar of this type.

    Raises:
        NotUnderstoodError: it is none.
    """
    if element == "i1":
        return text in ("true", "1", "-1")
    if element in FLOATS:
        return _floating(text, element)
    try:
        return int(text, 0)
    except ValueError:
        raise NotUnderstoodError(f"the literal {text[:40]} of {element}") from None


def _floating(text: str, element: str) -> Any:
    if not text.startswith("0x"):
        return dtype_of(element).type(float(text))
    raw = int(text, 16)
    if element == "bf16":
        raw, element = raw << 16, "f32"
    code = {"f16": "<H", "f32": "<I", "f64": "<Q"}[element]
    return np.frombuffer(struct.pack(code, raw), dtype_of(element))[0]
