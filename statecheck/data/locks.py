"""Locks of open files, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_SECONDS = 0.005
_LOCK = ".lock"
_held_by_others: set[Path] = set()


def try_lock(file: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file; False where another process holds one that excludes it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(file: int, seconds: float) -> bool:
    """As `try_lock`, and wait for it so long at most: the process that holds it may have been stopped."""
    until = time.monotonic() + seconds
    while not try_lock(file):
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


@contextmanager
def locked_folder(folder: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a folder, where its file system has locks.

    Args:
        seconds: how long to wait for a process that holds it and writes nothing; the next time there is no wait.

    Raises:
        OSError: another process holds the lock.
    """
    lock = _opened(folder / _LOCK)
    try:
        if lock is not None and not _lock_in_time(lock, folder, seconds):
            raise OSError(f"another process has held its lock for {seconds:g} s and written nothing")
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock_in_time(lock: int, folder: Path, seconds: float) -> bool:
    """Take the lock, as long as the processes that hold it write something; in vain once, and then without waiting."""
    try:
        taken = lock_within(lock, 0.0)
        while not taken and folder not in _held_by_others:
            before = _changed_at(folder)
            taken = lock_within(lock, seconds)
            if not taken and _changed_at(folder) == before:
                break
    except OSError:
        # This file system has no locks.
        return True
    (_held_by_others.discard if taken else _held_by_others.add)(folder)
    return taken


def _opened(path: Path) -> int | None:
    """The lock file, of which another user may be the owner."""
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        with suppress(OSError):
            return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    return None


def _changed_at(folder: Path) -> int | None:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
