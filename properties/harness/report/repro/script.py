"""Writes `repro.py`: a case as a script that needs torch and the subject, and nothing of this harness; and the same for pytest.

A reader finds in this order what is wrong, what is called and what should come out, how the subject is found, and the code
that makes this run. That code is carried from the modules of `runtime`, as far as the case needs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from properties.harness import rooms
from properties.harness.case import Case
from properties.harness.case.values import (
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
from properties.harness.diagnose.rerun import differs
from properties.harness.execution.objects.memory import KnownMemory
from properties.harness.execution.run import Follower, recorded
from properties.harness.report.repro.adapter import called
from properties.harness.report.repro.assemble import Script, assembled
from properties.harness.report.repro.literals import elements_of, literal
from properties.harness.report.repro.parts import (
    AS_SCRIPT,
    AS_TEST,
    STATECHECK_USAGE,
    Usage,
    filled,
    in_docstring,
    seen,
    subject_part,
)
from properties.harness.report.repro.renaming import reserved_names, with_own_names


def repro_script(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The script's text.

    Args:
        directory: where the script will stand; the path to the subject is written relative to it.
        subject_root: the folder to import the subject from, None where it is installed.
    """
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    if needs_statecheck(case):
        return _replaying_script(case, directory, root)
    script, stated = _of_case(case, root, AS_SCRIPT)
    depends = "" if case.is_decisive else case.depends_on
    told = ", ".join(filter(None, (stated and repr(stated), depends and f"depends_on={depends!r}")))
    ended = f"end({', '.join(filter(None, ('check', told)))})"
    return assembled(replace(script, statements=(*script.statements, ended)))


def repro_test(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The same as a file for pytest, "" where it takes statecheck; arguments as of `repro_script`."""
    if needs_statecheck(case):
        return ""
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    script, stated = _of_case(case, root, AS_TEST)
    checked = f"check, {stated!r}" if stated else "check"
    ends = case.device == "cpu" and case.failure is not None and case.failure.kind in ("fault", "hang")
    test = f"""\
def test_{case.property_name}() -> None:
    wrong = {"wrong_in_child" if ends else "wrong_with"}({checked})
    assert wrong == [], "\\n".join(wrong)"""
    return assembled(replace(script, test=test))


def needs_statecheck(case: Case) -> bool:
    """Whether Triton's interpreter cannot show what is wrong: an access has to be watched, or programs run in another order."""
    return case.sanitized or (case.device == "cpu" and any(call.schedule for call in case.calls))


def _of_case(case: Case, root: str, usage: Usage) -> tuple[Script, str]:
    """What scripts and tests of a case share, and what `_stated` says of it."""
    part = subject_part(case, root, usage)
    case = with_own_names(case)
    body = [f"    {line}" if line else "" for line in _steps(case)]
    seen_with = part.seen_with and f" with {part.seen_with}"
    script = Script(
        docstring=(
            f"Counterexample to: {in_docstring(case.property_name)}",
            in_docstring(case.should_hold),
            f"Seen{seen_with}: {seen(case)}",
            part.usage,
        ),
        check="\n".join(
            [
                "def check() -> None:",
                '    """What is called with what, and what should come out."""',
                *body,
            ]
        ),
        adapter=part.adapter,
        device=f'os.environ.get("DEVICE", {json.dumps(case.device)})',
        statements=(*part.statements, f"require({called(case)!r})"),
    )
    return script, _stated(case)


def _stated(case: Case) -> str:
    """What a condition says is wrong with outcomes of which each alone is what the rules expect, "" where there is none.

    The script cannot judge the condition; as long as it sees these outcomes, the condition is as it was.
    """
    if case.failure is None or differs(case):
        return ""
    return case.failure.message


def _replaying_script(case: Case, directory: Path, root: str) -> str:
    """A script for what Triton's interpreter does not show: it has this harness replay the case."""
    checkout = os.path.relpath(rooms.FOLDER, directory)
    places = ", ".join(map(json.dumps, (case.subject, root, checkout)))
    return assembled(
        Script(
            docstring=(
                f"Counterexample to: {in_docstring(case.property_name)}",
                filled(STATECHECK_USAGE, {"@SUBJECT@": in_docstring(case.subject)}),
            ),
            statements=(f"replay_with_statecheck({places})",),
        )
    )


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
            yield f"{step.name} = {f'guarded({value})' if step.name in damaged else value}"
        elif isinstance(rules.memory.names[step.name], View):
            yield f"overwrite_view({step.name}, {elements_of(step.elements)})"
        else:
            yield f"overwrite({step.name}, {elements_of(step.elements)})"


def _damaged(case: Case) -> set[str]:
    """Names of tensors around which the subject wrote."""
    after = (pair for outcome in case.actual for pair in outcome.after)
    return {name for name, value in after if isinstance(value, Record) and value.type == "Damaged"}


def _call(call: Call, expected: Expected, results: set[str], memory: KnownMemory) -> Iterator[str]:
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
    if watched:
        yield f"before = snapshot({watched})"
    ours = call.function.startswith("harness.")
    function = call.function.removeprefix("harness.") if ours else f"subject.{call.function}"
    invocation = f"lambda: {function}({arguments})"
    if isinstance(expected, Refusal):
        yield f"expect_refusal({expected.exception!r}, {expected.argument!r}, {invocation})"
    else:
        result = call.bind or "result"
        yield f"{result} = attempt({invocation})"
        yield f"if {result} is not FAILED:"
        yield from (f"    {line}" for line in _checks(result, expected.value))
    observed = [name for name in call.observes if isinstance(memory.names.get(name), (Tensor, View))]
    if watched:
        yield f"expect_untouched({', '.join(['before', *observed])})"
    yield from _observations(call, expected, memory)


def _observations(call: Call, expected: Expected, memory: KnownMemory) -> Iterator[str]:
    known = dict(expected.after)
    for name in call.observes:
        if name in known:
            same = "  # as before" if memory.contents(name) == known[name] else ""
            yield _observation(name, known[name], memory.names.get(name)) + same


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
    taken = name in memory.names or name in reserved_names()
    return f"{name}_" if name == "self" or (taken and value != Name(name)) else name


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
