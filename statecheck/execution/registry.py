"""Properties: Hypothesis tests that know their sentence, their kind and the functions that they are about.

`prop` turns a body into an ordinary Hypothesis test that pytest collects, and remembers it, so that a campaign can
run the same body with settings and seeds of its own, and without Hypothesis's example database.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis.strategies import SearchStrategy

from statecheck.case.case import require_property_id
from statecheck.execution.example import REFUSAL
from statecheck.execution.property import Property, launches, put_at
from statecheck.rooms import FOLDER, property_files

__all__ = [
    "KINDS",
    "PROPERTIES",
    "Property",
    "found",
    "launches",
    "load_properties",
    "prop",
    "put_at",
    "remember",
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


def prop(
    id_: str,
    kind: str,
    *functions: str,
    device: str | None = None,
    any_of: bool = False,
    held: tuple[str, ...] = (),
    written: Iterable[Mapping[str, Any]] = (),
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
        written: the arguments of written examples, which run once in an execution context.
        strategies: what to draw for each of the body's arguments but `trial`.
    """

    def register(body: Callable[..., None]) -> Callable[..., None]:
        name = body.__name__.removeprefix("test_")
        sentence = " ".join((body.__doc__ or name.replace("_", " ")).split())
        module = body.__module__
        return remember(
            Property(
                name,
                sentence,
                kind,
                functions,
                body,
                strategies,
                module,
                device,
                id_,
                any_of,
                held,
                tuple(written),
            )
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
