"""What the rules answer to a call: the oracle's result in the shape in which a subject returns it.

Each module of this package serves one topic: it holds the arguments to their documented types (`vector`, `matrix`, `whole`), asks the oracle, and
dresses the answer in the documented types. Values are the oracle's business alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from oracle.rules import Refused
from statecheck.case.values import Call, Expected, Refusal, Returned, Tensor, Value
from statecheck.subject.profile import DOCUMENTS, Profile

_TOPICS = ("layout", "batch", "builders", "align", "engines", "recurrences")
Rule = Callable[..., Any]
"""A function of the oracle."""
_ANSWERS: dict[str, _Answer] = {}
_RULES: dict[str, Rule] = {}
_NO_ARGUMENTS = frozenset({"self", "environment", "memory", "profile", "call", "arguments", "options", "_"})
"""Parameters of answers that are no single argument of a call."""


@dataclass(frozen=True)
class _Answer:
    """A function that answers, and its parameters."""

    function: Callable[..., Value]
    parameters: frozenset[str]


def answers(
    *functions: str, rule: Rule | Mapping[str, Rule] | None = None
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register the decorated function as the answer to calls of `functions`, of which `rule` is the oracle's rule, for reports.

    Several functions, or the kernels that a call launches, may each have their own rule, by name.

    It gets the call's arguments by name, and what else it has parameters for: the `call` itself, its variables as `environment`, the
    profile of the release that is asked about as `profile`, and as `memory` what is known before the call of the contents of every tensor,
    container and observed path, by name, None where nothing is known. With `memory`, it returns `(value, after)`: the contents by
    name that the call leaves different, or finds out. Observed contents that `after` does not name stay as they were.
    """

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        answer = _Answer(function, frozenset(inspect.signature(function).parameters))
        _ANSWERS.update(dict.fromkeys(functions, answer))
        if isinstance(rule, Mapping):
            _RULES.update(rule)
        elif rule is not None:
            _RULES.update(dict.fromkeys(functions, rule))
        return function

    return register


def answered() -> frozenset[str]:
    """The functions that have an answer."""
    _load()
    return frozenset(_ANSWERS)


def rule_for(function: str) -> Rule | None:
    """The oracle's rule for a function, or for a kernel that is launched by itself; None where an answer asks no single rule."""
    _load()
    return _RULES.get(function)


def parameters(function: str) -> tuple[str, ...]:
    """The arguments of a call of the function that its answer depends on, by name; none of a function without an answer."""
    _load()
    if function not in _ANSWERS:
        return ()
    taken = inspect.signature(_ANSWERS[function].function).parameters
    return tuple(name for name in taken if name not in _NO_ARGUMENTS)


def reads_variables(function: str) -> bool:
    """Whether a call of the function may depend on environment variables; so may one of a function without an answer."""
    _load()
    return function not in _ANSWERS or bool(_ANSWERS[function].parameters & {"environment", "call"})


def answer(call: Call, memory: Mapping[str, Value] | None = None, profile: Profile = DOCUMENTS) -> Expected:
    """The expected outcome of `call`, all of whose names are resolved.

    Args:
        memory: what is known before the call. `after` of the outcome holds what is known after it of everything that the
            call observes, and then of everything else that the answer names.
        profile: of the release that the rules are to be those of.
    """
    _load()
    known: dict[str, Value] = dict(memory or {})
    before = tuple((name, known[name]) for name in call.observes if known.get(name) is not None)
    try:
        value, after = _answered(_ANSWERS[call.function], call, known, profile)
    except Refused as refused:
        return Refusal(refused.argument, after=before)
    except NotImplementedError:
        return Refusal("", "NotImplementedError", before)
    return Returned(value, after=tuple((dict(before) | after).items()))


def _answered(
    asked: _Answer, call: Call, known: dict[str, Value], profile: Profile
) -> tuple[Value, dict[str, Value]]:
    more: dict[str, Any] = {
        "environment": dict(call.environment),
        "profile": profile,
        "memory": known,
        "call": call,
    }
    taken = {name: value for name, value in more.items() if name in asked.parameters}
    answer = asked.function(**call.named, **taken)
    return answer if "memory" in taken else (answer, {})


@lru_cache
def _load() -> None:
    for topic in _TOPICS:
        importlib.import_module(f"statecheck.reference.{topic}")


INTEGERS = ("int32", "int64")


def vector(tensor: Any, name: str) -> tuple[int, ...]:
    """The values of a 1-D integer tensor."""
    return _checked(tensor, name, 1, INTEGERS).values()


def host_vector(tensor: Any, name: str, *, dtypes: tuple[str, ...] = INTEGERS) -> tuple[int, ...]:
    """The values of a 1-D tensor of one of `dtypes` on the host."""
    values = _checked(tensor, name, 1, dtypes).values()
    if tensor.on != "host":
        raise Refused(name, tensor.on, "be a CPU tensor")
    return values


def matrix(tensor: Any, name: str) -> tuple[tuple[int, ...], ...]:
    """The rows of a 2-D integer tensor."""
    return _checked(tensor, name, 2, INTEGERS).rows()


def whole(value: Any, name: str) -> int:
    """An int that is not a bool."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(name, value, "be an int")
    return value


def _checked(tensor: Any, name: str, rank: int, dtypes: tuple[str, ...]) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise Refused(name, tensor, "be a tensor")
    if len(tensor.shape) != rank:
        raise Refused(name, tensor.shape, f"be {rank}-D")
    if tensor.dtype not in dtypes:
        raise Refused(name, tensor.dtype, f"be one of {dtypes}")
    return tensor
