"""What the rules answer to a call: the oracle's result in the shape in which a subject returns it.

Each module of this package serves one topic: it holds the arguments to their documented types, asks the oracle, and
dresses the answer in the documented types. Values are the oracle's business alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from oracle.errors import Refused
from properties.harness.values import Call, Expected, Refusal, Returned, Value

_TOPICS = ("types", "batch", "chunks", "layout", "shapes", "builders")
_ANSWERS: dict[str, tuple[Callable[..., Value], bool]] = {}


def answers(
    *functions: str, environment: bool = False
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register the decorated function as the answer to calls of `functions`.

    It gets the call's arguments by name, and the environment variables as `environment` where it asks for them.
    """

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        _ANSWERS.update(dict.fromkeys(functions, (function, environment)))
        return function

    return register


def answered() -> frozenset[str]:
    """The functions that have an answer."""
    _load()
    return frozenset(_ANSWERS)


def answer(call: Call) -> Expected:
    """The expected outcome of `call`, all of whose names are resolved."""
    _load()
    function, wants_environment = _ANSWERS[call.function]
    arguments: dict[str, Any] = dict(call.named)
    if wants_environment:
        arguments["environment"] = dict(call.environment)
    try:
        return Returned(function(**arguments))
    except Refused as refused:
        return Refusal(refused.argument)
    except NotImplementedError:
        return Refusal("", "NotImplementedError")


@lru_cache
def _load() -> None:
    for topic in _TOPICS:
        importlib.import_module(f"properties.harness.answers.{topic}")
