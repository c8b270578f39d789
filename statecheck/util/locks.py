"""Locks of open files, which end with the process that holds them."""

from __future__ import annotations

import fcntl


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
