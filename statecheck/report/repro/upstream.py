"""A case as a plain test of the project that has the defect: the call as a person would write it, and what should come out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Any, NoReturn

from statecheck.case import Case
from statecheck.case.values import DType, Expected, Record, Refusal, Tensor, Value
from statecheck.report.repro.literals import literal
from statecheck.subject import Subject
from statecheck.util.text import visible

MOST_LINES = 40
_LONGEST = 120
AS_LISTS = '''\
def as_lists(value):
    """Tensors and tuples as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [as_lists(one) for one in value] if isinstance(value, (list, tuple)) else value'''


def upstream_test(case: Case, subject: Subject) -> str:
    """The text of a test module that imports the subject alone, of at most `MOST_LINES` lines.

    Raises:
        ValueError: a plain call does not show what the case shows, with the reason.
    """
    call, expected = failing_call(case)
    module, name = _home(case, subject, call.function)
    if subject.functions:
        written = f"{module.rpartition('.')[2]}.{own_call(case, name)}"
    else:
        arguments = [_plain(value, key) for key, value in call.arguments]
        arguments += [f"{key}={_plain(value, key)}" for key, value in call.keywords]
        written = f"{module.rpartition('.')[2]}.{name}({', '.join(arguments)})"
    lines = list(_lines(case, module, written, expected))
    if len(lines) > MOST_LINES or max(map(len, lines)) > 10 * _LONGEST:
        _refuse(f"the call takes {len(lines)} lines of up to {max(map(len, lines)):,} characters", case)
    return "\n".join(lines) + "\n"


def failing_call(case: Case) -> tuple[Any, Expected]:
    """The call that shows the failure, and what it should do.

    Raises:
        ValueError: as `upstream_test`.
    """
    failure = case.failure
    if case.model:
        _refuse("repro.py is a script for the library alone already", case)
    if any(call.function.endswith("Engine") for call in case.calls):
        _refuse("a scenario runs in an engine around a forward of statecheck's own", case)
    if failure is None or failure.call is None or failure.kind not in ("value", "refusal"):
        _refuse("no single call shows the failure by what it returns or raises", case)
    if case.sanitized or any(one.schedule for one in case.calls) or case.device != "cpu":
        _refuse("it takes statecheck, or a GPU, to see the failure", case)
    return case.calls[failure.call], case.expected[failure.call]


def _home(case: Case, subject: Subject, function: str) -> tuple[str, str]:
    """The module to import and the name in it: where the project itself defines the function."""
    if subject.functions:
        return subject.module.__name__, subject.own_name(function)
    try:
        found = subject.resolve(function)
    except AttributeError:
        _refuse(f"{subject.name} has no {function}", case)
    module = str(getattr(found, "__module__", ""))
    if module.partition(".")[0] in ("subjects", "statecheck", "oracle", ""):
        _refuse(f"an adapter stands between {function} and the project's own code", case)
    return module, str(getattr(found, "__qualname__", function))


def own_call(case: Case, name: str) -> str:
    """The call of a port's own function, which has plain values only."""
    assert case.failure is not None
    assert case.failure.call is not None
    lines = case.own_calls[case.failure.call].splitlines() if case.own_calls else []
    line = next((line for line in reversed(lines) if line.startswith(f"{name}(")), "")
    try:
        call = ast.parse(line, mode="eval").body
        assert isinstance(call, ast.Call)
        for keyword in call.keywords:
            ast.literal_eval(keyword.value)
    except (AssertionError, SyntaxError, ValueError):
        _refuse(f"the call of {name} has values that are no plain numbers and lists", case)
    return line


def _plain(value: Value, name: str) -> str:
    if isinstance(value, (Tensor, DType)) or (not isinstance(value, Record) and _is_data(value)):
        return literal(value).replace(", device=DEVICE", "")
    raise ValueError(
        f"{name} = {type(value).__name__}, but should be a number, a list or a tensor [upstream]"
    )


def _is_data(value: Value) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(one, Tensor) or _is_data(one) for one in value)
    if isinstance(value, Mapping):
        return all(map(_is_data, value.values()))
    return value is None or isinstance(value, (bool, int, float, str))


def _lines(case: Case, module: str, written: str, expected: Expected) -> Iterator[str]:
    assert case.failure is not None
    package, _, last = module.rpartition(".")
    refused = isinstance(expected, Refusal)
    yield f'"""{visible(shorten(case.sentence, 300))}"""'.replace("\\", "")
    yield ""
    if refused:
        yield "import pytest"
    if "torch." in written:
        yield "import torch"
    yield f"from {package} import {last}" if package else f"import {last}"
    yield ""
    yield ""
    if not refused:
        yield from AS_LISTS.splitlines()
        yield ""
        yield ""
    yield f"def test_{case.property_name[:74]}():"
    if isinstance(expected, Refusal):
        yield f"    with pytest.raises({expected.exception}, match={expected.argument!r}):"
        yield f"        {written}"
        return
    yield f"    result = {written}"
    yield ""
    yield f"    # Seen: {visible(shorten(case.failure.sentence, _LONGEST))}"
    yield f"    assert as_lists(result) == {as_lists(expected.value)!r}"


def as_lists(value: Value) -> Any:
    """The expected value in the form to which the test brings the result."""
    if isinstance(value, Tensor):
        flat = [one.item() if hasattr(one, "item") else one for one in value.elements or ()]
        return _shaped(flat, value.shape)
    if isinstance(value, (list, tuple)):
        return [as_lists(one) for one in value]
    if _is_data(value):
        return value
    raise ValueError(f"expected = {type(value).__name__}, but should be numbers, lists or tensors [upstream]")


def _shaped(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    size = len(flat) // shape[0] if shape[0] else 0
    return [_shaped(flat[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]


def _refuse(reason: str, case: Case) -> NoReturn:
    raise ValueError(
        f"case = {case.property_name}, but should be one that a plain call shows: {reason} [upstream]"
    )
