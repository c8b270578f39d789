"""Properties: Hypothesis tests that know their sentence, their kind and the functions that they are about.

`prop` turns a body into an ordinary Hypothesis test that pytest collects, and remembers it, so that a campaign can
run the same body with settings and seeds of its own, and without Hypothesis's example database.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

from hypothesis.strategies import SearchStrategy

from statecheck.case.rules import require_property_id
from statecheck.case.values import Call
from statecheck.execution.example import REFUSAL
from statecheck.execution.property import Property, launches, put_at
from statecheck.rooms import FOLDER, property_files

__all__ = [
    "KINDS",
    "PROPERTIES",
    "Property",
    "Written",
    "WrittenExamples",
    "found",
    "launches",
    "load_properties",
    "prop",
    "property_of",
    "put_at",
    "remember",
    "written_examples",
]
KINDS = frozenset(
    {
        "agreement",
        "provenance",
        "byte-exact",
        "order-free",
        "memmove",
        "partition",
        "classification",
        "padding",
        "ownership",
        "metamorphic",
        "red zone",
        "width",
        "algebra",
        "cost",
        REFUSAL,
        "capture = replay",
        "history",
    }
)
PROPERTIES: dict[str, Property] = {}
_Test = TypeVar("_Test", bound=Callable[..., None])


class Written(Protocol):
    """A written example: the last call that it makes is of the function that it is about."""

    @property
    def call(self) -> Call: ...


@dataclass(frozen=True)
class WrittenExamples:
    """Written examples of a property: pytest runs a test function once for each, as its argument of that name."""

    whole: Property
    argument: str
    inputs: Sequence[Written]
    ids: Callable[[Any], str]


def written_examples(
    name: str, argument: str, inputs: Sequence[Written], ids: Callable[[Any], str]
) -> Callable[[_Test], _Test]:
    """Marks a test that hands written examples to a property, one at a time: its verdict is one on that property.

    Nothing of pytest is imported for it, which a campaign has no use for.

    Args:
        name: the property's name or id.
        argument: of the test, which takes an example.
        ids: what pytest calls each.
    """

    def mark(test: _Test) -> _Test:
        test.written = WrittenExamples(found(name), argument, inputs, ids)  # type: ignore[attr-defined]
        return test

    return mark


def property_of(test: Any, **parameters: Any) -> Property | None:
    """What a pytest test tests, if that is a property; `parameters` are those of a written example."""
    tested: Property | None = getattr(test, "property", None)
    if tested is None and hasattr(test, "properties"):
        return cast(Property, test.properties[parameters["property_name"]])
    written: WrittenExamples | None = getattr(test, "written", None)
    if tested is None and written is not None:
        tested = replace(written.whole, functions=(parameters[written.argument].call.function,))
    return tested


def prop(
    id_: str,
    kind: str,
    *functions: str,
    device: str | None = None,
    any_of: bool = False,
    held: tuple[str, ...] = (),
    **strategies: SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the decorated body, `body(trial, **drawn)`, as a property.

    Args:
        id_: a topic and a word, such as "v1-postprocess/boundary", that no other property has.
        kind: an id of the vocabulary, `KINDS`.
        functions: the documented symbols that it calls, dotted for methods.
        device: the only device on which it has a meaning, if there is one.
        any_of: it applies to a subject that has one of the functions; the body asks `trial.offered` which.
        held: of a property of a library of sequences, see `Property`.
        strategies: what to draw for each of the body's arguments but `trial`.
    """

    def register(body: Callable[..., None]) -> Callable[..., None]:
        name = body.__name__.removeprefix("test_")
        sentence = " ".join((body.__doc__ or name.replace("_", " ")).split())
        module = body.__module__
        return remember(
            Property(name, sentence, kind, functions, body, strategies, module, device, id_, any_of, held)
        )

    return register


def remember(new: Property) -> Callable[..., None]:
    """Register a property; its test, as pytest collects it.

    Raises:
        ValueError: it has no proper id, an unknown kind, or what only another property may have.
    """
    require_property_id(new.id, "id")
    if new.kind not in KINDS:
        raise ValueError(f"kind = {new.kind!r}, but should be one of {sorted(KINDS)} [prop]")
    taken = next((one for one in PROPERTIES.values() if one.id == new.id and one.name != new.name), None)
    if taken is not None:
        raise ValueError(f"id = {new.id!r}, but should not be that of {taken.name} [prop]")
    earlier = PROPERTIES.get(new.name, new)
    # A module may be imported again.
    if (earlier.module, earlier.id) != (new.module, new.id):
        raise ValueError(f"property = {new.name!r}, but should be a name of its own [prop]")
    PROPERTIES[new.name] = new
    test = new.test()
    test.property = new  # type: ignore[attr-defined]
    return test


def load_properties() -> dict[str, Property]:
    """All properties, by name, after importing every module of properties."""
    for path in property_files():
        importlib.import_module(".".join(path.relative_to(FOLDER).with_suffix("").parts))
    return dict(PROPERTIES)


def found(name: str) -> Property:
    """The registered property of that name or id.

    Raises:
        KeyError: there is none.
    """
    by_id = (one for one in PROPERTIES.values() if one.id == name)
    return PROPERTIES.get(name) or next(by_id, None) or PROPERTIES[name]
