"""What a library of sequences lets a scenario choose: a model, and values of features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from statecheck.case import Case

Features = Mapping[str, Sequence[Any]]
"""The values of each feature, the default first."""


@dataclass
class SequenceChoices:
    """Names of models, and features by function; both are asked for once.

    Args:
        list_models: of the library.
        list_features: of a model, those that a function has parameters for.
        script: of a port that writes scripts with its library alone, see docs/sequences.md.
        offers: whether the port has a function of this name.
        warm_up: has all ready that examples of all models need, before the time of a campaign begins.
        unsupported: why models cannot be verified, by name or pattern, as the port declares it.
        effects: names of what features of the port may do, with the operation that shows each; see docs/sequences.md.
        isolated: models are in processes of their own.
        explain: the first call, layer and state in which a case differs, in a sentence; "" where that is not known.
        tolerance: the share of the logits' scale by which they may differ from a fresh run's.
        given_to_reference: features that fresh runs get, too.
    """

    list_models: Callable[[], Sequence[str]]
    list_features: Callable[[str, str], Features]
    script: Callable[..., str] | None = None
    explain: Callable[[Case], str] = lambda case: ""
    tolerance: float = 0.01
    given_to_reference: tuple[str, ...] = ()
    offers: Callable[[str], bool] = lambda function: True
    warm_up: Callable[[], None] = lambda: None
    unsupported: Mapping[str, str] = field(default_factory=dict)
    effects: Mapping[str, str] = field(default_factory=dict)
    isolated: bool = False

    @cached_property
    def all_models(self) -> Sequence[str]:
        """The names of all models, those that are declared as unsupported among them."""
        return self.list_models()

    @cached_property
    def models(self) -> Sequence[str]:
        """The names of the models that are tried."""
        return tuple(name for name in self.all_models if not self.why_unsupported(name))

    def why_unsupported(self, model: str) -> str:
        """Why the port declares a model as unsupported; "" where it does not."""
        reasons = (why for name, why in self.unsupported.items() if fnmatchcase(model, name))
        return next(reasons, "")

    def model(self, number: int) -> str:
        """The model that a drawn number stands for."""
        return self.models[number % len(self.models)]

    def features(self, model: str, function: str, numbers: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """The values that drawn pairs stand for: a number for the feature, and one for its value, which is never the default."""
        found: dict[str, Any] = {}
        varied = [
            (name, values) for name, values in self.list_features(model, function).items() if len(values) > 1
        ]
        for which, number in numbers if varied else ():
            name, values = varied[which % len(varied)]
            found[name] = values[1 + number % (len(values) - 1)]
        return found
