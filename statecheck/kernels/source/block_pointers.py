"""Block pointers, which Triton 3.9 has no more, while kernels are lowered: the tensors of pointers that they stand for, as Triton 3.6 makes them behind its front end.

What a load leaves out is zero where the kernel asks for no padding, as compiled code has it.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import triton.language as tl
from triton.language import core

_PADDING = {"": 0.0, "zero": 0.0, "nan": float("nan")}
_LOAD, _STORE = core.load, core.store


class _Type(core.base_type):
    def __init__(self, base: core.dtype, sizes: Sequence[int]) -> None:
        self.base, self.sizes = base, tuple(sizes)

    def _parts(self) -> list[core.dtype]:
        return [self.base, *[tl.int64] * (3 * len(self.sizes))]

    def _flatten_ir_types(self, builder, out) -> None:
        for part in self._parts():
            part._flatten_ir_types(builder, out)

    def _unflatten_ir(self, handles, cursor):
        found, rank = [], len(self.sizes)
        for part in self._parts():
            value, cursor = part._unflatten_ir(handles, cursor)
            found.append(value)
        base, *numbers = found
        return BlockPointer(
            base, numbers[:rank], numbers[rank : 2 * rank], numbers[2 * rank :], self.sizes
        ), cursor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Type) and (self.base, self.sizes) == (other.base, other.sizes)

    def __hash__(self) -> int:
        return hash((self.base, self.sizes))

    def mangle(self) -> str:
        return f"B{self.base.mangle()}_{'_'.join(map(str, self.sizes))}"


class BlockPointer(core.base_value):
    """A block of a tensor: its first element, and by axis its length, its stride, and where the block begins; all are of the front end."""

    def __init__(
        self, base: Any, shape: list[Any], strides: list[Any], offsets: list[Any], sizes: Sequence[int]
    ) -> None:
        super().__init__()
        self.base, self.shape, self.strides, self.offsets = base, shape, strides, offsets
        self.type, self.dtype = _Type(base.type, sizes), base.type

    def _flatten_ir(self, handles) -> None:
        for one in (self.base, *self.shape, *self.strides, *self.offsets):
            one._flatten_ir(handles)

    def _set_name(self, builder, name: str) -> None:
        self.base._set_name(builder, name)

    def moved(self, by: Sequence[Any], semantic: Any) -> BlockPointer:
        offsets = [
            semantic.add(offset, _wide(step, semantic), False)
            for offset, step in zip(self.offsets, by, strict=True)
        ]
        return BlockPointer(self.base, self.shape, self.strides, offsets, self.type.sizes)

    def elements(self, checked: Sequence[Any], semantic: Any) -> tuple[Any, Any]:
        """The pointers, and whether each lies inside along the axes that are checked; None where none is."""
        pointers, mask = self.base, None
        axes = [core._unwrap_if_constexpr(axis) for axis in core._unwrap_if_constexpr(checked)]
        for axis, size in enumerate(self.type.sizes):
            place = semantic.add(_wide(semantic.arange(0, size), semantic), self.offsets[axis], False)
            for other in range(len(self.type.sizes)):
                place = semantic.expand_dims(place, other) if other != axis else place
            pointers = semantic.add(pointers, semantic.mul(place, self.strides[axis], False), False)
            if axis in axes:
                is_inside = semantic.and_(
                    semantic.greater_equal(place, _wide(0, semantic)),
                    semantic.less_than(place, self.shape[axis]),
                )
                mask = is_inside if mask is None else semantic.and_(mask, is_inside)
        return pointers, mask


def _wide(number: Any, semantic: Any) -> Any:
    return semantic.cast(semantic.to_tensor(number), tl.int64)


@core.builtin
def make_block_ptr(base, shape, strides, offsets, block_shape, order, _semantic=None):  # noqa: ARG001
    """`tl.make_block_ptr`; an order is for the hardware."""
    lengths, steps, begins = ([_wide(one, _semantic) for one in part] for part in (shape, strides, offsets))
    return BlockPointer(
        base, lengths, steps, begins, [core._unwrap_if_constexpr(size) for size in block_shape]
    )


@core.builtin
def advance(base, offsets, _semantic=None):
    """`tl.advance`."""
    return base.moved(offsets, _semantic)


@core.builtin
def load(pointer, mask=None, other=None, boundary_check=(), padding_option="", _semantic=None, **rest):
    """`tl.load`, also of a block."""
    if isinstance(pointer, BlockPointer):
        pointer, mask = pointer.elements(boundary_check, _semantic)
        other = _PADDING[core._unwrap_if_constexpr(padding_option)] if mask is not None else None
    return _LOAD(pointer, mask, other, _semantic=_semantic, **rest)


@core.builtin
def store(pointer, value, mask=None, boundary_check=(), _semantic=None, **rest):
    """`tl.store`, also of a block."""
    if isinstance(pointer, BlockPointer):
        pointer, mask = pointer.elements(boundary_check, _semantic)
    return _STORE(pointer, value, mask, _semantic=_semantic, **rest)


@contextmanager
def block_pointers() -> Iterator[None]:
    """Let kernels that are lowered meanwhile have them, where Triton has none."""
    if "boundary_check" in inspect.signature(core.load).parameters:
        yield
        return
    ours = {"make_block_ptr": make_block_ptr, "advance": advance, "load": load, "store": store}
    with patch.multiple(tl, create=True, **ours):
        yield
