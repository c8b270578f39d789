"""What kernels do with whole tiles: reductions, scans, products, and the reading of their attributes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.arithmetic import BYTE_TO, BYTES, plain, to_bf16
from statecheck.kernels.source.ir import NotUnderstoodError, Type, dtype_of, number

Array = NDArray[Any]
Program = tuple[int, int, int]


def integer(text: str, name: str) -> int:
    """An attribute of an operation, such as `axis = 0 : i32`."""
    match = re.search(rf"\b{name} = (-?\d+)", text)
    if match is None:
        raise NotUnderstoodError(f"an operation without {name}: {text[:60]}")
    return int(match.group(1))


def integers(text: str, name: str) -> tuple[int, ...]:
    """An attribute such as `order = array<i32: 1, 0>`."""
    match = re.search(rf"\b{name} = array<i32: ([\d, -]+)>", text)
    if match is None:
        raise NotUnderstoodError(f"an operation without {name}: {text[:60]}")
    return tuple(int(part) for part in match.group(1).split(","))


def array(text: str, kind: Type) -> Array:
    """A dense constant whose elements differ."""
    flat = [number(part, kind.element) for part in re.findall(r"[^\[\],\s]+", text)]
    return np.array(flat, dtype_of(kind.element)).reshape(kind.shape or ())


def full(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A tile of one number, or of what broadcasts to its shape."""
    result: Array = np.empty(shape, dtype)
    result[...] = value
    return result


def _axis_first(tile: Array, axis: int) -> Array:
    # As np.moveaxis, which takes longer than the sums of a small tile.
    return tile.transpose((axis, *range(axis), *range(axis + 1, tile.ndim))) if axis else tile


