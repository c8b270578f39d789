"""Values as Python source, in terms of torch, and of what `runtime` defines."""

from __future__ import annotations

import builtins
from functools import cache
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
from statecheck.report.repro.embed import runtime_names

_RUN = 8


@cache
def reserved_names() -> frozenset[str]:
    """What no variable of a case may be called in a script."""
    return runtime_names() | {"result", "before"} | frozenset(dir(builtins))


def script_name(name: str) -> str:
    """The variable of a case's name, or of a dotted path below it: another one if it would hide a name of the script."""
    root = name.partition(".")[0]
    # Names that begin so already get another one too, so that no two are the same.
    return f"own_{name}" if root in reserved_names() or root.startswith("own_") else name


def literal(value: Value) -> str:
    """`value` as Python source in terms of torch, `DEVICE` and what `runtime` defines."""
    match value:
        case list() | tuple():
            inner = ", ".join(map(literal, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        case dict():
            items = (f"{literal(key)}: {literal(item)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case bytes():
            return elements_of(value)
        case Tensor():
            return _tensor(value)
        case View() | Fake():
            return _tensor_elsewhere(value)
        case Record():
            fields = "".join(f", {name}={literal(item)}" for name, item in value.fields)
            return f"build({value.type!r}{fields})"
        case _:
            return _reference(value)


def _reference(value: Value) -> str:
    """What stands for a function, a name, or a part of another value; a plain value as it is."""
    match value:
        case DType():
            return f"torch.{value.name}"
        case Device():
            return "torch.device(DEVICE)"
        case Name():
            return script_name(value.name)
        case Returns():
            return f"lambda: {literal(value.value)}"
        case Function():
            return f"subject.{value.name}"
        case BufferMaker():
            return "make_buffer"
        case Rows():
            return f"rows({literal(value.of)})"
        case NumPy():
            return f"{literal(value.of)}.numpy()"
        case Attribute():
            return f"{literal(value.of)}.{value.path}"
        case _:
            return repr(value)


def _tensor_elsewhere(value: View | Fake) -> str:
    """A view of a tensor that has a name, or a tensor without memory."""
    strides = value.strides or Tensor(value.dtype, value.shape, None).contiguous_strides
    form = f"torch.{value.dtype}, {value.shape}, {strides}"
    if isinstance(value, View):
        return f"view_of({script_name(value.of)}, {form}, {value.offset})"
    return f"fake_tensor({form}, {value.address:#x}, DEVICE)"


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
