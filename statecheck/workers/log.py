"""What a process is about to do, in memory that outlives it: the steps of the example in hand, and since when a call runs.

The memory is a file that is mapped, so that a step costs one copy of its bytes, and that can be read from outside whatever the
process is doing: also while it holds the interpreter's lock, is stopped, or was killed. `recovered` makes a case of it.

The file begins with a header (see `Activity`). Records follow: one that says what is tested, and one for each step of the
example in hand; where that has failed, another one has all of the case. A record is its length, a checksum, and its content; a torn one at the end is a step that was not executed.
"""

from __future__ import annotations

import enum
import json
import mmap
import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from statecheck.case import Case
from statecheck.case.packed import pack
from statecheck.case.values import Step
from statecheck.data.locks import try_lock

SUFFIX = ".running"
WORKER = "worker."
"""What the name of a worker's log begins with; its process id follows."""
_MAGIC = b"steps\0\0\1"
_HEADER = struct.Struct("<8sQIId")
_NUMBER, _RECORD = struct.Struct("<Q"), struct.Struct("<II")
_END = bytes(_RECORD.size)
_ROOM = 1 << 16
_TRIES = 100


def running_path(pending: Path, name: str) -> Path:
    """Where the log of a worker, or of a property that is explored without a campaign, stands."""
    return pending / f"{name}{SUFFIX}"


class State(enum.IntEnum):
    """What the process is doing."""

    IDLE = 0
    """No example is in hand."""
    BETWEEN_CALLS = 1
    CALL = 2
    """A function of the subject runs in this process."""
    ASKED = 3
    """It waits for another process, with a time limit of its own."""
    CONDITION = 4
    """A condition of a known defect is asked about the failing example; the log has all of the case."""


@dataclass(frozen=True)
class Activity:
    """What the process is doing.

    `number` grows with every change. `since` is when the last change was, in seconds of the system's monotonic clock. `examples`
    were begun in the task in hand.
    """

    number: int = 0
    state: State = State.IDLE
    examples: int = 0
    since: float = 0.0


class StepLog:
    """An open log; as long as it is open, no other process takes it for one that was left behind.

    What cannot be recorded is no reason to stop: `problem` says why, and the log then holds nothing of the example.

    Args:
        path: the file; where another process has it open, one beside it.
        about: what is tested, the fields of a case without its steps.

    Raises:
        OSError: there is no room for it.
    """

    def __init__(self, path: Path, about: Mapping[str, Any] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.problem = ""
        self._number = self._examples = 0
        self.path, self._file = _opened(path)
        try:
            os.ftruncate(self._file, 0)
            self._memory = self._mapped(_ROOM)
        except OSError:
            self.path.unlink(missing_ok=True)
            os.close(self._file)
            raise
        self.begin_task(about or {})

    def _mapped(self, size: int) -> mmap.mmap:
        # With its blocks: on a full disk a write to memory without any would end the process.
        os.posix_fallocate(self._file, 0, size)
        return mmap.mmap(self._file, size)

    def begin_task(self, about: Mapping[str, Any]) -> None:
        """What follows is about something else, and no example is in hand."""
        self._end = self._head = _HEADER.size
        self._examples = 0
        self._change(State.IDLE)
        self._append(json.dumps(dict(about), separators=(",", ":")).encode())
        self._head = self._end

    def begin(self) -> None:
        """An example begins; the one before is forgotten."""
        self._forget()
        self._examples += 1
        self._change(State.BETWEEN_CALLS)

    def rest(self) -> None:
        """No example is in hand."""
        self._forget()
        self._change(State.IDLE)

    def note(self, content: Sequence[Step] | Case) -> None:
        """These steps are about to be executed, or the example in hand is this failing case."""
        try:
            self._append(pack(content))
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
            self._forget()

    def judge(self, case: Case) -> None:
        """Conditions of known defects are about to be asked about a failing case."""
        self.note(case)
        self._change(State.CONDITION)

    def enter(self, state: State = State.CALL) -> None:
        """A call begins."""
        self._change(state)

    def leave(self) -> None:
        """The call has ended."""
        self._change(State.BETWEEN_CALLS)

    def _forget(self) -> None:
        self._memory[self._head : self._head + len(_END)] = _END
        self._end = self._head

    def _change(self, state: State) -> None:
        self._number += 2
        now = time.monotonic()
        # Odd while it is being written: a reader then looks again.
        _HEADER.pack_into(self._memory, 0, _MAGIC, self._number - 1, state, self._examples, now)
        _NUMBER.pack_into(self._memory, len(_MAGIC), self._number)

    def _append(self, content: bytes) -> None:
        begin = self._end + _RECORD.size
        end = begin + len(content)
        if end + len(_END) > len(self._memory):
            self._grow(end + len(_END))
        # In this order: with its length the record is there.
        self._memory[begin:end] = content
        self._memory[end : end + len(_END)] = _END
        _RECORD.pack_into(self._memory, self._end, len(content), crc32(content))
        self._end = end

    def _grow(self, least: int) -> None:
        size = 1 << least.bit_length()
        larger = self._mapped(size)
        self._memory.close()
        self._memory = larger

    def close(self) -> None:
        """Nothing is in hand any more."""
        # While the lock is held: unlocked, it would be taken for one that was left behind.
        self.path.unlink(missing_ok=True)
        self._memory.close()
        with suppress(OSError):
            # A subject may have closed it.
            os.close(self._file)


def _opened(path: Path) -> tuple[Path, int]:
    """The file, locked; another name where another process has it open."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not try_lock(file):
            # The end of a name says whose log it is.
            path = path.with_name(f"{os.getpid()}-{path.name}")
        # The process that had it may have removed it since it was opened here.
        elif os.fstat(file).st_nlink:
            return path, file
        os.close(file)


class LogReader:
    """Looks at a log of another process from time to time.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._last = Activity()

    def read(self) -> Activity:
        """What the process is doing; what it was doing, where it was ended or stopped while it wrote that down."""
        for _ in range(_TRIES):
            found = _activity(os.pread(self._file, _HEADER.size, 0))
            again = _activity(os.pread(self._file, _HEADER.size, 0))
            if found is not None and found == again:
                self._last = found
                break
        return self._last

    def put_back(self) -> None:
        """Write the file again, where another process has removed it.

        Raises:
            OSError: there is no room for it.
        """
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(os.pread(self._file, os.fstat(self._file).st_size, 0))

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._file)


def _activity(header: bytes) -> Activity | None:
    """None while it is being written."""
    if len(header) < _HEADER.size:
        return None
    magic, number, state, examples, since = _HEADER.unpack(header)
    if magic != _MAGIC or number % 2 or state >= len(State):
        return None
    return Activity(number, State(state), examples, since)


def records(data: bytes) -> Iterator[bytes]:
    """The content of each whole record of a log, that about what is tested first."""
    if data[: len(_MAGIC)] != _MAGIC:
        return
    at = _HEADER.size
    while at + _RECORD.size <= len(data):
        length, checksum = _RECORD.unpack_from(data, at)
        content = data[at + _RECORD.size : at + _RECORD.size + length]
        if not length or len(content) < length or crc32(content) != checksum:
            return
        yield content
        at += _RECORD.size + length
