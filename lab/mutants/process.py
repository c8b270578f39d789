"""Processes that are forked for one piece of work each, in parallel, with limits on time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

_Work = TypeVar("_Work")
_MEMORY = 64 << 30
"""Bytes of addresses that a process may have more than the one that it was forked from; tests of wide strides take 4 GiB, and more than 16 with 400 examples."""
_WALL = 20
"""Seconds on the clock for each second of CPU time: a process that waits for something uses none."""


class Report:
    """A forked process's side: what it tells the other one, and how long its next step may take."""

    def __init__(self, descriptor: int, scratch: Path) -> None:
        self._descriptor, self.scratch = descriptor, scratch

    def send(self, **message: Any) -> None:
        os.write(self._descriptor, json.dumps(message).encode() + b"\n")

    def allow(self, seconds: float) -> None:
        """End the process if its next step takes more CPU time."""
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def end(self) -> NoReturn:
        os._exit(0)


@dataclass
class EndedProcess(Generic[_Work]):
    """A process that has ended: how, after which messages, and how much CPU time it took.

    `how` is "" for a process that came to its end, otherwise "timeout" or "crash".
    """

    work: _Work
    how: str
    messages: list[dict[str, Any]]
    seconds: float


@dataclass
class _Running(Generic[_Work]):
    work: _Work
    pid: int
    watched: int
    pipe: int
    scratch: Path
    deadline: float
    received: bytearray = field(default_factory=bytearray)


class Processes(Generic[_Work]):
    """At most `most` processes at a time.

    Args:
        body: is called in the process with the work and its report; it may return.
    """

    def __init__(self, most: int, body: Callable[[_Work, Report], None]) -> None:
        self._most, self._body = most, body
        self._running = dict[int, _Running[_Work]]()
        self._selector = selectors.DefaultSelector()

    def run(self, works: Iterator[tuple[_Work, float]]) -> Iterator[EndedProcess[_Work]]:
        """Each piece of work with the seconds of CPU time that it may take, as they end."""
        try:
            waiting = True
            while waiting or self._running:
                while waiting and len(self._running) < self._most:
                    following = next(works, None)
                    waiting = following is not None
                    if following is not None:
                        self._start(*following)
                yield from self._ended()
        finally:
            for one in self._running.values():
                _kill(one.pid)
                shutil.rmtree(one.scratch, ignore_errors=True)

    def _start(self, work: _Work, seconds: float) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        scratch = Path(tempfile.mkdtemp(prefix="statecheck-mutant-"))
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _settled(lambda: self._body(work, Report(writing, scratch)), seconds, writing)
        os.close(writing)
        watched = os.pidfd_open(pid)
        one = _Running(work, pid, watched, reading, scratch, time.monotonic() + seconds * _WALL)
        self._running[pid] = one
        self._selector.register(watched, selectors.EVENT_READ, pid)
        self._selector.register(reading, selectors.EVENT_READ, pid)

    def _ended(self) -> Iterator[EndedProcess[_Work]]:
        events = self._selector.select(0.5)
        gone = set[int]()
        for key, _ in events:
            one = self._running[key.data]
            if key.fd == one.pipe:
                self._receive(one)
            else:
                gone.add(key.data)
        late = {pid for pid, one in self._running.items() if time.monotonic() > one.deadline}
        for pid in gone | late:
            one = self._running.pop(pid)
            if pid not in gone:
                _kill(pid)
            _, status, used = os.wait4(pid, 0)
            # What it has started itself.
            _kill(pid)
            self._receive(one)
            for descriptor in (one.watched, one.pipe):
                with contextlib.suppress(KeyError):
                    self._selector.unregister(descriptor)
                os.close(descriptor)
            shutil.rmtree(one.scratch, ignore_errors=True)
            messages = [json.loads(line) for line in one.received.splitlines()]
            how = _ending(os.waitstatus_to_exitcode(status), late=pid in late)
            yield EndedProcess(one.work, how, messages, used.ru_utime + used.ru_stime)

    def _receive(self, one: _Running[_Work]) -> None:
        with contextlib.suppress(BlockingIOError, KeyError):
            while chunk := os.read(one.pipe, 1 << 16):
                one.received += chunk
            # Nothing more comes, and an ended pipe is always ready.
            self._selector.unregister(one.pipe)


def _ending(code: int, *, late: bool) -> str:
    if late or code in (-signal.SIGPROF, -signal.SIGXCPU):
        return "timeout"
    return "" if code == 0 else "crash"


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _settled(body: Callable[[], None], seconds: float, writing: int) -> NoReturn:
    """Run the body of a new process, and end it without exit handlers of what the other one has imported."""
    code = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        errors = os.environ.get("STATECHECK_MUTANT_ERRORS")
        noise = os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if errors else quiet
        for descriptor, standard in ((quiet, 0), (noise, 1), (noise, 2)):
            os.dup2(descriptor, standard)
        sys.stdout = sys.stderr = os.fdopen(noise, "w", closefd=False)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        most = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        body()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os.close(writing)
        os._exit(code)
