"""Values as Python source, in terms of torch and of the documents' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statecheck.case.values import (
    Attribute,
    BufferMaker,
    Device,
    DType,
    Fake,
    Function,
    Name,
    NumPy,
    Record,
    Returns,
    Rows,
    Tensor,
    Value,
    View,
)

_RUN = 8
"""Equal elements at the end of a list, from which on they are written as a product."""


def literal(value: Value, own: Callable[[str], str] = str) -> str:
    """`value` as Python source in terms of torch and `DEVICE`, the device of the run.

    Args:
        own: what the subject's function or class of that name is called in the source.
    """
    match value:
        case list() | tuple():
            inner = ", ".join(literal(item, own) for item in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        case dict():
            items = (f"{literal(key, own)}: {literal(item, own)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case bytes():
            return elements_of(value)
        case Tensor():
            return _tensor(value)
        case View():
            return f"{value.of}.view(torch.{value.dtype}){_view(value)}"
        case Fake():
            strides = value.strides or Tensor(value.dtype, value.shape, None).contiguous_strides
            return f"fake_tensor(torch.{value.dtype}, {value.shape}, {strides}, {value.address:#x}, DEVICE)"
        case Record():
            fields = ", ".join(f"{name}={literal(item, own)}" for name, item in value.fields)
            return f"{own(value.type)}({fields})"
        case DType():
            return f"torch.{value.name}"
        case Device():
            return "torch.device(DEVICE)"
        case Name():
            return value.name
        case Returns():
            return f"lambda: {literal(value.value, own)}"
        case Function():
            return own(value.name)
        case BufferMaker():
            return "make_buffer"
        case Rows():
            return f"lambda count: {literal(value.of, own)}[:count]"
        case NumPy():
            return f"{literal(value.of, own)}.numpy()"
        case Attribute():
            return f"{literal(value.of, own)}.{value.path}"
        case _:
            return repr(value)


def _tensor(tensor: Tensor) -> str:
    place = ", device=DEVICE" if tensor.on == "device" else ""
    options = f"dtype=torch.{tensor.dtype}{place}"
    if tensor.elements is None:
        return f"torch.empty({tensor.storage_size}, {options}){_view(tensor)}"
    if not tensor.is_dense:
        return f"torch.tensor({elements_of(tensor.elements)}, {options}){_view(tensor)}"
    if len(tensor.shape) == 2 and 0 not in tensor.shape:
        return f"torch.tensor([{', '.join(map(elements_of, tensor.rows()))}], {options})"
    flat = f"torch.tensor({elements_of(tensor.elements)}, {options})"
    return flat if len(tensor.shape) == 1 else f"{flat}.reshape({tensor.shape})"


def _view(view: Tensor | View) -> str:
    strides = view.strides or Tensor(view.dtype, view.shape, None).contiguous_strides
    return f".as_strided({view.shape}, {strides}, {view.offset})"


def elements_of(elements: Any) -> str:
    """A list display, of many bytes as hexadecimal digits; a long run of one number at the end is written as a product."""
    items = list(elements)
    run = 0
    while run < len(items) and items[-1 - run] == items[-1]:
        run += 1
    if isinstance(elements, bytes) and len(elements) - run > _RUN:
        return f"list(bytes.fromhex({elements.hex(' ')!r}))"
    if run <= _RUN:
        return repr(items)
    head = items[: len(items) - run]
    tail = f"[{items[-1]}] * {run}"
    return f"{head!r} + {tail}" if head else tail
