"""An import of a subject in a process of its own first: what ends or keeps that process would end or keep this one."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from statecheck.subject.apart import NoAnswerError, answer_apart
from statecheck.subject.loading import BUILT_IN, load

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
        raise ValueError(f"{_complaint(name)}: {error}") from error


def _complaint(name: str) -> str:
    return f"subject = {name!r}, but should be a module whose import comes to its end [load]"


@contextmanager
def import_in_time(name: str, errors: TextIO, exit_code: int, seconds: float = SECONDS) -> Iterator[None]:
    """While a subject is imported in this process, which ends with the exit code where that takes longer than `seconds`.

    An import that came to its end in a child process may not do so the second time. `errors` takes what has to be said then.
    """

    def give_up() -> None:
        print(f"error: {_complaint(name)}: it took more than {seconds:.0f} s", file=errors, flush=True)
        os._exit(exit_code)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