def reduce(combine: Callable[..., tuple[Any, ...]], tiles: tuple[Array, ...], axis: int) -> Any:
    """A reduction by a region, which halves the axis until one is left."""
    parts = [_axis_first(tile, axis) for tile in tiles]
    while (count := parts[0].shape[0]) > 1:
        halves = [part[: count // 2] for part in parts] + [part[count // 2 :] for part in parts]
        parts = [np.asarray(part) for part in combine(*halves)]
    result = tuple(part[0] if part.ndim > 1 else plain(part[0]) for part in parts)
    return result[0] if len(result) == 1 else result


def total(tile: Array, axis: int) -> Any:
    """The reduction by a sum, in the order of `reduce`."""
    part = _axis_first(tile, axis)
    while (count := len(part)) > 1:
        part = part[: count // 2] + part[count // 2 :]
    return part[0] if part.ndim > 1 else plain(part[0])


def scan(
    combine: Callable[..., tuple[Any, ...]],
    tiles: tuple[Array, ...],
    axis: int,
    backwards: bool,
) -> Any:
    """A scan by a region: each element with the one before it, then with the one two before that, and so on."""
    parts = [_axis_first(tile, axis) for tile in tiles]
    results = [np.array(part[::-1] if backwards else part) for part in parts]
    distance, count = 1, len(results[0])
    while distance < count:
        combined = combine(*(part[:-distance] for part in results), *(part[distance:] for part in results))
        for result, part in zip(results, combined, strict=True):
            result[distance:] = part
        distance *= 2
    moved = tuple(np.moveaxis(result[::-1] if backwards else result, 0, axis) for result in results)
    return moved[0] if len(moved) == 1 else moved


def gather(source: Array, indices: Array, axis: int, place: str, program: Program) -> Array:
    """Elements of a tile, by their indices along an axis.

    Raises:
        AssertionFailedError: an index is not one of the axis, of which a GPU gives anything.
    """
    _require_indices(indices, source.shape[axis], "tl.gather", place, program)
    result: Array = np.take_along_axis(source, indices, axis)
    return result


def histogram(values: Array, mask: Array | None, bins: int, place: str, program: Program) -> Array:
    """How often each bin is among the values.

    Raises:
        AssertionFailedError: a value has no bin, which spoils others on a GPU.
    """
    active = values.reshape(-1) if mask is None else values[mask]
    _require_indices(active, bins, "tl.histogram", place, program)
    return np.bincount(active, minlength=bins).astype(np.int32)


def _require_indices(indices: Array, size: int, function: str, place: str, program: Program) -> None:
    wrong = indices[(indices < 0) | (indices >= size)]
    if wrong.size:
        rule = f"index {wrong.flat[0]} of {function}, but should be within 0 <= index < {size}"
        asserted(False, rule, place, program)


def split_tile(tile: Array) -> tuple[Array, Array]:
    """The halves that were joined to the last axis."""
    return tile[..., 0], tile[..., 1]


def join_tiles(first: Array, second: Array) -> Array:
    return np.stack((first, second), -1)


def concatenate(first: Array, second: Array) -> Array:
    """One behind the other; `tl.cat` promises no order, and a GPU may have another one."""
    return np.concatenate((first, second))


def dot(a: Array, b: Array, c: Array, elements: tuple[str, ...], precision: str) -> Array:
    """A product of tiles added to a third one; sums of floats are rounded once.

    Factors in float32 are read as `precision` says: "ieee" as they are; "tf32" cut to tf32; "tf32x3", "bf16x3" and "bf16x6" as sums of two or
    three parts of the narrower type, of whose products the largest ones are added.
    """
    a, b = _of_bytes(a, elements[0]), _of_bytes(b, elements[1])
    if a.dtype.kind == "i":
        return np.matmul(a.astype(np.int32), b.astype(np.int32)) + c
    if precision == "tf32":
        a, b = _tf32(a), _tf32(b)
    lefts, rights = (_PARTS[precision](x) if precision in _PARTS else [x.astype(np.float64)] for x in (a, b))
    exact = np.matmul(lefts[0], rights[0]) + c.astype(np.float64)
    for i, left in enumerate(lefts):
        for right in rights[not i : len(lefts) - i]:
            small = np.matmul(left, right)
            # An infinity times what another factor leaves over, which may be 0.
            exact += np.where(np.isnan(small), 0.0, small)
    return exact.astype(c.dtype)


def _of_bytes(tile: Array, element: str) -> Array:
    """fp8 as float32, which has all of its numbers."""
    if element not in BYTES:
        return tile
    result: Array = BYTE_TO[element, "f32"](tile)
    return result


def _tf32(tile: Array) -> Array:
    """What a tensor core reads of float32: ten bits of the fraction."""
    return (tile.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _tf32_to_nearest(tile: Array) -> Array:
    rounded = _tf32((tile.view(np.uint32) + np.uint32(0x1000)).view(np.float32))
    return np.where(np.isfinite(tile), rounded, tile)


def _parts(tile: Array, rounded: Callable[[Array], Array], count: int) -> list[Array]:
    """Numbers of a narrower type that add up to those of a tile but for the last one's rounding; as float64."""
    parts, rest = [], np.ascontiguousarray(tile)
    for _ in range(count):
        part = rounded(rest)
        parts.append(part.astype(np.float64))
        rest = np.where(np.isfinite(part), rest - part, np.float32(0))
    return parts


_PARTS: dict[str, Callable[[Array], list[Array]]] = {
    "tf32x3": lambda tile: _parts(tile, _tf32_to_nearest, 2),
    "bf16x3": lambda tile: _parts(tile, to_bf16, 2),
    "bf16x6": lambda tile: _parts(tile, to_bf16, 3),
}


def moved_origins(
    origin: Any, source: tuple[int, ...], target: tuple[int, ...], order: tuple[int, ...] | None
) -> Any:
    """Origins of a tile's pointers after its shape has changed."""
    if origin is None or type(origin) is int:
        return origin
    if order is not None:
        return np.broadcast_to(origin, source).transpose(order)
    if np.prod(source) == np.prod(target):
        return np.broadcast_to(origin, source).reshape(target)
    return np.broadcast_to(origin, target)


def select_origins(condition: Array, first: Any, second: Any) -> Any:
    """Origins of selected pointers; -1 where nothing is known."""
    if first is None and second is None:
        return None
    if type(first) is int and first == second:
        return first
    return np.where(condition, *(np.int64(-1) if origin is None else origin for origin in (first, second)))


class AssertionFailedError(Exception):
    """A `tl.device_assert` of a kernel that does not hold."""

    place: tuple[str, int] = ("", 0)


def asserted(condition: Any, message: str, place: str, program: Program) -> None:
    """Stop where a kernel's assertion does not hold.

    Raises:
        AssertionFailedError: with the kernel's message, its line and the program.
    """
    if not np.all(condition):
        error = AssertionFailedError(f"{place}: program {program}: assertion failed: {message}")
        file, _, line = place.rpartition(":")
        error.place = file, int(line)
        raise error


def printed(prefix: str, program: Program, values: tuple[Any, ...]) -> None:
    """What `tl.device_print` shows."""
    for value in values or ("",):
        print(f"pid {program}{prefix}{value}")
