"""The documented types of arguments: which tensor an oracle may be asked about at all."""

from __future__ import annotations

from typing import Any

from oracle.errors import Refused
from statecheck.case.values import Tensor

INTEGERS = ("int32", "int64")


def vector(tensor: Any, name: str) -> tuple[int, ...]:
    """The values of a 1-D integer tensor."""
    return _checked(tensor, name, 1, INTEGERS).values()


def host_vector(tensor: Any, name: str, *, dtypes: tuple[str, ...] = INTEGERS) -> tuple[int, ...]:
    """The values of a 1-D tensor of one of `dtypes` on the host."""
    values = _checked(tensor, name, 1, dtypes).values()
    if tensor.on != "host":
        raise Refused(name, tensor.on, "be a CPU tensor")
    return values


def matrix(tensor: Any, name: str) -> tuple[tuple[int, ...], ...]:
    """The rows of a 2-D integer tensor."""
    return _checked(tensor, name, 2, INTEGERS).rows()


def whole(value: Any, name: str) -> int:
    """An int that is not a bool."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(name, value, "be an int")
    return value


def _checked(tensor: Any, name: str, rank: int, dtypes: tuple[str, ...]) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise Refused(name, tensor, "be a tensor")
    if len(tensor.shape) != rank:
        raise Refused(name, tensor.shape, f"be {rank}-D")
    if tensor.dtype not in dtypes:
        raise Refused(name, tensor.dtype, f"be one of {dtypes}")
    return tensor
