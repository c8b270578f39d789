"""What a worker is about to do, on disk before it is told, in a form that is read without executing anything.

A file starts with a record that says what is tested; one record follows for each message of the example in hand. A record is
its length, a checksum, and JSON: a torn one at the end is the message that was never sent.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

from oracle.profile import DOCUMENTS, Profile
from properties.harness.case import Case
from properties.harness.case.codec import decode, encode
from properties.harness.case.failure import stated
from properties.harness.case.values import Call, Outcome, Raised, Step
from properties.harness.data.locks import try_lock
from properties.harness.execution.run import Follower, rules_of

_RECORD = struct.Struct("<II")
SUFFIX = ".running"
UNKNOWN_OUTCOME = Raised("NotRecorded", "the process ended before anything was written about this call")


def running_path(pending: Path, name: str) -> Path:
    """Where the log of a property stands while a campaign explores it."""
    return pending / f"{name}{SUFFIX}"


class StepLog:
    """An open log, which nobody else takes for one that was left behind."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._file = _opened(path)
        try:
            os.ftruncate(self._file, 0)
            self._head = self._write(dict(about))
        except OSError:
            os.close(self._file)
            raise
        self._empty = True

    def begin(self) -> None:
        """Forget the example before."""
        if not self._empty:
            os.ftruncate(self._file, self._head)
            self._empty = True

    def note(self, steps: Sequence[Step]) -> None:
        """On disk when this returns, as far as the end of any process is concerned."""
        self._write([encode(step) for step in steps])
        self._empty = False

    def _write(self, content: Any) -> int:
        data = json.dumps(content, separators=(",", ":")).encode()
        record = _RECORD.pack(len(data), crc32(data)) + data
        written = os.write(self._file, record)
        while written < len(record):
            written += os.write(self._file, record[written:])
        return len(record)

    def close(self) -> None:
        """Nothing is in hand any more."""
        # While the lock is held: unlocked, it would be taken for one that was left behind.
        self.path.unlink(missing_ok=True)
        os.close(self._file)


def _opened(path: Path) -> tuple[Path, int]:
    """The file, locked; another name where another process has it open."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if not try_lock(file):
            # The end of a name says whose log it is.
            path = path.with_name(f"{os.getpid()}-{path.name}")
        # The process that had it may have removed it since it was opened here.
        elif os.fstat(file).st_nlink:
            return path, file
        os.close(file)


def recover(path: Path, profile: Profile = DOCUMENTS) -> Case | None:
    """The example that the log was left with, None if nothing was in hand or somebody is still writing.

    What the rules expect is worked out anew. No outcome is known: those of the case say so.

    Args:
        profile: of the release that was run. A replay asks the rules of its own subject again.
    """
    try:
        records = list(_records(_left_behind(path)))
        if len(records) < 2:
            return None
        about, *messages = records
        return _case(about, [decode(step) for message in messages for step in message], profile)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # There is none, somebody is writing it, or it is no log at all.
        return None


def recover_all(folder: Path) -> list[Path]:
    """Turn the logs that campaigns have left in `folder` into case files beside them; their paths."""
    found = (put_down(path) for path in sorted(folder.glob(f"*{SUFFIX}")))
    return [path for path in found if path is not None]


def put_down(path: Path) -> Path | None:
    """Turn a log into a case file beside it, if it was left behind with something in hand; the file's path."""
    case = recover(path)
    saved = case.save(path.with_suffix(".unfinished.json")) if case is not None else None
    drop(path)
    return saved


def drop(path: Path) -> None:
    """Remove a log that was left behind, as far as nobody is writing it."""
    if not _in_use(path):
        path.unlink(missing_ok=True)


def _in_use(path: Path) -> bool:
    try:
        _left_behind(path)
    except BlockingIOError:
        return True
    except OSError:
        """It is gone."""
    return False


def _left_behind(path: Path) -> bytes:
    # A FIFO of that name would keep an ordinary open waiting for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        # Shared: two that look at the same time must not take each other for its writer.
        if not try_lock(file.fileno(), shared=True):
            raise BlockingIOError(f"{path} is being written")
        return file.read()


def _records(data: bytes) -> Iterator[Any]:
    """The whole records at the beginning."""
    while len(data) >= _RECORD.size:
        length, checksum = _RECORD.unpack_from(data)
        content, data = data[_RECORD.size : _RECORD.size + length], data[_RECORD.size + length :]
        if len(content) < length or crc32(content) != checksum:
            return
        yield json.loads(content)


def _case(about: Mapping[str, Any], steps: Sequence[Step], profile: Profile) -> Case:
    kept = list(steps)
    while kept and not isinstance(kept[-1], Call):
        kept.pop()
    asked = (found for _, found in Follower(rules_of(profile)).follow(kept))
    expected = tuple(found.expected for found in asked if found is not None)
    unknown: tuple[Outcome, ...] = (UNKNOWN_OUTCOME,) * len(expected)
    ended = replace(stated("the process that ran this input ended"), kind="fault")
    return Case(**about, steps=tuple(kept), expected=expected, actual=unknown, failure=ended)
