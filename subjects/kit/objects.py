"""Objects of a release that are made without their constructor, or as each release has it; and the names of its modules, to be replaced."""

import dataclasses
import functools
import inspect
from typing import Any


def bare(cls: Any, **attributes: Any) -> Any:
    """An object of the class that its constructor has not seen."""
    made = object.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def with_defaults(cls: Any, **attributes: Any) -> Any:
    """As `bare`, with the defaults of the class's fields, and None where one has none."""
    return bare(
        cls,
        **{field.name: _default(field) for field in dataclasses.fields(cls) if field.name not in attributes},
        **attributes,
    )


def made_with(cls: Any, **named: Any) -> Any:
    """An object of the class, of those arguments that its constructor has in this release."""
    taken = _parameters(cls)
    return cls(**{name: value for name, value in named.items() if name in taken})


@functools.cache
def _parameters(cls: Any) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)


def _default(field: Any) -> Any:
    # A field of pydantic's has a description of its default as its default.
    source = field.default if type(field.default).__name__ == "FieldInfo" else field
    factory = source.default_factory
    if callable(factory):
        return factory()
    missing = (
        source.default is dataclasses.MISSING or type(source.default).__name__ == "PydanticUndefinedType"
    )
    return None if missing else source.default


def names_in(module: str) -> dict[str, Any]:
    """The names of a module of the release, to be read and replaced; none where the release has no such module."""
    try:
        return vars(__import__(module, fromlist=["_"]))
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        return {}
