"""What a subject may change in its process, and the harness relies on: it is put back after each call, and reported.

Put back at once: the working folder, signal handlers and interval timers, the umask, torch's default device and dtype, the
recursion limit, the standard streams. Put back when the next example begins, since later calls of the same example may
need them: variables of the environment, what was added to the import path, and the filters of warnings.

Not compared: states of random generators (the harness draws from its own, and Hypothesis seeds the global ones for each example)
and the locale (files of the harness are written and read as UTF-8).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from statecheck.subject.descriptors import require_needed
from statecheck.subject.remarks import note

_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in [
        "SIGALRM",
        "SIGVTALRM",
        "SIGPROF",
        "SIGINT",
        "SIGTERM",
        "SIGHUP",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGCHLD",
        "SIGPIPE",
    ]
)
_TIMERS = {signal.ITIMER_REAL: "SIGALRM", signal.ITIMER_VIRTUAL: "SIGVTALRM", signal.ITIMER_PROF: "SIGPROF"}
_SLACK_SECONDS = 1.0
"""By how much more than the time that has passed a timer may have gone down and still be the same timer."""
_LONGEST, _TRIES = 200, 3

_handler_of: Callable[[int], Any] = importlib.import_module("_signal").getsignal
"""What is behind `signal.getsignal`, without the enumeration that it looks each handler up in: that took most of the time."""


class _Item(NamedTuple):
    """Something that is put back at once: what it is, and how."""

    what: str
    restore: Callable[[Any], object]


def _handled(number: int) -> _Item:
    return _Item(f"the handler of {signal.Signals(number).name}", lambda handler: _handle(number, handler))


def _handle(number: int, handler: Any) -> None:
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


def _restore_streams(streams: tuple[Any, Any]) -> None:
    sys.stdout, sys.stderr = streams


def _restore_device(device: str) -> None:
    # A default device of "cpu" has each call of torch go through a function of Python; None has the same meaning.
    import torch

    torch.set_default_device(None if device == "cpu" else device)


def _restore_dtype(dtype: str) -> None:
    import torch

    torch.set_default_dtype(getattr(torch, dtype.removeprefix("torch.")))


_AT_ONCE = (
    _Item("the working folder", go_to),
    _Item("the umask", os.umask),
    _Item("torch's default device", _restore_device),
    _Item("torch's default dtype", _restore_dtype),
    _Item("the recursion limit", sys.setrecursionlimit),
    _Item("the standard streams", _restore_streams),
    *(_handled(number) for number in _SIGNALS),
)


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - twice for each call of a subject
    except OSError:
        return None


def _environment() -> dict[bytes, bytes]:
    # What is behind `os.environb`, which copies each name and value through two functions of Python.
    return dict(getattr(os.environ, "_data", os.environb))


def _umask() -> int:
    # There is no way to read it. What another thread makes between the two is for its owner alone.
    found = os.umask(0o077)
    os.umask(found)
    return found


def _at_once() -> tuple[Any, ...]:
    """What stands now, in the order of `_AT_ONCE`."""
    streams = (sys.stdout, sys.stderr)
    handlers = map(_handler_of, _SIGNALS)
    return _folder(), _umask(), *_defaults(), sys.getrecursionlimit(), streams, *handlers


def _defaults() -> tuple[str, str]:
    """torch's default device and dtype; libraries of sequences do without torch, which takes seconds to import."""
    empty = getattr(sys.modules.get("torch"), "empty", None)
    if empty is None:
        return "cpu", "torch.float32"
    probe = empty(0)
    return str(probe.device), str(probe.dtype)


