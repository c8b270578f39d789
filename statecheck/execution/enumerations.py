"""All inputs of a decision up to a bound, in place of drawn ones: what `statecheck exhaust` tries.

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
from typing import Any

import properties.enumerations
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.property import Property

_BATCH = 16
"""Inputs that are tried in one call: a launch for 16 requests takes twice as long as one for a request."""
Input = Mapping[str, Any]
"""The arguments of a property's body."""
Layers = Callable[[int], Iterator[Input]]
"""From a bound, counted from 0, to the inputs that the bound before has not."""


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
        joined: two inputs as one, such as two requests in one batch, or None where they do not go together.
        share: how many times as much time as others it gets.
    """

    decision: str
    property: str
    inputs: Layers
    bound: str
    symmetry: str = ""
    left_out: str = ""
    device: str | None = None
    joined: Callable[[Input, Input], Input | None] = lambda one, other: None
    share: int = 1


@dataclass(frozen=True)
class Slice:
    """Inputs number `part`, `part + parts`, … of a decision's layer, without the first `done` of these."""

    decision: str
    bound: int
    part: int = 0
    parts: int = 1
    done: int = 0

    def inputs(self) -> Iterator[Input]:
        """The inputs, as they are made."""
        layer = enumerations()[self.decision].inputs(self.bound)
        return islice(layer, self.part + self.done * self.parts, None, self.parts)

    def tried(self, tested: Property, context: ExecutionContext) -> Iterator[int]:
        """Try the inputs; after each batch, how many it had.

        Raises:
            Falsified: an input failed, alone if it fails alone, too.
        """
        subject = context.subject
        # Where an example may end at a request that is known, or outside of the contract, others in its batch would not be compared.
        most = _BATCH if subject.refuses and not subject.outside and not subject.known_deviations else 1
        for together, each in self.batches(most):
            try:
                tested.example(context, **together)
            except Falsified:
                for one in each if len(each) > 1 else ():
                    tested.example(context, **one)
                raise
            yield len(each)

    def batches(self, most: int) -> Iterator[tuple[Input, list[Input]]]:
        """Up to so many inputs that follow each other and go together, as one, and each of them."""
        joined = enumerations()[self.decision].joined
        together: Input | None = None
        each: list[Input] = []
        for given_input in self.inputs():
            more = joined(together, given_input) if together is not None and len(each) < most else None
            if more is None and together is not None:
                yield together, each
                each = []
            together = given_input if more is None else more
            each.append(given_input)
        if together is not None:
            yield together, each


def enumerated(tested: Mapping[str, Property], device: str) -> list[str]:
    """The names of the properties that have an enumeration on the device."""
    ids = {entry.property for entry in enumerations().values() if entry.device in (None, device)}
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
