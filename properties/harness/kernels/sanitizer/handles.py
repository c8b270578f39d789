"""Origins of pointers in Triton's interpreter: its handles have a dictionary of attributes, where they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from properties.harness.kernels.sanitizer.provenance import UNKNOWN, Origin, Provenance
from properties.harness.kernels.sanitizer.views import Integers, view_of

_RESHAPED = ("create_unsplat", "create_broadcast", "create_expand_dims", "create_reshape", "create_trans")
_SAME = ("create_bitcast", "create_int_to_ptr", "create_ptr_to_int", "cast_impl")
_POINTER_BYTES = 8


class Handles:
    """Gives handles their origins, and carries them on."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance

    def of(self, handle: Any) -> Origin | None:
        origin: Origin | None = handle.attr.get(self)
        return origin

    def give(self, handle: Any, origin: Origin | None) -> None:
        if origin is not None:
            handle.attr[self] = origin

    def argument(self, handle: Any, argument: Any, names: dict[tuple[int, Any], str]) -> None:
        """A kernel's argument: a tensor's pointer carries its view, an integer may be a registered address."""
        if hasattr(argument, "data_ptr"):
            key = view_of(argument, "").key
            handle.attr[self] = self._provenance.view(argument, names.get(key, "argument"))
        elif isinstance(argument, int):
            self.loaded(handle)

    def loaded(self, handle: Any) -> None:
        """Integers that are the address of a registered tensor point into it."""
        data = handle.data
        if data.dtype.kind not in "iu" or data.itemsize != _POINTER_BYTES:
            return
        known = self._provenance
        found = known.at(int(data.item())) if data.size == 1 else known.among(data.view(np.int64))
        if found is not None:
            handle.attr[self] = found

    def wrappers(self, builder: Any, handle_type: Any, int64: Any) -> dict[str, Callable[..., Any]]:
        """Methods of the interpreter's builder that carry origins on; the plain ones do the work."""
        self._handle = lambda numbers: handle_type(numbers, int64)
        found: dict[str, Callable[..., Any]] = {
            "create_addptr": self._added(builder.create_addptr),
            "create_splat": self._splat(builder.create_splat),
            "create_split": self._split(builder.create_split),
            "binary_op": self._binary(builder.binary_op),
            "ternary_op": self._select(builder.ternary_op),
        }
        found |= {
            name: self._reshaped(getattr(builder, name)) for name in _RESHAPED if hasattr(builder, name)
        }
        found |= {name: self._same(getattr(builder, name)) for name in _SAME}
        found |= {name: self._both(getattr(builder, name)) for name in ("create_cat", "create_join")}
        return found

    def _numbers_in(self, handle: Any) -> Any:
        """A handle that has the origins' numbers as its data."""
        origin = handle.attr.get(self)
        return self._handle(spread(UNKNOWN if origin is None else origin, handle.data.shape))

    def _added(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def add(pointer: Any, offset: Any) -> Any:
            result = plain(pointer, offset)
            origin = pointer.attr.get(self)
            if origin is not None:
                result.attr[self] = origin if type(origin) is int else spread(origin, result.data.shape)
            elif self in offset.attr:
                result.attr[self] = spread(offset.attr[self], result.data.shape)
            return result

        return add

    def _splat(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def splat(return_type: Any, argument: Any) -> Any:
            result = plain(return_type, argument)
            origin = argument.attr.get(self)
            if origin is not None:
                result.attr[self] = origin if type(origin) is int else spread(origin, result.data.shape)
            return result

        return splat

    def _reshaped(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def reshape(argument: Any, *rest: Any, **keywords: Any) -> Any:
            result = plain(argument, *rest, **keywords)
            origin = argument.attr.get(self)
            if origin is not None:
                uniform = type(origin) is int
                moved = origin if uniform else plain(self._numbers_in(argument), *rest, **keywords).data
                result.attr[self] = moved
            return result

        return reshape

    def _same(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def same(argument: Any, *rest: Any, **keywords: Any) -> Any:
            result = plain(argument, *rest, **keywords)
            origin = argument.attr.get(self)
            if (
                origin is not None
                and result.data.itemsize == _POINTER_BYTES
                and result.data.dtype.kind in "iu"
            ):
                result.attr[self] = origin
            return result

        return same

    def _split(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def split(argument: Any) -> Any:
            result = plain(argument)
            if self in argument.attr:
                for half, numbers in zip(result, plain(self._numbers_in(argument)), strict=True):
                    half.attr[self] = numbers.data
            return result

        return split

    def _both(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def both(lhs: Any, rhs: Any) -> Any:
            result = plain(lhs, rhs)
            if self in lhs.attr or self in rhs.attr:
                result.attr[self] = plain(self._numbers_in(lhs), self._numbers_in(rhs)).data
            return result

        return both

    def _binary(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def combine(lhs: Any, rhs: Any, op: Any) -> Any:
            result = plain(lhs, rhs, op)
            left, right = lhs.attr.get(self), rhs.attr.get(self)
            if left is None and right is None:
                return result
            # A sum of two addresses is none, and neither is their difference.
            kept = right if left is None and op is np.add else left if right is None else None
            if kept is not None and op in (np.add, np.subtract) and result.data.itemsize == _POINTER_BYTES:
                result.attr[self] = kept if type(kept) is int else spread(kept, result.data.shape)
            return result

        return combine

    def _select(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def select(condition: Any, lhs: Any, rhs: Any, op: Any) -> Any:
            result = plain(condition, lhs, rhs, op)
            left, right = lhs.attr.get(self), rhs.attr.get(self)
            if (left is None and right is None) or op is not np.where:
                return result
            if type(left) is int and left == right:
                result.attr[self] = left
            else:
                either = self._numbers_in(lhs).data, self._numbers_in(rhs).data
                result.attr[self] = np.where(condition.data, *either)
            return result

        return select


def spread(origin: Origin, shape: tuple[int, ...]) -> Integers:
    return np.broadcast_to(np.asarray(origin, np.int64), shape)
