"""Everything of pytest that is not its documented interface, in one place."""

from __future__ import annotations

from collections.abc import Callable, Container

from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback
from _pytest.mark.expression import Expression

__all__ = [
    "MADE_FOR",
    "ReprEntryNative",
    "ReprExceptionInfo",
    "ReprFileLocation",
    "ReprTraceback",
    "chosen_by",
]

MADE_FOR = ("8.0", "9.2")
"""The oldest and the newest version that this was made for, and is tested with."""


def chosen_by(expression: str, name: str, id_: str = "", topics: Container[str] = ()) -> bool:
    """Whether an expression as for `pytest -k` chooses a name.

    Args:
        id_: of the property with that name. A word that is a topic chooses the ids of this topic. Of other words, those with "/" or
            "-" are parts of the id.
        topics: what stands before the "/" in ids.

    Raises:
        ValueError: no such expression.
    """
    try:
        compiled = Expression.compile(expression)
    except Exception as error:  # SyntaxError; ParseError before pytest 9
        raise ValueError(
            f"only = {expression!r}, but should be an expression as for pytest -k [fuzz]"
        ) from error
    return bool(compiled.evaluate(_containing(name, id_, topics)))


def _containing(name: str, id_: str, topics: Container[str]) -> Callable[..., bool]:
    def contains(word: str, **_: object) -> bool:
        if word in topics:
            # Not by the name: sentences of two properties in nine have the word "sequences".
            return id_.partition("/")[0] == word
        return word in (id_ if "/" in word or "-" in word else name)

    return contains
