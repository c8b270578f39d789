"""Where something is written if its own folder does not take it: a fallback, a temporary folder, or at last nowhere."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TextIO, TypeVar

from statecheck.case import Case

_T = TypeVar("_T")


class WritableFolders:
    """Folders, of which the first one that can be written to takes what there is to write.

    Args:
        folder: the one that it belongs to.
        fallback: the one to try next.
        prefix: how the name of the temporary folder begins.
        what: is written, in a noun, for `troubles`.
        at_last: where it goes if no folder takes it.
    """

    def __init__(
        self,
        folder: Path,
        fallback: Path | None = None,
        *,
        prefix: str,
        what: str = "case",
        at_last: str = "the standard error",
    ) -> None:
        self.troubles: list[str] = []
        """What went wrong, a sentence for each folder and reason."""
        folders: list[Callable[[], Path]] = [lambda: folder]
        if fallback is not None:
            folders.append(lambda: fallback)
        self._folders = [*folders, lambda: self._temporary]
        self._prefix, self._what, self._at_last = prefix, what, at_last

    @cached_property
    def _temporary(self) -> Path:
        return Path(tempfile.mkdtemp(prefix=self._prefix))

    def put(self, write: Callable[[Path], _T]) -> _T | None:
        """What `write` returns of the first folder in which it raises no OSError; None where it does in all of them."""
        refusals: list[tuple[Path, OSError]] = []
        for make in self._folders:
            folder: Path | None = None
            try:
                folder = make()
                written = write(folder)
            except OSError as error:
                refusals.append((folder or Path(tempfile.gettempprefix()), error))
            else:
                self._note(refusals, str(folder))
                return written
        self._note(refusals, self._at_last)
        return None

    def _note(self, refusals: list[tuple[Path, OSError]], used: str) -> None:
        for folder, error in refusals:
            trouble = f"{folder} took no {self._what} ({error.strerror or error}), which went to {used}"
            if trouble not in self.troubles:
                self.troubles.append(trouble)


_streams: list[TextIO] = []


def print_to(stream: TextIO) -> None:
    """Print cases that no folder takes there, in a process whose standard error leads elsewhere."""
    _streams[:] = [stream]


def print_case(case: Case) -> None:
    """The last resort. The very standard error: that of Python may be redirected while a property is explored."""
    with suppress(OSError, ValueError):
        print(case.to_json(), file=_streams[0] if _streams else sys.__stderr__, flush=True)
