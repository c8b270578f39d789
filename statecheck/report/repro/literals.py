"""Values as Python source, in terms of torch, and of what `runtime` defines."""

from __future__ import annotations

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


def literal(value: Value) -> str:
    """`value` as Python source in terms of torch, `DEVICE` and what `runtime` defines."""
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, bytes):
        return elements_of(value)
    if isinstance(value, DType):
        return f"torch.{value.name}"
    if isinstance(value, Device):
        return "torch.device(DEVICE)"
    if isinstance(value, Name):
        return value.name
    if isinstance(value, Returns):
        return f"lambda: {literal(value.value)}"
    if isinstance(value, View):
        strides = value.strides or Tensor(value.dtype, value.shape, None).contiguous_strides
        return f"view_of({value.of}, torch.{value.dtype}, {value.shape}, {strides}, {value.offset})"
    if isinstance(value, Fake):
        strides = value.strides or Tensor(value.dtype, value.shape, None).contiguous_strides
        return f"fake_tensor(torch.{value.dtype}, {value.shape}, {strides}, {value.address:#x}, DEVICE)"
    if isinstance(value, Function):
        return f"subject.{value.name}"
    if isinstance(value, BufferMaker):
        return "make_buffer"
    if isinstance(value, Rows):
        return f"rows({literal(value.of)})"
    if isinstance(value, NumPy):
        return f"{literal(value.of)}.numpy()"
    if isinstance(value, Attribute):
        return f"{literal(value.of)}.{value.path}"
    if isinstance(value, Record):
        fields = "".join(f", {name}={literal(item)}" for name, item in value.fields)
        return f"build({value.type!r}{fields})"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _tensor(tensor: Tensor) -> str:
    place = ", device=DEVICE" if tensor.on == "device" else ""
    options = f"dtype=torch.{tensor.dtype}{place}"
    if tensor.elements is None:
        return f"torch.empty({tensor.storage_size}, {options}){_view(tensor)}"
    if tensor.is_dense:
        return _dense(tensor, options)
    return f"torch.tensor({elements_of(tensor.elements)}, {options}){_view(tensor)}"


def _dense(tensor: Tensor, options: str) -> str:
    if len(tensor.shape) == 2 and 0 not in tensor.shape:
        return f"torch.tensor([{', '.join(map(elements_of, tensor.rows()))}], {options})"
    flat = f"torch.tensor({elements_of(tensor.elements)}, {options})"
    return flat if len(tensor.shape) == 1 else f"{flat}.reshape({tensor.shape})"


def _view(tensor: Tensor) -> str:
    return f".as_strided({tensor.shape}, {tensor.strides or tensor.contiguous_strides}, {tensor.offset})"


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
