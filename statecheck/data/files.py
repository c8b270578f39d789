"""Files that are whole at every moment, even if the process is killed during the write."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

HOST = "".join(one if one.isalnum() else "_" for one in os.uname().nodename)[:40]
"""Who writes: the names of files that are being written have it, and the number of the process."""

_LONGEST = 120


def encoded(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which a subject may have in a message and UTF-8 has no bytes for, is escaped."""
    return text.encode(errors="backslashreplace")


def write_text(path: Path, text: str) -> None:
    """Write a file for people, whatever a subject has put into the text."""
    path.write_bytes(encoded(text))


def append_text(path: Path, text: str) -> None:
    """As `write_text`, behind what the file has."""
    with path.open("ab") as file:
        file.write(encoded(text))


def in_file_name(text: str) -> str:
    """The text as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)[:_LONGEST]


def read_text(path: Path, largest: int) -> str:
    """The text of a file from outside.

    Raises:
        OSError: there is no such file, or it may not be read.
        ValueError: no regular file, more than `largest` bytes, or not UTF-8.
    """
    # What is no file is not even opened: to open a device may do something.
    _require_file(path, path.stat(), largest)
    # A FIFO that has taken its place since would keep an ordinary open waiting for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        _require_file(path, os.fstat(file.fileno()), largest)
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"size = more than {largest} bytes, but should be at most {largest} [{path}]")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text = bytes that are no UTF-8, but should be UTF-8 [{path}]: {error}") from error


def _require_file(path: Path, found: os.stat_result, largest: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"file = {_kind(found.st_mode)}, but should be a regular file [{path}]")
    if found.st_size > largest:
        raise ValueError(f"size = {found.st_size} bytes, but should be at most {largest} [{path}]")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def require_inside(path: Path, folder: Path) -> None:
    """Refuse a link that leads out of the folder whose files are read.

    Raises:
        OSError: a link to nothing, or to itself.
        ValueError: it leads somewhere else.
    """
    if path.is_symlink() and not Path(os.path.realpath(path, strict=True)).is_relative_to(
        os.path.realpath(folder)
    ):
        raise ValueError(f"file = a link to elsewhere, but should be inside of {folder} [{path}]")


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
        # The name stands in the folder, which comes to the disk on its own.
        _sync(path.parent)


def _linked(source: Path, target: Path) -> bool:
    """Unlike a rename, this fails if another process was first. Not every file system can do it."""
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
