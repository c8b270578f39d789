"""From objects to plain data: what a call returned, and what observed memory holds after it.

A subject may return anything: lists that hold themselves, tensors that have no elements to read, objects whose attributes raise.
What cannot be described becomes a record `Undescribable`, which no rule expects, so that it is a finding and not an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from statecheck.case.raised import error_text, from_outside, name_of, plain_text
from statecheck.case.values import CANARY, Place, Record, SameAs, Tensor, Value, record
from statecheck.execution.memory import (
    GUARD_BYTES,
    Allocation,
    Bound,
    Named,
    Scope,
    SubjectError,
    Window,
    raw_bytes,
    window,
)

_LARGEST = 64 << 10
"""Bytes. What is larger is read by itself: there, the bytes cost more than the wait."""


def on_host(found: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tensors among `found` that were read, each with a tensor of the host that has its elements, flat.

    Left out: what lies on the host, subclasses of `Tensor`, and what cannot be read as one run of bytes.
    """
    far = {id(one): one for one in found if type(one) is torch.Tensor and one.is_cuda and has_few_bytes(one)}
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for one in far.values():
        by_device.setdefault(one.device, []).append(one)
    return [pair for tensors in by_device.values() if len(tensors) > 1 for pair in read_together(tensors)]


def read_together(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each of these tensors of one device, all with few bytes, with its elements on the host, flat."""
    # The larger elements first, so that those of each tensor lie where its dtype may be viewed.
    ordered = sorted(tensors, key=lambda one: -one.element_size())
    # One element is contiguous at any stride, and its bytes may be viewed at a stride of one only.
    flat = [one.detach().as_strided((one.numel(),), (1,)) for one in ordered]
    together = torch.cat([one.view(torch.uint8) for one in flat]).cpu()
    sizes = [one.numel() * one.element_size() for one in ordered]
    return [(one, piece.view(one.dtype)) for one, piece in zip(ordered, together.split(sizes), strict=True)]


def has_few_bytes(found: torch.Tensor) -> bool:
    """Whether its elements are one run of bytes that is there, and is short."""
    if found.layout is not torch.strided or found.is_quantized or not found.is_contiguous():
        return False
    # The bytes of these are not yet what the elements are, or not one number each.
    if found.is_neg() or found.is_complex():
        return False
    # Views of a storage that was made smaller since have elements that are no longer there.
    nbytes = found.numel() * found.element_size()
    end = found.storage_offset() * found.element_size() + nbytes
    return 0 < nbytes <= _LARGEST and end <= found.untyped_storage().nbytes()


SCALARS = (type(None), bool, int, float, str)
_OUR_RECORDS = frozenset({"Damaged", "Missing", "Undescribable"})
_MOST_ELEMENTS = 1 << 24
_LONGEST_INT = 14_000
"""Bits. Python writes down at most 4,300 digits, which are 14,284 bits."""
_TOO_LARGE = 1 << _LONGEST_INT
_LONGEST_TEXT = 1_000_000


def undescribable(found: Any, why: str) -> Record:
    """What stands for an object of the subject's that has no form as plain data."""
    return record("Undescribable", type=name_of(type(found)), why=why)


class NotPlainError(Exception):
    """It cannot be described, for this reason; its cause is what the subject raised, if it did."""


class SubjectCode:
    """Attributes, iterators and tensors of the subject's may raise anything; here it is `NotPlainError`.

    What says that the device lacks memory, or has had a fault, is left to the caller, which knows about devices.
    """

    def __enter__(self) -> None:
        """The subject's code begins."""

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        """Raise the `NotPlainError` that stands for what the subject raised."""
        kept = (NotPlainError, MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)
        if error is None or isinstance(error, kept) or from_outside(error):
            return
        raise NotPlainError(error_text(error)) from error


def attribute(found: Any, name: str) -> Any:
    """An attribute of an object of the subject's, or the `NotPlainError` that stands for what it raised."""
    try:
        with SubjectCode():
            return getattr(found, name)
    except NotPlainError as error:
        return error


def scalar(found: Any) -> Value:
    """None, a number or a text as it is, where it can be written down."""
    if type(found) is int and found.bit_length() > _LONGEST_INT:
        raise NotPlainError(f"{found.bit_length()} bits")
    if type(found) is str:
        if len(found) > _LONGEST_TEXT:
            raise NotPlainError(f"{len(found)} characters")
        return plain_text(found)
    return math.nan if type(found) is float and math.isnan(found) else found


def are_integers(found: list[Any]) -> bool:
    """Whether all items are integers that `scalar` leaves as they are; there is at least one."""
    return set(map(type, found)) == {int} and min(found) > -_TOO_LARGE and max(found) < _TOO_LARGE


def part_of_scalar(found: Any) -> Record:
    """A number or a text of a type of its own, such as an enumeration's: not what the rules mean by that value."""
    plain = next(kind for kind in (int, float, str) if issubclass(type(found), kind))
    read = {int: int.__index__, float: float.__float__, str: str.__str__}[plain]
    return record(type_name(type(found)), value=scalar(read(found)))


def is_plain_key(key: Any) -> bool:
    """Whether nothing about a key of a dict has to be changed to write it down."""
    return type(key) in SCALARS and scalar(key) == key


def type_name(kind: type) -> str:
    """The name of a type of the subject's, apart from the records that we make."""
    name = name_of(kind)
    return f"{name} of the subject" if name in _OUR_RECORDS else name


def require_few(count: int) -> None:
    """Raise `NotPlainError` where there are too many elements to tell them."""
    # A view can have more elements than there is memory.
    if count > _MOST_ELEMENTS:
        raise NotPlainError(f"{count} elements")


def numbers(elements: list[Any]) -> tuple[int, ...]:
    """Elements as numbers, truth values among them.

    Raises:
        TypeError: an element is no number, as in a masked array.
    """
    kinds = set(map(type, elements))
    if kinds == {int}:
        return tuple(elements)
    # NaN is one object everywhere, so that what holds it equals itself.
    plain: list[Any] = [math.nan if one != one else one for one in elements]  # noqa: PLR0124
    if kinds <= {int, float}:
        return tuple(plain)
    return tuple(map(int, plain))


_ADDRESS_FIELDS = {("MambaCopySpec", "start_addr")}
MISSING = record("Missing")
_GUARD = bytes([CANARY]) * GUARD_BYTES
_DEEPEST = 50
_MOST_PARTS = 100_000


class Describer:
    """Describes objects as they are found from a run on `device`; `imaged` gives what to read instead of a tensor."""

    def __init__(
        self, device: str, imaged: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    ) -> None:
        self.device = device
        self._kind = torch.device(device).type
        self._imaged = imaged

    def result(self, result: Any, path: str, scope: Scope, *, by_content: bool = False) -> Value:
        """`result` as a value: its parts, and tensors by what they hold or by which of the arguments they are."""
        return _Description(self, scope, by_content).of(result, path)

    def tensor(self, tensor: torch.Tensor, read: torch.Tensor | None = None) -> Tensor:
        """The tensor by its elements; `read` has them, flat, where they are on the host already.

        Raises:
            NotPlainError: it has none that can be read.
        """
        place = self._place(tensor)
        require_few(tensor.numel())
        if tensor.dtype.is_complex:
            raise NotPlainError(f"elements of {tensor.dtype}")
        elements = (self._imaged(tensor).reshape(-1) if read is None else read).tolist()
        name = str(tensor.dtype).removeprefix("torch.")
        return Tensor(name, tuple(tensor.shape), numbers(elements), on=place)

    def read(self, found: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """As `on_host`, of those of which no image is there."""
        if self.device == "cpu":
            return []
        tensors = (one for one in found if type(one) is torch.Tensor)
        try:
            with SubjectCode():
                return on_host(one for one in tensors if self._imaged(one) is one)
        except NotPlainError:
            # Each is read alone then, and the error says which it was.
            return []

    def array(self, array: np.ndarray) -> Tensor:
        """The NumPy array by its elements; raises as `tensor`."""
        require_few(array.size)
        if array.dtype.kind not in "biuf":
            raise NotPlainError(f"elements of {array.dtype}")
        place: Place = "host" if self.device != "cpu" else "device"
        return Tensor(str(array.dtype), array.shape, numbers(array.reshape(-1).tolist()), on=place)

    def _place(self, tensor: torch.Tensor) -> Place:
        kind = tensor.device.type
        if kind not in ("cpu", self._kind):
            raise NotPlainError(f"on device {tensor.device}")
        return "host" if self.device != "cpu" and kind == "cpu" else "device"

    def observed(self, names: dict[str, Bound], name: str) -> Value:
        """What `name`, or the dotted path below a name, holds; the record `Missing` where there is nothing."""
        root, _, path = name.partition(".")
        bound = names.get(root)
        if isinstance(bound, Allocation) and not path:
            assert bound.before is not None, "memory without contents is observed through views"
            inside = self._contents(bound.inside.view(bound.view.dtype))
            before, after = bound.guards()
            if before == after == _GUARD:
                return inside
            return record("Damaged", before=before, inside=inside, after=after)
        if isinstance(bound, Window) and not path:
            # Not the view that the subject was handed: it may have been resized since.
            return self._contents(window(bound.block, bound.value))
        if bound is None or isinstance(bound, SubjectError):
            return MISSING
        found = bound.value if isinstance(bound, Named) else bound.view
        try:
            with SubjectCode():
                for part in filter(None, path.split(".")):
                    found = getattr(found, part)
                return self._contents(found)
        except NotPlainError as error:
            return (
                MISSING if isinstance(error.__cause__, AttributeError) else undescribable(found, str(error))
            )

    def _contents(self, found: Any) -> Value:
        """As `result`, by content; unsigned bytes, and the elements of float types, as bytes."""
        if issubclass(type(found), torch.Tensor) and (
            found.dtype is torch.uint8 or found.is_floating_point()
        ):
            place = self._place(found)
            require_few(found.numel())
            raw = raw_bytes(self._imaged(found))
            shape = tuple(found.shape) if found.dtype is torch.uint8 else (len(raw),)
            return Tensor("uint8", shape, raw, on=place)
        if type(found) is torch.Tensor:
            try:
                with SubjectCode():
                    return self.tensor(found)
            except NotPlainError as error:
                return undescribable(found, str(error))
        return self.result(found, "", Scope(), by_content=True)


@dataclass
class _Description:
    """One result on its way to plain data; `inside` are the objects that the one in hand is part of.

    `read`: tensors that were read together with others, by their ids, each with what it holds.
    """

    describer: Describer
    scope: Scope
    by_content: bool
    inside: list[int] = field(default_factory=list)
    parts: int = 0
    read: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def of(self, found: Any, path: str) -> Value:
        self.parts += 1
        try:
            # Of these no code of the subject's is run, and most parts are such.
            if type(found) in SCALARS:
                return scalar(found)
            if type(found) in (tuple, list):
                return self._nested(found, path, self._items)
            with SubjectCode():
                return self._described(found, path)
        except NotPlainError as error:
            return undescribable(found, str(error))

    def _described(self, found: Any, path: str) -> Value:
        # By their types alone: an object may say of itself that it is of another class, or raise when it is asked.
        kind = type(found)
        if issubclass(kind, torch.Tensor):
            return self._tensor(found, path)
        if is_dataclass(kind):
            return self._nested(found, path, self._fields)
        if issubclass(kind, dict):
            return self._nested(found, path, self._dict)
        if issubclass(kind, (list, tuple)):
            return self._nested(found, path, self._items)
        if issubclass(kind, np.ndarray):
            return self.describer.array(found)
        return part_of_scalar(found) if issubclass(kind, (int, float, str)) else Record(type_name(kind), ())

    def _nested(self, found: Any, path: str, described: Callable[[Any, str], Value]) -> Value:
        if id(found) in self.inside:
            raise NotPlainError("it holds itself")
        if len(self.inside) >= _DEEPEST:
            raise NotPlainError(f"nested more than {_DEEPEST} deep")
        self.inside.append(id(found))
        try:
            return described(found, path)
        finally:
            self.inside.pop()

    def _some(self, items: Any) -> list[Any]:
        """All of them, where these are not too many altogether: iterators need not end, and lists can share parts."""
        room = max(0, _MOST_PARTS - self.parts)
        found = list(islice(items, room + 1))
        if len(found) > room:
            raise NotPlainError(f"more than {_MOST_PARTS} parts")
        return found

    def _tensor(self, found: torch.Tensor, path: str) -> Value:
        if id(found) in self.scope.paths and not self.by_content:
            return SameAs(self.scope.paths[id(found)])
        _, read = self.read.get(id(found), (None, None))
        described = self.describer.tensor(found, read)
        if self.by_content:
            return described
        self.scope.add(path, Allocation(found, found, guarded=False))
        return described

    def _items(self, found: Any, path: str) -> Value:
        kind = list if issubclass(type(found), list) else tuple
        # What it holds: a class of the subject's own may say of itself what it likes.
        parts = self._some(kind.__iter__(found))
        if are_integers(parts):
            # What most lists hold.
            self.parts += len(parts)
            items: list[Value] = parts
        else:
            self._read(parts)
            items = [self.of(item, f"{path}[{i}]") for i, item in enumerate(parts)]
        if type(found).__iter__ is not kind.__iter__:
            iterated = [self.of(item, f"{path}[{i}]") for i, item in enumerate(self._some(iter(found)))]
            if items != iterated:
                raise NotPlainError("other items when it is iterated than it holds")
        return kind(items)

    def _dict(self, found: Any, path: str) -> Value:
        items = self._some(iter(dict.items(found)))
        self._read(item for _, item in items)
        plain = {key: self.of(item, f"{path}[{key!r}]") for key, item in items if is_plain_key(key)}
        if len(plain) == len(items):
            return plain
        pairs = [(self.of(key, path), self.of(item, path)) for key, item in items]
        return record("Dict", items=pairs)

    def _fields(self, found: Any, path: str) -> Record:
        kind = type_name(type(found))
        held = [(plain_text(one.name), attribute(found, one.name)) for one in self._some(iter(fields(found)))]
        self._read(item for _, item in held)
        described: list[tuple[str, Value]] = []
        for name, item in held:
            if not isinstance(item, NotPlainError):
                is_address = (kind, name) in _ADDRESS_FIELDS and type(item) is int
                value = self.scope.address(item) if is_address else self.of(item, f"{path}.{name}")
                described.append((name, value))
            # The record goes without a field that was never set.
            elif not isinstance(item.__cause__, AttributeError):
                described.append((name, undescribable(found, str(item))))
        return Record(kind, tuple(described))

    def _read(self, parts: Iterable[Any]) -> None:
        if self.describer.device == "cpu":
            return
        known = () if self.by_content else self.scope.paths
        pairs = self.describer.read(one for one in parts if id(one) not in known)
        # With the tensor, or else another one could come to have its id.
        self.read.update((id(pair[0]), pair) for pair in pairs)
