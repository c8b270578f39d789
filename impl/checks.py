"""Refusals: one grammar for every error that bad input causes, and the checks that raise it.

A message reads `argument = seen, but should be expected [function]`, so that a reader knows
what was passed, what is allowed and which function refused it.
"""

from collections.abc import Container
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

Int64s = npt.NDArray[np.int64]
# int32 or int64, as the tensor that it views.
Integers = npt.NDArray[np.integer[Any]]

INT32_MAX = torch.iinfo(torch.int32).max
INT64_MAX = torch.iinfo(torch.int64).max
INDEX_DTYPES = (torch.int32, torch.int64)


def refuse(argument: str, value: object, rule: str, function: str) -> NoReturn:
    """Raise the `ValueError` that names the argument, what it was, the rule, and the function."""
    raise ValueError(f"{argument} = {value}, but should be {rule} [{function}]")


def as_int(argument: str, value: object, function: str) -> int:
    """`value` as a Python int; bools and everything that is not an integer are refused."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    refuse(argument, repr(value), "an int", function)


def int_at_least(argument: str, value: object, least: int, function: str) -> int:
    """`value` as a Python int that is >= `least`."""
    number = value if type(value) is int else as_int(argument, value, function)
    if number < least:
        refuse(argument, number, f">= {least}", function)
    return number


def extremes(values: Integers) -> tuple[int, int]:
    """The least and the greatest of some integers, 0 and 0 of none."""
    # NumPy's own minimum and maximum of so few take several times as long.
    return (values.item(values.argmin()), values.item(values.argmax())) if values.size else (0, 0)


def one_of(argument: str, value: object, choices: tuple[str, ...], function: str) -> None:
    """Refuse a string outside `choices`."""
    if value not in choices:
        refuse(argument, repr(value), "one of " + ", ".join(map(repr, choices)), function)


def describe(value: object) -> str:
    """A tensor in the few words that a refusal needs: dtype, shape and device, never its values."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype} tensor of shape {tuple(value.shape)} on {value.device}"


def tensor_of(
    argument: str,
    value: object,
    ndim: int,
    function: str,
    *,
    dtypes: Container[torch.dtype] = INDEX_DTYPES,
    dtype_rule: str = "an int32 or int64 tensor",
) -> torch.Tensor:
    """`value` itself, if it is a tensor of that rank and one of those dtypes."""
    if not isinstance(value, torch.Tensor) or value.dtype not in dtypes:
        refuse(argument, describe(value), dtype_rule, function)
    if value.ndim != ndim:
        refuse(argument, describe(value), f"{ndim}-D", function)
    return value


def start_offsets(
    argument: str, value: object, function: str, first_is_zero: bool = False, most: int = INT64_MAX
) -> Integers:
    """Checked cumulative starts as a host array of the tensor's dtype.

    A tensor on a device costs one copy to the host; one on the CPU is viewed, not copied. `most` bounds
    the last one.
    """
    tensor = tensor_of(argument, value, 1, function)
    if tensor.numel() == 0:
        refuse(argument, describe(tensor), "at least one start", function)
    starts: Integers = tensor.cpu().numpy()
    check_starts(argument, starts, function, first_is_zero, most)
    return starts


def check_starts(argument: str, starts: Integers, function: str, first_is_zero: bool, most: int) -> None:
    """Refuse starts that decrease, end beyond `most`, or do not begin at the 0 asked for."""
    if first_is_zero and starts[0] != 0:
        refuse(f"{argument}[0]", int(starts[0]), "0", function)
    # Neighbours are compared, not subtracted: the difference of two extreme starts would wrap around.
    decreases = starts[1:] < starts[:-1]
    if decreases.any():
        at = int(decreases.argmax())
        rule = f">= {argument}[{at}] = {starts[at]}"
        refuse(f"{argument}[{at + 1}]", int(starts[at + 1]), rule, function)
    if starts[-1] > most:
        refuse(f"{argument}[{len(starts) - 1}]", int(starts[-1]), f"<= {most}", function)


def host_rows(
    argument: str,
    value: object,
    rows: int,
    function: str,
    *,
    dtypes: Container[torch.dtype] = INDEX_DTYPES,
    kind: str = "an int32 or int64",
) -> npt.NDArray[Any]:
    """The values of a 1-D tensor of `rows` entries on the host, of its dtype: a view, not a copy."""
    # One expression, because builders come here several times per step.
    if isinstance(value, torch.Tensor) and value.is_cpu and value.shape == (rows,) and value.dtype in dtypes:
        array: npt.NDArray[Any] = value.numpy()
        return array
    refuse(argument, describe(value), f"{kind} tensor of shape {(rows,)} on the CPU", function)


def device_rows(
    argument: str, value: object, rows: int, device: torch.device, function: str, ndim: int = 1
) -> torch.Tensor:
    """`value` itself, if it is an int32 or int64 tensor of that rank and many rows on the device."""
    if (
        isinstance(value, torch.Tensor)
        and value.ndim == ndim
        and value.shape[0] == rows
        and value.dtype in INDEX_DTYPES
        and value.device == device
    ):
        return value
    rule = f"an int32 or int64 tensor of {ndim} dimensions with {rows} rows on {device}"
    refuse(argument, describe(value), rule, function)
