"""All inputs of a decision up to a bound, in place of drawn ones: what `make exhaust` tries.

A property has strategies, which draw; an enumeration has a layer of inputs for each bound, in a fixed order, so that the first
failing input is one of the smallest. Both hand the same values to the same body.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import properties.enumerations

if TYPE_CHECKING:
    from statecheck.execution.property import Property

Inputs = Callable[[int], Iterator[Mapping[str, Any]]]
"""From a bound, counted from 0, to the inputs that the bound before has not: the arguments of a property's body."""


@dataclass(frozen=True)
class Enumeration:
    """All inputs of a property.

    Args:
        decision: its name, which no other enumeration has.
        property: the id of the property whose body gets the inputs.
        bound: what a bound counts.
        symmetry: which inputs stand for several that the rule does not tell apart; "" where there are none.
        left_out: what inputs of the property no bound reaches.
        device: the only one on which the inputs have a meaning, if there is one.
    """

    decision: str
    property: str
    inputs: Inputs
    bound: str
    symmetry: str = ""
    left_out: str = ""
    device: str | None = None


@dataclass(frozen=True)
class Slice:
    """Inputs number `part`, `part + parts`, … of a decision's layer, without the first `done` of these."""

    decision: str
    bound: int
    part: int = 0
    parts: int = 1
    done: int = 0

    def inputs(self) -> Iterator[Mapping[str, Any]]:
        """The inputs, as they are made."""
        layer = enumerations()[self.decision].inputs(self.bound)
        return islice(layer, self.part + self.done * self.parts, None, self.parts)


def enumerated(tested: Mapping[str, Property], device: str) -> list[str]:
    """The names of the properties that have an enumeration on the device."""
    ids = {one.property for one in enumerations().values() if one.device in (None, device)}
    return [name for name, one in tested.items() if one.id in ids]


@cache
def enumerations() -> dict[str, Enumeration]:
    """All enumerations, by decision, in the order in which tables show them.

    Raises:
        ValueError: two of them have one name.
    """
    found: dict[str, Enumeration] = {}
    for module in pkgutil.iter_modules(properties.enumerations.__path__):
        loaded = importlib.import_module(f"{properties.enumerations.__name__}.{module.name}")
        for one in getattr(loaded, "ENUMERATIONS", ()):
            if one.decision in found:
                raise ValueError(
                    f"decision = {one.decision!r}, but should be a name of its own [enumerations]"
                )
            found[one.decision] = one
    return found
