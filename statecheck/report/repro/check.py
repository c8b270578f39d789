"""The body of a script's function `check`: each step of a case as lines of Python, and what should come out of it."""

from __future__ import annotations

from collections.abc import Iterator

from statecheck.case import Case
from statecheck.case.values import (
    Address,
    Call,
    Expected,
    Let,
    Name,
    Record,
    Refusal,
    SameAs,
    Tensor,
    Value,
    View,
)
from statecheck.execution.objects.memory import KnownMemory
from statecheck.execution.run import Follower, recorded
from statecheck.report.repro.literals import elements_of, literal, reserved_names, script_name


def check_source(case: Case) -> str:
    """The whole function."""
    head = ["def check() -> None:", '    """What is called with what, and what should come out."""']
    return "\n".join([*head, *(f"    {line}" if line else "" for line in _steps(case))])


def _steps(case: Case) -> Iterator[str]:
    damaged = _damaged(case)
    results: set[str] = set()
    rules = Follower(recorded(case.expected))
    for step, asked in rules.follow(case.steps):
        if isinstance(step, Call):
            assert asked is not None
            yield from _call(step, asked.expected, results, rules.memory)
            if step.bind:
                results.add(step.bind)
        elif isinstance(step, Let):
            value = literal(step.value)
            yield f"{script_name(step.name)} = {f'guarded({value})' if step.name in damaged else value}"
        else:
            function = "overwrite_view" if isinstance(rules.memory.names[step.name], View) else "overwrite"
            yield f"{function}({script_name(step.name)}, {elements_of(step.elements)})"


def _damaged(case: Case) -> set[str]:
    """Names of tensors around which the subject wrote."""
    after = (pair for outcome in case.actual for pair in outcome.after)
    return {name for name, value in after if isinstance(value, Record) and value.type == "Damaged"}


def _call(call: Call, expected: Expected, results: set[str], memory: KnownMemory) -> Iterator[str]:
    yield ""
    yield f"environment({dict(call.environment)!r})"
    variables = {name: _variable(name, value, memory) for name, value in call.named.items()}
    for name, value in call.named.items():
        if literal(value) != variables[name]:
            yield f"{variables[name]} = {literal(value)}"
    watched = _unchanged(call, variables, results)
    if watched:
        yield f"before = snapshot({watched})"
    invocation = _invocation(call, variables)
    if isinstance(expected, Refusal):
        yield f"expect_refusal({expected.exception!r}, {expected.argument!r}, {invocation})"
    else:
        result = script_name(call.bind) if call.bind else "result"
        yield f"{result} = attempt({invocation})"
        yield f"if {result} is not FAILED:"
        yield from (f"    {line}" for line in _checks(result, expected.value))
    observed = [
        script_name(name) for name in call.observes if isinstance(memory.names.get(name), (Tensor, View))
    ]
    if watched:
        yield f"expect_untouched({', '.join(['before', *observed])})"
    yield from _observations(call, expected, memory)


def _invocation(call: Call, variables: dict[str, str]) -> str:
    positional = [variables[name] for name, _ in call.arguments]
    keywords = [f"{name}={variables[name]}" for name, _ in call.keywords]
    ours = call.function.startswith("harness.")
    function = call.function.removeprefix("harness.") if ours else f"subject.{call.function}"
    return f"lambda: {function}({', '.join(positional + keywords)})"


def _unchanged(call: Call, variables: dict[str, str], results: set[str]) -> str:
    """Arguments whose memory must stay as it is, for `snapshot`."""
    return ", ".join(
        f"{variables[name]}={variables[name]}"
        for name, value in call.named.items()
        if _watched(value, results) and not (isinstance(value, Name) and value.name in call.observes)
    )


def _observations(call: Call, expected: Expected, memory: KnownMemory) -> Iterator[str]:
    known = dict(expected.after)
    for name in call.observes:
        if name in known:
            same = "  # as before" if memory.contents(name) == known[name] else ""
            yield _observation(script_name(name), known[name], memory.names.get(name)) + same


def _observation(name: str, expected: Value, bound: Value) -> str:
    if isinstance(bound, Tensor):
        return f"expect_storage({name!r}, {name}, {elements_of(expected.elements)})"
    if isinstance(bound, View):
        return f"expect_elements({name!r}, {name}, {elements_of(expected.elements)})"
    if isinstance(expected, Tensor):
        return f"expect_tensor({name!r}, torch.as_tensor({name}), {literal(expected)})"
    return f"expect({name!r}, {name}, {literal(expected)})"


def _variable(name: str, value: Value, memory: KnownMemory) -> str:
    """The variable of an argument: its name, unless that is what something else is called already."""
    taken = name in reserved_names() or (name in memory.names and value != Name(name))
    return f"{name}_" if name == "self" or taken else name


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
