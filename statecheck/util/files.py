"""Files that are whole at every moment, even if the process is killed during the write."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

_LONGEST = 120
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


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
    """The text, such as a property's id, as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text.replace("/", "-"))[:_LONGEST].lstrip("-")


def read_text(path: Path, largest: int) -> str:
    """The text of a file from outside.

    Raises:
        OSError: there is no such file, or it may not be read.
        ValueError: no regular file, more than `largest` bytes, or not UTF-8.
    """
    status = path.stat()
    # What is no file is not even opened: a FIFO waits for its writer, and to open a device may do something.
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise ValueError(f"file = {kind}, but should be a regular file [{path}]")
    if status.st_size > largest:
        raise ValueError(f"size = {status.st_size} bytes, but should be at most {largest} [{path}]")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text = bytes that are no UTF-8, but should be UTF-8 [{path}]: {error}") from error


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


def write_whole(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a file so that at every moment `path` holds all of `text` or what it held before.

    Args:
        durable: survive a power failure too, for some milliseconds. The end of the process is always survived.
    """
    temporary = path.with_name(f"{path.stem}.{os.urandom(8).hex()}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(encoded(text))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        # The name stands in the folder, which comes to the disk on its own. Not every file system can do this to a folder.
        with suppress(OSError):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
