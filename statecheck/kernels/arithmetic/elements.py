"""Element types of Triton's intermediate language, and what represents their values here.

| element | scalar | tensor |
|---|---|---|
| i1 | bool, or 0 and 1 | np.bool_ |
| i8, i16, i32, i64, ptr | int, within the signed range | np.int8, np.int16, np.int32, np.int64, np.int64 |
| f16, f32, f64 | np.float16, np.float32, np.float64 | the same |
| bf16 | np.float32, the low 16 bits 0 | the same |
| f8E5M2, f8E4M3FN | int, the byte, 0 to 255 | np.uint8 |

Every function that `operation` gives takes any mix of scalars and arrays, and gives a scalar where all operands are scalars. It
computes with NumPy: integers become NumPy's on the way in, and Python's again on the way out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

INTEGERS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "ptr": 64, "index": 64}
FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
BYTES = {"f8E5M2": 8, "f8E4M3FN": 8}
WIDTHS = INTEGERS | FLOATS | BYTES

SIGNED: dict[int, type[Any]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
DTYPES: dict[str, type[Any]] = {
    "i1": np.bool_,
    **{name: SIGNED[width] for name, width in INTEGERS.items() if width > 1},
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    **dict.fromkeys(BYTES, np.uint8),
}


def plain(value: Any) -> Any:
    """A NumPy array as it is; what has one element and no shape as the scalar of its type."""
    if value.ndim:
        return value
    return value.item() if value.dtype.kind in "iub" else value[()]
