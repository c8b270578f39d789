"""Kernels of recurrences, which a port has by the names of docs/recurrences.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subjects.plain.port import ask
from subjects.plain.protocol import RECURRENCES, Plain

__all__ = ["Recurrences"]


def _asked(plain: Plain) -> Callable[..., Any]:
    def function(*values: Any) -> Any:
        return ask(plain.name, **dict(zip(plain.arguments, values, strict=True)))

    return function


class Recurrences:
    """The functions, by their names; the class has those of the protocol that answer for it."""


for _plain in RECURRENCES:
    setattr(Recurrences, _plain.name, staticmethod(_asked(_plain)))