class _Timers:
    """The interval timers of the process at a moment."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._set = {which: signal.getitimer(which) for which in _TIMERS}
        self._is_unset = not any(map(any, self._set.values()))
        self._found: dict[int, tuple[float, float]] = {}

    def restore(self, where: str) -> None:
        """Have each as it was then, less the time that has passed."""
        if self._is_unset and not self._found and not any(map(any, map(signal.getitimer, _TIMERS))):
            return
        # Stopped before anything else: a handler that runs here may raise, and this is begun again.
        for which in _TIMERS:
            self._found.setdefault(which, signal.setitimer(which, 0.0))
        passed = time.monotonic() - self._at
        for which, (left, interval) in self._set.items():
            now = self._found[which]
            same = (
                left - passed - _SLACK_SECONDS <= now[0] <= left if left and not interval else now[0] == left
            )
            if now[1] == interval and (same or interval):
                signal.setitimer(which, *now)
            else:
                signal.setitimer(which, max(left - passed, 0.001) if left else 0.0, interval)
                what = f"the timer of {_TIMERS[which]}"
                _remark(what, (left, interval), now, where)


class ProcessState:
    """What stands around the calls of a subject in this process."""

    def __init__(self) -> None:
        self._variables: dict[bytes, bytes | None] = {}
        self._path: list[str] | None = None
        self._filters: list[Any] | None = None

    def begin(self) -> None:
        """An example begins: put back what calls of the example before have changed, as far as that was not done at once."""
        if self._variables:
            for name, value in self._variables.items():
                _set_variable(name, value)
            self._variables.clear()
        if self._path is not None:
            sys.path[:], self._path = self._path, None
        if self._filters is not None:
            _restore_filters(self._filters)
            self._filters = None

    @contextmanager
    def kept(self, where: str) -> Iterator[None]:
        """Put back what the subject changes while this is entered, and remark it.

        Args:
            where: the function of the subject that is called.
        """
        variables, path, filters = _environment(), list(sys.path), list(warnings.filters)
        try:
            with kept_at_once(where):
                yield
        finally:
            require_needed()
            self._note_variables(variables, where)
            if sys.path != path:
                self._path = self._path or path
            if warnings.filters != filters:
                self._filters = self._filters or filters

    def _note_variables(self, before: dict[bytes, bytes], where: str) -> None:
        now = _environment()
        if now == before:
            return
        changed = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
        for name in changed:
            self._variables.setdefault(name, before.get(name))
        names = ", ".join(os.fsdecode(name) for name in changed)
        note(
            "the environment",
            f"the subject changed variables of the environment in {where}: {names[:_LONGEST]}",
        )


@contextmanager
def kept_at_once(where: str) -> Iterator[None]:
    """As `ProcessState.kept`, for what is put back at once; also around imports, which may set variables to stay."""
    timers, before, path = _Timers(), _at_once(), list(sys.path)
    try:
        yield
    finally:
        # First: a handler of the subject's that runs in the harness may raise anything.
        _insist(lambda: timers.restore(where))
        now = _at_once()
        if now != before:
            for item, was, found in zip(_AT_ONCE, before, now, strict=True):
                if found != was:
                    item.restore(was)
                    _remark(item.what, was, found, where)
        if sys.path != path:
            added = sorted({*sys.path} - {*path})
            gone = [one for one in path if one not in sys.path]
            # What was added stays for now: more may have to be imported from there.
            sys.path += gone
            if gone:
                _remark("the import path (sys.path)", path, added, where)


def _insist(restore: Callable[[], None]) -> None:
    """Restore timers, though the handler of one may run, and raise, before that is done."""
    for _ in range(_TRIES):
        with suppress(Exception):
            return restore()
    return restore()


def _remark(what: str, before: Any, now: Any, where: str) -> None:
    note(
        what, f"the subject changed {what} in {where}: {_shown(before)} became {_shown(now)}; it was put back"
    )


def _shown(value: Any) -> str:
    if value is None:
        return "a removed folder"
    try:
        return repr(value)[:_LONGEST]
    except Exception as error:
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def _set_variable(name: bytes, value: bytes | None) -> None:
    if value is None:
        os.environb.pop(name, None)
    else:
        os.environb[name] = value


def _restore_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index] # a list in every version that there is
    with warnings.catch_warnings():
        """Leaving it has the module look at its filters again."""
