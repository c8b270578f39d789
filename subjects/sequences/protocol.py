"""A port's module: which functions it has, which features each of them takes, and its constants. See docs/sequences.md."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, Self

from oracle.sequences import FORMS, STOP
from statecheck.sequences import DAMAGES, OPERATIONS

VERSION = "STATECHECK_SEQUENCES"
NEEDED = ("models", "new", "extend")
CHOSEN_MODELS = "STATECHECK_MODELS"
"""Variable of the environment: names or patterns of the models to draw from, separated by commas."""


@dataclass(frozen=True)
class PortModule:
    """A port: its module, with the constants that it may leave out."""

    module: ModuleType
    tolerance: float
    tolerances: Mapping[tuple[str, Any], float]
    given_to_reference: tuple[str, ...]
    isolated: bool
    seconds: float
    megabytes: int
    known: str
    release: str
    unsupported: Mapping[str, str]
    effects: Mapping[str, str]
    again: int
    damages: tuple[str, ...]
    needs: Mapping[str, tuple[str, Any]]

    @classmethod
    def of(cls, module: ModuleType) -> Self:
        """The port in a module.

        Raises:
            ValueError: it lacks a function that is needed, or a constant cannot be.
        """
        name = module.__name__
        version = getattr(module, VERSION, None)
        if version != 1:
            raise ValueError(f"{VERSION} = {version!r}, but should be 1 [{name}]")
        missing = [function for function in NEEDED if not callable(getattr(module, function, None))]
        if missing:
            raise ValueError(f"{missing[0]} = nothing, but should be a function [{name}]")
        tolerances = dict(getattr(module, "TOLERANCES", {}))
        tolerance = getattr(module, "TOLERANCE", 0.01)
        for constant, value in (
            ("TOLERANCE", tolerance),
            *(("TOLERANCES", one) for one in tolerances.values()),
        ):
            if not isinstance(value, float) or not 0 < value < 0.1:
                raise ValueError(f"{constant} = {value!r}, but should be a float between 0 and 0.1 [{name}]")
        given = tuple(getattr(module, "GIVEN_TO_REFERENCE", ()))
        if unknown := {feature for feature, _ in tolerances} - {*given}:
            raise ValueError(
                f"TOLERANCES = of {min(unknown)!r}, but should be of features in GIVEN_TO_REFERENCE [{name}]"
            )
        return cls(
            module,
            tolerance,
            tolerances,
            given,
            bool(getattr(module, "ISOLATED", False)),
            float(getattr(module, "SECONDS", 20.0)),
            int(getattr(module, "MEGABYTES", 4096)),
            str(getattr(module, "KNOWN", "")),
            str(getattr(module, "RELEASE", "")),
            _unsupported(module),
            _effects(module),
            int(getattr(module, "AGAIN", 1)),
            _damages(module),
            _needs(module),
        )

    def function(self, name: str) -> Callable[..., Any] | None:
        """The port's function of that name, None where it has none."""
        found = getattr(self.module, name, None)
        return found if callable(found) else None

    def limit(self, features: Mapping[str, Any]) -> float:
        """The tolerance of a context with these features at most."""
        return max((self.tolerance, *(self.tolerances.get(item, 0.0) for item in features.items())))

    def offers(self, name: str) -> bool:
        """Whether it has the function; of `stop`, whether `generate` has the parameter, and of a form whether `extend` has it."""
        if name == STOP or name in FORMS:
            function = self.function("generate" if name == STOP else "extend")
            return function is not None and name in inspect.signature(function).parameters
        return self.function(name) is not None

    def models(self) -> Sequence[str]:
        """Names of models, those that `STATECHECK_MODELS` chooses.

        Raises:
            ValueError: there is none, a name is no text, or a choice is the name of none.
        """
        try:
            names = tuple(self.module.models())
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise ValueError(f"models() = {message}, but should be names [{self.module.__name__}]") from error
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"models() = {names!r}, but should be names [{self.module.__name__}]")
        if len(set(names)) < len(names):
            raise ValueError(
                f"models() = {names!r}, but should name each model once [{self.module.__name__}]"
            )
        chosen = os.environ.get(CHOSEN_MODELS, "")
        return _chosen(names, chosen.split(",")) if chosen else names

    def chooses_experts(self, model: str) -> bool:
        """Whether the port says that a router of the model chooses experts."""
        chooses = self.function("chooses_experts")
        return chooses is not None and bool(chooses(model))

    def features(self, model: str, function: str) -> Mapping[str, Sequence[Any]]:
        """The values of each feature that the function has a parameter for, the default first."""
        made, listed = self.function(function), self.function("features")
        if made is None or listed is None:
            return {}
        taken = inspect.signature(made).parameters
        return {name: tuple(values) for name, values in dict(listed(model)).items() if name in taken}


def _unsupported(module: ModuleType) -> Mapping[str, str]:
    found = getattr(module, "UNSUPPORTED", {})
    texts = isinstance(found, Mapping) and all(
        isinstance(text, str) and text.strip() for pair in found.items() for text in pair
    )
    if not texts:
        raise ValueError(
            f"UNSUPPORTED = {found!r}, but should be reasons by the names or patterns of models [{module.__name__}]"
        )
    return dict(found)


def _effects(module: ModuleType) -> Mapping[str, str]:
    found = dict(getattr(module, "EFFECTS", {}))
    for name, operation in found.items():
        if operation not in OPERATIONS:
            raise ValueError(
                f"EFFECTS[{name!r}] = {operation!r}, but should be one of {', '.join(OPERATIONS)} [{module.__name__}]"
            )
    return found


def _damages(module: ModuleType) -> tuple[str, ...]:
    if hasattr(module, "load_part"):
        raise ValueError(f"load_part is a function, but should be named load_damaged [{module.__name__}]")
    named = getattr(module, "DAMAGES", DAMAGES)
    found = tuple(named) if isinstance(named, (tuple, list)) else (named,)
    if not found or not set(found) <= set(DAMAGES):
        raise ValueError(
            f"DAMAGES = {found!r}, but should be some of {', '.join(DAMAGES)} [{module.__name__}]"
        )
    return found


def _needs(module: ModuleType) -> Mapping[str, tuple[str, Any]]:
    found = dict(getattr(module, "NEEDS", {}))
    for name, pair in found.items():
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(
                f"NEEDS[{name!r}] = {pair!r}, but should be another feature and its value [{module.__name__}]"
            )
    return found


def _chosen(names: Sequence[str], patterns: Sequence[str]) -> Sequence[str]:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{CHOSEN_MODELS} = {pattern!r}, but should be the name of one of {list(names)}")
    return tuple(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))
