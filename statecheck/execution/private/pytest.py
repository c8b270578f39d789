"""Everything of pytest that is not its documented interface, in one place."""

from __future__ import annotations

from collections.abc import Container, Mapping

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


def chosen_by(expression: str, id_: str, named: Mapping[str, Container[str]]) -> bool:
    """Whether an expression as for `pytest -k` chooses a property's id.

    Args:
        named: by word, the ids that it chooses, and no other id that it is a part of.

    Raises:
        ValueError: no such expression.
    """
    try:
        compiled = Expression.compile(expression)
    except Exception as error:  # SyntaxError; ParseError before pytest 9
        raise ValueError(
            f"only = {expression!r}, but should be an expression as for pytest -k [fuzz]"
        ) from error

    def contains(word: str, /, **_: object) -> bool:
        return id_ in named[word] if word in named else word in id_

    return bool(compiled.evaluate(contains))
