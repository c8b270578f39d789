"""Properties: Hypothesis tests that know their sentence, their kind and the functions that they are about.

`prop` is the only way to declare them. It turns a body into an ordinary Hypothesis test that pytest collects, and remembers it, so that
a campaign can run the same body with settings and seeds of its own, and without Hypothesis's example database.

    @prop("box/put", "agreement", "Box.put", toy=toys())
    def test_a_toy_stays_in_the_box(trial, toy):
        "A toy stays in the box."
        trial.agrees(call("Box.put", toy=toy))

Decorated with a table in place of an id, the body is a property in each of these configurations:

    BOXES = (
        Configuration("box/small", reason="where there is room for three", toy=toys(most=3)),
        Configuration("box/large", "Box.grow", reason="where there is room for nine", toy=toys(most=9)),
    )

    @prop(BOXES, "agreement", "Box.put")
    def a_toy_stays_in_the_box(trial, toy): ...

pytest collects `test_a_toy_stays_in_the_box[box/small]` and `test_a_toy_stays_in_the_box[box/large]`. Decorated, a state machine is a
property of its scenarios, see `statecheck.execution.property`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hypothesis.strategies import SearchStrategy

from statecheck.case.case import require_property_id
from statecheck.execution.example import REFUSAL, Example
from statecheck.execution.property import ExampleMachine, MachineProperty, Property, launches, no_body, put_at
from statecheck.rooms import FOLDER, property_files

__all__ = [
    "KINDS",
    "PROPERTIES",
    "Configuration",
    "Property",
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
        "recurrence",
        "continuation",
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


class Configuration:
    """A row of a property's table: an id, and what differs from the other rows.

    Args:
        id_: of the property that the body is in this configuration.
        functions: those that it calls beside the functions of the whole table.
        reason: how the configuration differs from others; it ends the property's sentence.
        kind: where it is another one than the table's.
        situations: as of `prop`.
        device: as of `prop`.
        written: as of `prop`.
        given: arguments of the body: strategies are drawn from, other values are handed over as they are.
    """

    def __init__(
        self,
        id_: str,
        *functions: str,
        reason: str = "",
        kind: str = "",
        situations: tuple[str, ...] = (),
        device: str | None = None,
        written: Iterable[Mapping[str, Any]] = (),
        **given: Any,
    ) -> None:
        self.id, self.functions, self.reason, self.situations = id_, functions, reason, situations
        self.kind, self.device, self.written, self.given = kind, device, tuple(written), given


def prop(
    id_: str | Sequence[Configuration],
    kind: str,
    *functions: str,
    device: str | None = None,
    any_of: bool = False,
    situations: tuple[str, ...] = (),
    written: Iterable[Mapping[str, Any]] = (),
    **given: Any,
) -> Callable[[Any], Any]:
    """Register the decorated body, `body(trial, **given)`, or the decorated state machine, as a property.

    Args:
        id_: a topic and a word, such as "v1-postprocess/boundary", that no other property has; or a table, each row of which is a property.
        kind: an id of the vocabulary, `KINDS`.
        functions: the documented symbols that it calls, dotted for methods.
        device: the only device on which it has a meaning, if there is one.
        any_of: it applies to a subject that has one of the functions; the body asks `trial.offered` which.
        situations: those that it is for, see `Property`; the body says which an example reaches, see `Example.reached`.
        written: the arguments of written examples, which run once in an execution context.
        given: what to draw for each of the body's arguments but `trial`; of a table, as of `Configuration`.

    Raises:
        ValueError: as `remember`.
    """

    def register(body: Any) -> Any:
        sentence, module = sentence_of(body), body.__module__
        if isinstance(body, type):
            assert isinstance(id_, str)
            assert issubclass(body, ExampleMachine)
            machine = MachineProperty(
                id_, sentence, kind, functions, no_body, {}, module, device, machine=body
            )
            test = remember(machine)
            vars(sys.modules[module])[test.__name__] = test
            return body
        if isinstance(id_, str):
            about = (id_, sentence, kind, functions, body, given, module)
            return remember(Property(*about, device, any_of, situations, tuple(written)))
        for row in id_:
            values = given | row.given
            drawn = {name: value for name, value in values.items() if isinstance(value, SearchStrategy)}
            fixed = {name: value for name, value in values.items() if name not in drawn}
            about = (
                row.id,
                f"{sentence.rstrip('.')}, {row.reason}." if row.reason else sentence,
                row.kind or kind,
                (*row.functions, *functions),
                _in_configuration(body, row.id, fixed),
                drawn,
                module,
            )
            new = Property(*about, row.device or device, any_of, row.situations or situations, row.written)
            vars(sys.modules[module])[f"test_{body.__name__}[{row.id}]"] = remember(new)
        return body

    return register


_TRIAL = inspect.Parameter("trial", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _in_configuration(shared: Callable[..., None], id_: str, fixed: Mapping[str, Any]) -> Callable[..., None]:
    """The body of a row of a table."""

    @functools.wraps(shared)
    def body(trial: Example, **drawn: Any) -> None:
        shared(trial, **drawn, **fixed)

    # Hypothesis wants an identifier. It keeps examples by a test's source, which is the same for all rows, and by its signature.
    name = f"{shared.__name__}_{re.sub('[/-]', '_', id_)}"
    body.__name__ = body.__qualname__ = name
    drawn = inspect.Parameter(name, inspect.Parameter.VAR_KEYWORD)
    body.__signature__ = inspect.Signature([_TRIAL, drawn])  # type: ignore[attr-defined]
    return body


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
