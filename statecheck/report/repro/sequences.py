"""A case of a library of sequences as a script: the port's own, which needs the library alone, or one that calls the port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Any

from statecheck.case import Case
from statecheck.subject import Subject
from statecheck.text import visible

_LONGEST = 400


def sequence_script(case: Case, subject: Subject, root: str) -> str:
    """The script's text.

    Args:
        root: the folder that the port's module is imported from, "" where it is installed.
    """
    made, operations = _parts(case)
    choices = subject.sequences
    written = choices.script if choices is not None else None
    head = f"# {visible(shorten(case.message, _LONGEST))}\n"
    if written is not None:
        return head + written(made["model"], made["seed"], made["features"], operations)
    lines = [f"import sys; sys.path.insert(0, {root!r})"] if root else []
    lines += [f"import {subject.module.__name__} as port", ""]
    contexts = sorted({arguments["context"] for _, arguments in operations} | {0})
    new = f"port.new({made['model']!r}, {made['seed']}{_named(made['features'])})"
    lines += [f"c{number} = {new}" for number in contexts]
    return (
        head + "\n".join([*lines, *(_line(name, dict(arguments)) for name, arguments in operations)]) + "\n"
    )


def _parts(case: Case) -> tuple[Mapping[str, Any], list[tuple[str, Mapping[str, Any]]]]:
    """The arguments of the context, and the operations by name with theirs."""
    first, *others = case.calls
    return first.named, list(_operations(others))


def _operations(calls: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for call in calls:
        named = call.named
        named.pop("self", None)
        yield call.function.rpartition(".")[2], named


def _line(name: str, arguments: dict[str, Any]) -> str:
    context, features = f"c{arguments.pop('context')}", _named(arguments.pop("features", {}))
    saved = str(arguments.pop("name", "")).replace(" ", "_")
    given = "".join(f", {value!r}" for value in arguments.values())
    call = f"port.{name}({context}{given}{f', {saved}' if name == 'load' else ''}{features})"
    if name == "extend":
        return f"print([list(row) for row in {call}])"
    return f"{saved} = {call}" if name == "save" else call


def _named(features: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in features.items())
