"""Files that are whole at every moment, whoever is killed while they are written."""

from __future__ import annotations

import os
from pathlib import Path

HOST = "".join(one if one.isalnum() else "_" for one in os.uname().nodename)[:40]
"""Who writes: the names of files that are being written have it, and the number of the process."""


def encoded(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which a subject may have in a message and UTF-8 has no bytes for, is spelled out."""
    return text.encode(errors="backslashreplace")


def write_text(path: Path, text: str) -> None:
    """Write a file for people, whatever a subject has put into the text."""
    path.write_bytes(encoded(text))


def write_whole(path: Path, text: str, *, durable: bool = True, new: bool = False) -> None:
    """Write a file so that at every moment `path` holds all of `text` or what it held before.

    Args:
        durable: survive a power failure too, for some milliseconds. The end of the process is always survived.
        new: there should be no such file yet.

    Raises:
        FileExistsError: there is one, as far as the file system can tell.
    """
    temporary = path.with_name(f"{path.stem}.{HOST}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(encoded(text))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if not (new and _linked(temporary, path)):
            temporary.replace(path)
    finally:
        _remove(temporary)
    if durable:
        _sync(path.parent)


def _linked(source: Path, target: Path) -> bool:
    """Unlike a rename, this fails where somebody else was first. Not every file system can do it."""
    try:
        target.hardlink_to(source)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        return False
    return True


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        """What has become of the file is known by now, and nothing is to hide it."""


def _sync(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        """Not every file system can do it to a folder."""
    finally:
        os.close(handle)
