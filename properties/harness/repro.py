"""Writes `repro.py`: a case as a script that needs torch and the subject, and nothing of this harness."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from properties.harness.case import Case
from properties.harness.memory import Memory
from properties.harness.values import (
    Address,
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
    Expected,
    Fake,
    Function,
    Let,
    Name,
    NumPy,
    Record,
    Refusal,
    Returned,
    Returns,
    Rows,
    SameAs,
    Tensor,
    Value,
    View,
)

_TEMPLATE = Path(__file__).with_name("repro_template.txt")
_WATCHED = Path(__file__).with_name("repro_watched_template.txt")
_ROOT = Path(__file__).resolve().parents[2]
_SCHEDULES = Path(__file__).with_name("schedules.py")
_RUN = 8


def repro_script(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The script's text.

    Args:
        directory: where the script will stand; the path to the subject is written relative to it.
        subject_root: the folder to import the subject from, None where it is installed.
    """
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    if case.sanitized and case.order is None:
        return _watched_script(case, directory, root)
    case = case.in_order(case.order or "")
    body = "\n".join(f"    {line}" if line else "" for line in _steps(case))
    filled = {
        "@PROPERTY@": case.property_name,
        "@SENTENCE@": case.sentence.replace("\\", "").replace('"""', "'''"),
        "@SUBJECT@": case.subject,
        "@ROOT@": root,
        "@DEVICE@": case.device,
        "@SCHEDULES@": _schedules(case),
        "@BODY@": body,
    }
    text = _TEMPLATE.read_text(encoding="utf-8")
    for mark, value in filled.items():
        text = text.replace(mark, value)
    return text


def _watched_script(case: Case, directory: Path, root: str) -> str:
    """A script for what no bytes show: it asks the sanitizer, which is part of this harness."""
    filled = {
        "@PROPERTY@": case.property_name,
        "@SUBJECT@": case.subject,
        "@ROOT@": root,
        "@STATECHECK@": os.path.relpath(_ROOT, directory),
    }
    text = _WATCHED.read_text(encoding="utf-8")
    for mark, value in filled.items():
        text = text.replace(mark, value)
    return text


def _schedules(case: Case) -> str:
    """What runs programs in another order than the plain one, where the case does."""
    if not any(call.schedule for call in case.calls):
        return ""
    text = _SCHEDULES.read_text(encoding="utf-8").replace("from __future__ import annotations\n\n", "")
    return f"\n\n{text.rstrip()}\n"


def _steps(case: Case) -> Iterator[str]:
    expected = iter(case.expected)
    results: set[str] = set()
    memory, damaged = Memory(), _damaged(case)
    for step in case.steps:
        if isinstance(step, Call):
            yield from _call(step, next(expected), results, memory)
            if step.bind:
                results.add(step.bind)
                memory.bind(step.bind, step)
            continue
        memory.note(step)
        if isinstance(step, Let):
            value = literal(step.value)
            yield f"{step.name} = {f'guarded({value})' if step.name in damaged else value}"
        elif isinstance(memory.names[step.name], View):
            yield f"overwrite_view({step.name}, {_elements(step.elements)})"
        else:
            yield f"overwrite({step.name}, {_elements(step.elements)})"


def _damaged(case: Case) -> set[str]:
    """Names of tensors around which the subject wrote."""
    after = (pair for outcome in case.actual for pair in outcome.after)
    return {name for name, value in after if isinstance(value, Record) and value.type == "Damaged"}


def _call(call: Call, expected: Expected, results: set[str], memory: Memory) -> Iterator[str]:
    yield ""
    yield f"environment({dict(call.environment)!r})"
    variables = {name: _variable(name, value, memory) for name, value in call.named.items()}
    for name, value in call.named.items():
        if not (isinstance(value, Name) and value.name == variables[name]):
            yield f"{variables[name]} = {literal(value)}"
    arguments = ", ".join(
        [variables[name] for name, _ in call.arguments]
        + [f"{name}={variables[name]}" for name, _ in call.keywords]
    )
    watched = ", ".join(
        f"{variables[name]}={variables[name]}"
        for name, value in call.named.items()
        if _watched(value, results) and not (isinstance(value, Name) and value.name in call.observes)
    )
    yield f"before = snapshot({watched})"
    owner = "" if call.function.startswith("harness.") else "subject."
    invocation = f"lambda: {owner}{call.function}({arguments})"
    if call.schedule:
        invocation = f"in_order({call.schedule!r}, {invocation})"
    if isinstance(expected, Refusal):
        yield f"expect_refusal({expected.exception!r}, {expected.argument!r}, {invocation})"
    else:
        result = call.bind or "result"
        yield f"{result} = attempt({invocation})"
        yield f"if {result} is not FAILED:"
        yield from (f"    {line}" for line in _checks(result, expected.value))
    observed = [name for name in call.observes if isinstance(memory.names.get(name), (Tensor, View))]
    yield f"expect_untouched({', '.join(['before', *(observed if watched else ())])})"
    yield from _observations(call, expected, memory)
    if isinstance(expected, Returned):
        memory.learn(dict(expected.after))


def _observations(call: Call, expected: Expected, memory: Memory) -> Iterator[str]:
    known = dict(expected.after)
    for name in call.observes:
        if name in known:
            same = "  # as before" if memory.contents(name) == known[name] else ""
            yield _observation(name, known[name], memory.names.get(name)) + same


def _observation(name: str, expected: Value, bound: Value) -> str:
    if isinstance(bound, Tensor):
        return f"expect_storage({name!r}, {name}, {_elements(expected.elements)})"
    if isinstance(bound, View):
        return f"expect_elements({name!r}, {name}, {_elements(expected.elements)})"
    if isinstance(expected, Tensor):
        return f"expect_tensor({name!r}, torch.as_tensor({name}), {literal(expected)})"
    return f"expect({name!r}, {name}, {literal(expected)})"


def _variable(name: str, value: Value, memory: Memory) -> str:
    """The variable of an argument: its name, unless that is what something else is called already."""
    taken = name in memory.names or name in _helpers()
    return f"{name}_" if name == "self" or (taken and value != Name(name)) else name


@cache
def _helpers() -> frozenset[str]:
    """What the template itself calls by name."""
    return frozenset(
        re.findall(r"^(?:def|class|import) (\w+)", _TEMPLATE.read_text(encoding="utf-8"), re.MULTILINE)
    )


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
    if isinstance(value, bytes):
        return _elements(value)
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
        return f"Fake(torch.{value.dtype}, {value.shape}, {strides}, {value.address:#x})"
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
    return f"torch.tensor({_elements(tensor.elements)}, {options}){_view(tensor)}"


def _dense(tensor: Tensor, options: str) -> str:
    if len(tensor.shape) == 2 and 0 not in tensor.shape:
        return f"torch.tensor([{', '.join(map(_elements, tensor.rows()))}], {options})"
    flat = f"torch.tensor({_elements(tensor.elements)}, {options})"
    return flat if len(tensor.shape) == 1 else f"{flat}.reshape({tensor.shape})"


def _view(tensor: Tensor) -> str:
    return f".as_strided({tensor.shape}, {tensor.strides or tensor.contiguous_strides}, {tensor.offset})"


def _elements(elements: Any) -> str:
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
