"""Where something is written if its own folder does not take it: a fallback, a temporary folder, or at last nowhere."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from properties.harness.case import Case

_T = TypeVar("_T")


class Places:
    """Folders, of which the first one that can be written to takes what there is to write.

    Args:
        folder: the one that it belongs to.
        fallback: the one to try next.
        prefix: how the name of the temporary folder begins.
    """

    def __init__(self, folder: Path, fallback: Path | None = None, *, prefix: str) -> None:
        self.troubles: list[str] = []
        """What went wrong, a sentence for each folder and reason."""
        places: list[Callable[[], Path]] = [lambda: folder]
        if fallback is not None:
            places.append(lambda: fallback)
        self._places = [*places, lambda: self._temporary]
        self._prefix = prefix

    @cached_property
    def _temporary(self) -> Path:
        return Path(tempfile.mkdtemp(prefix=self._prefix))

    def put(self, write: Callable[[Path], _T]) -> _T | None:
        """What `write` returns of the first folder in which it raises no OSError; None where it does in all of them."""
        for place in self._places:
            folder: Path | None = None
            try:
                folder = place()
                return write(folder)
            except OSError as error:
                self._note(folder or Path(tempfile.gettempprefix()), error)
        return None

    def _note(self, folder: Path, error: OSError) -> None:
        why = error.strerror or str(error)
        trouble = f"{folder} took no case ({why}), which went elsewhere"
        if trouble not in self.troubles:
            self.troubles.append(trouble)


def print_case(case: Case) -> None:
    """The last resort. The very standard error: that of Python may be redirected while a property is explored."""
    with suppress(OSError, ValueError):
        print(case.to_json(), file=sys.__stderr__, flush=True)
