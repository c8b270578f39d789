"""Single parts of what a subject returned as plain data, and what has no such form."""

from __future__ import annotations

import math
from typing import Any

import torch

from statecheck.case.raised import error_text, from_outside, name_of, plain_text
from statecheck.case.values import Record, Value, record

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
