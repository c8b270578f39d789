"""Files that are whole at every moment, even if the process is killed during the write; files from outside, which are small, not too deep, and have
every key once; and folders that commands have written, which say so.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from statecheck.util.decode import MOST_PADDED

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


MARKER = ".statecheck"
"""A file in a folder that a command has written, which says what is in the folder."""
CONFTEST = "conftest.py"
_UNCOLLECTED = '''"""Written by statecheck: pytest collects a file of these reports only where its path is given."""

collect_ignore_glob = ["*"]
'''


def mark(folder: Path, kind: str) -> None:
    """Say what a folder holds, where it can be said."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(f"{kind}\n", encoding="utf-8")


def mark_reports(folder: Path) -> None:
    """Mark a folder of reports, have git ignore it, and keep a plain `pytest` from collecting the tests in it; a user's own files there stay."""
    with suppress(OSError):
        if not (folder / CONFTEST).exists():
            mark(folder, "reports")
            (folder / CONFTEST).write_text(_UNCOLLECTED, encoding="utf-8")
            if not (folder / ".gitignore").exists():
                text = "# Written by statecheck: reports are no part of the project.\n*\n"
                (folder / ".gitignore").write_text(text, encoding="utf-8")


_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')
_SURROGATE = re.compile("[\ud800-\udfff]")


def toml_string(text: str) -> str:
    """A basic string of TOML that is read as `text`. Half a surrogate pair, which no file in UTF-8 has, is written as its escape.

    JSON's strings are no such strings: they have a letter beyond 16 bits as two escapes, which TOML refuses.
    """
    whole = _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    escaped = _ESCAPED.sub(lambda one: f"\\{one[0]}" if one[0] in '"\\' else f"\\u{ord(one[0]):04x}", whole)
    return f'"{escaped}"'


LARGEST_JSON = 1 << 26
"""Bytes of a file."""
_DEEPEST = 100


def load_json(path: Path, rule: str, *, largest: int = LARGEST_JSON) -> Any:
    """The JSON data in a file.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: not such a file; names the file and the rule.
    """
    return parse_json(read_text(path, largest), rule)


def parse_json(text: str, rule: str) -> Any:
    """JSON data.

    Args:
        rule: what the text should be, such as "a case of schema 7".

    Raises:
        ValueError: no JSON, a key twice in one object, a number that JSON does not have, or too many lists in lists.
    """
    try:
        data = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"text = no JSON ({error}), but should be {rule}") from error
    _require_small(data)
    return data


def save_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON data into a file, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return data


def _require_small(data: Any) -> None:
    """Refuse data that are small in a file and large in memory, or nested too deeply for recursion."""
    padded = 0
    waiting: list[tuple[int, Any]] = [(-1, [data])]
    while waiting:
        depth, item = waiting.pop()
        if depth > _DEEPEST:
            raise ValueError(f"depth = more than {_DEEPEST}, but should be at most {_DEEPEST} lists in lists")
        if isinstance(item, dict) and isinstance(item.get("padded"), list):
            times = item["padded"][-1:]
            padded += times[0] if times and type(times[0]) is int and times[0] > 0 else 0
        items = item.values() if isinstance(item, dict) else item
        waiting += [(depth + 1, inner) for inner in items if isinstance(inner, (list, dict))]
    if padded > MOST_PADDED:
        raise ValueError(f"padded elements = {padded}, but should be at most {MOST_PADDED} in all")
