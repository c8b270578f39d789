"""What the rules answer to a call: the oracle's result in the shape in which a subject returns it.

Each module of this package serves one topic: it holds the arguments to their documented types, asks the oracle, and
dresses the answer in the documented types. Values are the oracle's business alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from oracle.errors import Refused
from properties.harness.case.values import Call, Expected, Refusal, Returned, Value

_TOPICS = (
    "types",
    "batch",
    "chunks",
    "layout",
    "shapes",
    "builders",
    "align",
    "align_kernels",
    "align_buffers",
    "align_runner",
)
_ANSWERS: dict[str, _Answer] = {}


@dataclass(frozen=True)
class _Answer:
    """A function that answers, and what it asks for beside the call's arguments."""

    function: Callable[..., Value]
    environment: bool
    memory: bool


def answers(
    *functions: str, environment: bool = False, memory: bool = False
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register the decorated function as the answer to calls of `functions`.

    It gets the call's arguments by name, and the environment variables as `environment` where it asks for them. Where it
    asks for `memory`, it gets what is known of the contents of every tensor, container and observed path before the call,
    by name and None where nothing is known, and returns `(value, after)`: the contents by name that the call leaves
    different, or finds out. Observed contents that `after` does not name stay as they were.
    """

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        _ANSWERS.update(dict.fromkeys(functions, _Answer(function, environment, memory)))
        return function

    return register


def answered() -> frozenset[str]:
    """The functions that have an answer."""
    _load()
    return frozenset(_ANSWERS)


def answer(call: Call, memory: Mapping[str, Value] | None = None) -> Expected:
    """The expected outcome of `call`, all of whose names are resolved.

    Args:
        memory: what is known before the call. `after` of the outcome holds what is known after it of everything that the
            call observes, and then of everything else that the answer names.
    """
    _load()
    known: dict[str, Value] = dict(memory or {})
    before = tuple((name, known[name]) for name in call.observes if known.get(name) is not None)
    try:
        value, after = _answered(_ANSWERS[call.function], call, known)
    except Refused as refused:
        return Refusal(refused.argument, after=before)
    except NotImplementedError:
        return Refusal("", "NotImplementedError", before)
    return Returned(value, after=tuple((dict(before) | after).items()))


def _answered(asked: _Answer, call: Call, known: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
    arguments: dict[str, Any] = dict(call.named)
    if asked.environment:
        arguments["environment"] = dict(call.environment)
    if not asked.memory:
        return asked.function(**arguments), {}
    value, after = asked.function(**arguments, memory=known)
    return value, after


@lru_cache
def _load() -> None:
    for topic in _TOPICS:
        importlib.import_module(f"properties.harness.expectations.{topic}")
