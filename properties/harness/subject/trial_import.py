"""An import of a subject in a process of its own first: what ends or keeps that process would end or keep this one."""

from __future__ import annotations

import sys
from contextlib import suppress

from properties.harness.subject.apart import NoAnswerError, answer_apart
from properties.harness.subject.loading import BUILT_IN, load

SECONDS = 120.0
"""How long an import may take."""


def require_import_that_ends(name: str, seconds: float = SECONDS) -> None:
    """Import a subject in a child process, unless it is built in or imported already. What the import raises is no concern here.

    Raises:
        ValueError: the import ended the child, or did not end within `seconds`.
    """
    if name.partition("+")[0] in BUILT_IN or name in sys.modules:
        return

    def imported() -> None:
        with suppress(BaseException):
            load(name)

    try:
        answer_apart(imported, seconds)
    except NoAnswerError as error:
        rule = "a module whose import comes to its end"
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]: {error}") from error
