"""Square roots, exponentials and their like, of f32 and f64.

A GPU approximates most of them. Here they are rounded correctly where they are of f32, and to within an ulp or two where
they are of f64. Where the instructions that Triton compiles to take or leave subnormal numbers as zero, so do these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Convert = Callable[[Any], Any]

_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal
_erf = np.frompyfunc(math.erf, 1, 1)


def erf(value: Any) -> Any:
    """Of f64."""
    return np.asarray(_erf(value), np.float64)


def reciprocal_root(value: Any) -> Any:
    """Of f64."""
    return 1.0 / np.sqrt(value)


def flushed(value: Any) -> Any:
    """An f32 that is zero, of the same sign, where it was subnormal."""
    subnormal = np.abs(value) < _SMALLEST_NORMAL
    return np.where(subnormal, np.copysign(np.float32(0), value), value) if subnormal.any() else value


def _in_f64(compute: Convert) -> Convert:
    return lambda value: compute(value.astype(np.float64)).astype(np.float32)


def _of_flushed(compute: Convert) -> Convert:
    return lambda value: compute(flushed(value))


def _flushed_result(compute: Convert) -> Convert:
    return lambda value: flushed(compute(value))


OF_F64: dict[str, Convert] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": reciprocal_root,
    "sin": np.sin,
    "cos": np.cos,
    "erf": erf,
}

OF_F32: dict[str, Convert] = {
    "ceil": _of_flushed(np.ceil),
    "floor": _of_flushed(np.floor),
    "exp": _in_f64(np.exp),
    "exp2": _flushed_result(_in_f64(np.exp2)),
    "log": _in_f64(np.log),
    "log2": _in_f64(np.log2),
    "sqrt": _of_flushed(np.sqrt),
    "rsqrt": _of_flushed(_in_f64(reciprocal_root)),
    "sin": _of_flushed(_in_f64(np.sin)),
    "cos": _in_f64(np.cos),
    "erf": _of_flushed(_in_f64(erf)),
}
