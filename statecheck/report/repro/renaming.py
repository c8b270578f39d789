"""Names of a case that stand for something else in a script: there, they are called otherwise."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from statecheck.case import Case
from statecheck.case.values import Call, Let, Name, Overwrite, Raised, Refusal, Returned, Tensor, View
from statecheck.report.repro.embed import runtime_names

_T = TypeVar("_T")


@cache
def reserved_names() -> frozenset[str]:
    """What no variable of a case may be called in a script."""
    return runtime_names() | {"result", "before"} | frozenset(dir(builtins))


def with_own_names(case: Case) -> Case:
    """The case with other names for what would hide a function of its script."""
    bound = set(_bound(case))
    others = {name: _other(name, bound) for name in bound & reserved_names()}
    if not others:
        return case
    parts = {name: _renamed(getattr(case, name), others) for name in ("steps", "expected", "actual")}
    return replace(case, **parts)


def _bound(case: Case) -> Iterator[str]:
    for step in case.steps:
        if isinstance(step, Let):
            yield step.name
        elif isinstance(step, Call) and step.bind:
            yield step.bind


def _other(name: str, taken: set[str]) -> str:
    other = f"own_{name}"
    while other in taken or other in reserved_names():
        other = f"own_{other}"
    return other


def _renamed(value: _T, others: Mapping[str, str]) -> _T:
    """A value, a step, or an outcome, with the other names wherever it names what a step has bound."""
    found: Any = value
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (tuple, list)):
        found = type(value)(_renamed(item, others) for item in value)
    elif isinstance(value, dict):
        found = {key: _renamed(item, others) for key, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: _renamed(getattr(value, one.name), others) for one in fields(value)}
        found = _relinked(replace(value, **parts), others)
    return found


def _relinked(value: Any, others: Mapping[str, str]) -> Any:
    if isinstance(value, (Name, Let, Overwrite)):
        return replace(value, name=others.get(value.name, value.name))
    if isinstance(value, View):
        return replace(value, of=others.get(value.of, value.of))
    if isinstance(value, (Returned, Raised, Refusal)):
        after = tuple((_path(name, others), content) for name, content in value.after)
        return replace(value, after=after)
    if isinstance(value, Call):
        bind, updates = (others.get(name, name) for name in (value.bind, value.updates))
        observes = tuple(_path(name, others) for name in value.observes)
        return replace(value, bind=bind, updates=updates, observes=observes)
    return value


def _path(name: str, others: Mapping[str, str]) -> str:
    """A name, or a dotted path below one."""
    root, dot, path = name.partition(".")
    return f"{others.get(root, root)}{dot}{path}"
