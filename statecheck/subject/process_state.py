"""What a subject changes in its process is put back, so that the harness and the next example find it as it was.

After each call and each import: the working folder, signal handlers, torch's default device and dtype, and what was removed from the
import path. When the next example begins,
since later calls of the same example may need them: the environment, and what was added to the import path. Nothing else is looked
at: a subject that works against its process, such as by replacing functions of the harness, is run with `--isolated`, in a process of
its own.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_NAMES = "SIGALRM SIGVTALRM SIGPROF SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE"
_SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES.split() if hasattr(signal, name))
# What is behind `signal.getsignal`, without the enumeration that it looks each handler up in: that took most of the time.
_handler_of: Callable[[int], Any] = importlib.import_module("_signal").getsignal


class ProcessState:
    """The environment and the import path around the calls of one example after the other."""

    def __init__(self) -> None:
        self._environment: dict[bytes, bytes] | None = None
        self._path: list[str] | None = None

    def begin(self) -> None:
        """An example begins: put back what calls of the example before have changed."""
        if self._environment is not None:
            os.environb.clear()
            os.environb.update(self._environment)
            self._environment = None
        if self._path is not None:
            sys.path[:], self._path = self._path, None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around a call of the subject: as `restored`, and what the example's end is to put back is noted."""
        environment, path = _environment(), list(sys.path)
        try:
            with restored():
                yield
        finally:
            if self._environment is None and _environment() != environment:
                self._environment = environment
            if self._path is None and sys.path != path:
                self._path = path


@contextmanager
def restored() -> Iterator[None]:
    """Put back the working folder, signal handlers, torch's defaults and entries of the import path that change while this is entered."""
    before, path = _state(), list(sys.path)
    try:
        yield
    finally:
        # The harness imports some of its modules when they are needed.
        sys.path += [entry for entry in path if entry not in sys.path]
        if _state() != before:
            folder, device, dtype, *handlers = before
            go_to(folder)
            if "torch" in sys.modules:
                import torch

                # A default device of "cpu" has each call of torch go through a function of Python; None has the same meaning.
                torch.set_default_device(None if device == "cpu" else device)
                torch.set_default_dtype(getattr(torch, dtype.removeprefix("torch.")))
            for number, handler in zip(_SIGNALS, handlers, strict=True):
                # None: it was not installed from Python, and cannot be from there. ValueError: this is not the main thread.
                if handler is not None:
                    with suppress(ValueError):
                        signal.signal(number, handler)


def go_to(folder: str | None) -> None:
    """Go where the process was, or to a folder that exists, where that was removed."""
    for place in (folder, tempfile.gettempdir(), "/"):
        with suppress(OSError, TypeError):
            os.chdir(place)  # type: ignore[arg-type] # None: there was no such folder
            return


def _state() -> tuple[Any, ...]:
    try:
        folder = os.getcwd()  # noqa: PTH109 - twice for each call of a subject
    except OSError:
        folder = None
    # Libraries of sequences do without torch, which takes seconds to import.
    empty = getattr(sys.modules.get("torch"), "empty", None)
    probe = None if empty is None else empty(0)
    defaults = ("cpu", "torch.float32") if probe is None else (str(probe.device), str(probe.dtype))
    return folder, *defaults, *map(_handler_of, _SIGNALS)


def _environment() -> dict[bytes, bytes]:
    # What is behind `os.environb`, which copies each name and value through two functions of Python.
    return dict(getattr(os.environ, "_data", os.environb))
