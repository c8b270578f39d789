"""Properties: Hypothesis tests that know their sentence, their kind and the functions that they are about.

`prop` turns a body into an ordinary Hypothesis test that pytest collects, and remembers it, so that a campaign can
run the same body with settings and seeds of its own, and without Hypothesis's example database.
"""

from __future__ import annotations

import importlib
import inspect
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
    "launches",
    "load_properties",
    "prop",
    "put_at",
    "remember",
    "sentence_of",
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
        sentence = sentence_of(body)
        module = body.__module__
        return remember(
            Property(
                id_,
                sentence,
                kind,
                functions,
                body,
                strategies,
                module,
                device,
                any_of,
                held,
                tuple(written),
            )
        )

    return register


def sentence_of(statement: Any) -> str:
    """The first paragraph of its docstring; the rest of it is for readers of the source."""
    return " ".join((inspect.getdoc(statement) or "").partition("\n\n")[0].split())


def remember(new: Property) -> Callable[..., None]:
    """Register a property; its test, as pytest collects it.

    Raises:
        ValueError: it has no proper id, an unknown kind, or what only another property may have.
    """
    require_property_id(new.id, "id")
    if new.kind not in KINDS:
        raise ValueError(f"kind = {new.kind!r}, but should be one of {sorted(KINDS)} [prop]")
    earlier = PROPERTIES.get(new.id, new)
    # A module may be imported again.
    if (earlier.module, earlier.sentence) != (new.module, new.sentence):
        raise ValueError(f"id = {new.id!r}, but should not be that of another property [prop]")
    PROPERTIES[new.id] = new
    test = new.test()
    test.property = new  # type: ignore[attr-defined]
    return test


def load_properties() -> dict[str, Property]:
    """All properties, by id, after importing every module of properties."""
    for path in property_files():
        importlib.import_module(".".join(path.relative_to(FOLDER).with_suffix("").parts))
    return dict(PROPERTIES)
