"""Writes `repro.py`: a case as a script that needs torch and the subject, and nothing of this harness."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from properties.harness.case import Case
from properties.harness.values import (
    Address,
    Call,
    Device,
    DType,
    Expected,
    Let,
    Name,
    Overwrite,
    Record,
    Refusal,
    Returns,
    SameAs,
    Tensor,
    Value,
)

_TEMPLATE = Path(__file__).with_name("repro_template.txt")
_RUN = 8


def repro_script(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The script's text.

    Args:
        directory: where the script will stand; the path to the subject is written relative to it.
        subject_root: the folder to import the subject from, None where it is installed.
    """
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    body = "\n".join(f"    {line}" if line else "" for line in _steps(case))
    filled = {
        "@PROPERTY@": case.property_name,
        "@SENTENCE@": case.sentence.replace("\\", "").replace('"""', "'''"),
        "@SUBJECT@": case.subject,
        "@ROOT@": root,
        "@DEVICE@": case.device,
        "@BODY@": body,
    }
    text = _TEMPLATE.read_text(encoding="utf-8")
    for mark, value in filled.items():
        text = text.replace(mark, value)
    return text


def _steps(case: Case) -> Iterator[str]:
    expected = iter(case.expected)
    results: set[str] = set()
    for step in case.steps:
        if isinstance(step, Let):
            yield f"{step.name} = {literal(step.value)}"
        elif isinstance(step, Overwrite):
            yield f"overwrite({step.name}, {_elements(step.elements)})"
        else:
            yield from _call(step, next(expected), results)
            results.add(step.bind)


def _call(call: Call, expected: Expected, results: set[str]) -> Iterator[str]:
    yield ""
    yield f"environment({dict(call.environment)!r})"
    positional = [_bound(name) for name, value in call.arguments]
    for name, value in call.named.items():
        if not (isinstance(value, Name) and value.name == _bound(name)):
            yield f"{_bound(name)} = {literal(value)}"
    arguments = ", ".join(positional + [f"{name}={_bound(name)}" for name, _ in call.keywords])
    watched = ", ".join(
        f"{_bound(name)}={_bound(name)}" for name, value in call.named.items() if _watched(value, results)
    )
    yield f"before = snapshot({watched})"
    owner = "" if call.function.startswith("harness.") else "subject."
    invocation = f"lambda: {owner}{call.function}({arguments})"
    if isinstance(expected, Refusal):
        yield f"expect_refusal({expected.exception!r}, {expected.argument!r}, {invocation})"
    else:
        result = call.bind or "result"
        yield f"{result} = attempt({invocation})"
        yield f"if {result} is not FAILED:"
        yield from (f"    {line}" for line in _checks(result, expected.value))
    yield "expect_untouched(before)"


def _bound(name: str) -> str:
    return "self_" if name == "self" else name


def _watched(value: Value, results: set[str]) -> bool:
    """Arguments whose memory must stay as it is; what a call returned, such as a builder, may change itself."""
    if isinstance(value, Tensor):
        return value.elements is not None
    return isinstance(value, Record) or (isinstance(value, Name) and value.name not in results)


def _checks(path: str, expected: Value) -> Iterator[str]:
    if isinstance(expected, (list, tuple)):
        yield f"expect_type({path!r}, {path}, {type(expected).__name__})"
        yield f'expect("len({path})", len({path}), {len(expected)})'
        for i, item in enumerate(expected):
            yield from _checks(f"{path}[{i}]", item)
    elif isinstance(expected, dict):
        yield f"expect({f'list({path})'!r}, list({path}), {list(expected)!r})"
        for key, item in expected.items():
            yield from _checks(f"{path}[{key!r}]", item)
    elif isinstance(expected, Record):
        yield f"expect({f'type({path}).__name__'!r}, type({path}).__name__, {expected.type!r})"
        for field, item in expected.fields:
            yield from _checks(f"{path}.{field}", item)
    else:
        yield _leaf(path, expected)


def _leaf(path: str, expected: Value) -> str:
    if isinstance(expected, Tensor):
        return f"expect_tensor({path!r}, {path}, {literal(expected)})"
    if isinstance(expected, SameAs):
        return f"expect({f'{path} is {expected.path}'!r}, {path} is {expected.path}, True)"
    if isinstance(expected, Address):
        offset = f"{path} - {expected.argument}.data_ptr()"
        return f"expect({offset!r}, {offset}, {expected.offset})"
    return f"expect({path!r}, {path}, {expected!r})"


def literal(value: Value) -> str:
    """`value` as Python source in terms of torch, `DEVICE` and the template's `build`."""
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, DType):
        return f"torch.{value.name}"
    if isinstance(value, Device):
        return "torch.device(DEVICE)"
    if isinstance(value, Name):
        return value.name
    if isinstance(value, Returns):
        return f"lambda: {literal(value.value)}"
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
    if tensor.strides is None and tensor.offset == 0:
        return _dense(tensor, options)
    return f"torch.tensor({_elements(tensor.elements)}, {options}){_view(tensor)}"


def _dense(tensor: Tensor, options: str) -> str:
    if len(tensor.shape) == 2 and 0 not in tensor.shape:
        return f"torch.tensor([{', '.join(map(_elements, tensor.rows()))}], {options})"
    flat = f"torch.tensor({_elements(tensor.values())}, {options})"
    return flat if len(tensor.shape) == 1 else f"{flat}.reshape({tensor.shape})"


def _view(tensor: Tensor) -> str:
    return f".as_strided({tensor.shape}, {tensor.strides or tensor.contiguous_strides}, {tensor.offset})"


def _elements(elements: Any) -> str:
    """A list display; a long run of one number at the end is written as a product."""
    items = list(elements)
    run = 0
    while run < len(items) and items[-1 - run] == items[-1]:
        run += 1
    if run <= _RUN:
        return repr(items)
    head = items[: len(items) - run]
    tail = f"[{items[-1]}] * {run}"
    return f"{head!r} + {tail}" if head else tail
