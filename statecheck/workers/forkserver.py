"""A process that has torch and Triton imported, and forks workers and engines. It never touches the device itself.

The standard library's fork server will not do: a process has only one of it, while kernels of a process are either
executed or compiled; it may not be used by daemons, which the engines of a campaign are; and in Python 3.11 it
imports its preloads without the parent's path.

Importing torch, Triton, Hypothesis and the properties takes seconds of CPU time. One process of a campaign pays for it, the
command's own where it can, and forks all others: a process that has to fork others itself gets a socket to the same server.

For each new process the parent makes a pipe, and sends the server a byte with the descriptors: the pipe's other end, and those
that the process gets. Through the pipe go the `Fork`, the id of the process, and at its end its exit code. So a request that
Ctrl-C cuts short disturbs no other.

Nothing outlives its parent: the server ends when the socket of its parent does, and takes what it has forked with it; when another
process ends that has sockets to it, it ends what it has forked for that process.
This is the parent's side; what the server does is in `forking`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from statecheck import rooms
from statecheck.rooms import import_path, working_folder
from statecheck.subject.loading import go_to, needs_tensors
from statecheck.util import limits

REQUEST = b"f"
_TRIES = 3
NO_DEVICE = ""
"""In place of a device: neither torch nor Triton is imported."""
_WORKER = f"{__package__}.server:main"
_LOOK_SECONDS, _LOOKS = 1.0, 10
"""Between two looks at how long threads waited for a core, at least so many within a limit. Most calls end before the first; waits before it count as time that a call had."""
_MOST_TIMES_LIMIT = 20.0
"""A process that waits for cores alone, as threads do that spin, hangs after so many times its limit."""


@dataclass(frozen=True)
class Fork:
    """Fork a process that calls "package.module:function" with the descriptors that it gets, and with `arguments`.

    Args:
        name: what the system shows the process under, at most 15 letters.
        forks: the process may have to fork others.
    """

    target: str
    arguments: tuple[Any, ...] = ()
    name: str = ""
    forks: bool = False


def kernels_of(subject: str, device: str) -> str:
    """The device whose kernels a worker of the subject runs: none for a library of sequences, wherever that runs."""
    return device if needs_tensors(subject) else NO_DEVICE


class ForkServer:
    """A process's side of a server that runs already. Threads may share it.

    Args:
        wait: waits until the server has ended; None where it is another process's, and goes on.
    """

    def __init__(self, control: socket.socket, pid: int, wait: Callable[[], object] | None) -> None:
        self.pid = pid
        self._control, self._wait = control, wait
        self._closed = False

    @property
    def alive(self) -> bool:
        poll = select.poll()
        if not self._closed:
            poll.register(self._control, select.POLLIN)
        # It sends nothing on this socket: if there is something to read, the socket is closed.
        return not self._closed and not poll.poll(0)

    def fork(self, what: Fork, *descriptors: int) -> Forked | None:
        """The new process; None where the server is gone."""
        status, theirs = Pipe()
        with contextlib.ExitStack() as interrupted:
            interrupted.callback(status.close)
            try:
                with theirs:
                    socket.send_fds(self._control, [REQUEST], [theirs.fileno(), *descriptors])
                status.send(what)
                forked = Forked(status.recv(), status)
            except (EOFError, OSError):
                return None
            interrupted.pop_all()
            return forked

    def close(self) -> None:
        """End what the server has forked for this process, and the server itself where it is this process's own."""
        if not self._closed:
            self._closed = True
            self._control.close()
            if self._wait is not None:
                with contextlib.suppress(OSError):
                    os.kill(self.pid, signal.SIGKILL)
                    self._wait()


class CoreWaits:
    """How long a process waits for a core: of its threads, and of those of the processes below it, the thread that waits longest.

    A call may wait for another thread, or for a compiler, and has less time than the clock says as soon as these have no core. A process that
    starts and ends between two looks is not seen, nor a process of the fork server for which this process waits. Nothing is seen where the system does not say it.

    Args:
        every: seconds between two looks at least.
        proc: where the system tells of its processes.
    """

    def __init__(self, pid: int, every: float = _LOOK_SECONDS, proc: Path = Path("/proc")) -> None:
        self._pid, self._every, self._proc = pid, every, proc
        self._before, self._looked_at, self._seconds = self._by_thread(), time.monotonic(), 0.0

    def look(self, most: float) -> float:
        """Seconds until now, at most so many. The system may tell of a long wait at its end alone."""
        now = time.monotonic()
        if now - self._looked_at >= self._every / 2:
            before, self._before, self._looked_at = self._before, self._by_thread(), now
            grown = (waited - before.get(thread, 0.0) for thread, waited in self._before.items())
            self._seconds += max(grown, default=0.0)
        return min(self._seconds, most)

    def _by_thread(self) -> dict[str, float]:
        found = {}
        for pid in self._family():
            tasks = self._proc / str(pid) / "task"
            for thread in _names_in(tasks):
                with contextlib.suppress(OSError, IndexError, ValueError):
                    waited = (tasks / thread / "schedstat").read_text(encoding="ascii").split()[1]
                    found[thread] = int(waited) / 1e9
        return found

    def _family(self) -> list[int]:
        """The process and all below it."""
        children: dict[int, list[int]] = {}
        for name in filter(str.isdecimal, _names_in(self._proc)):
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The name of a program may have spaces and brackets in it.
                about = (self._proc / name / "stat").read_text(encoding="ascii", errors="replace")
                children.setdefault(int(about.rpartition(")")[2].split()[1]), []).append(int(name))
        family = [self._pid]
        for pid in family:
            family += children.get(pid, [])
        return family


def _names_in(folder: Path) -> list[str]:
    """What is in a folder of the system: nothing where there is no such folder, or its process has ended."""
    with contextlib.suppress(OSError):
        return [path.name for path in folder.iterdir()]
    return []


class Forked:
    """A process that a server has forked, as `multiprocessing.Process` has it."""

    def __init__(self, pid: int, status: Connection) -> None:
        self.pid = pid
        self._status = status
        self.exitcode: int | None = None

    def join(self, timeout: float) -> None:
        if self.exitcode is None:
            try:
                self.exitcode = self._status.recv() if self._status.poll(timeout) else None
            except (EOFError, OSError):
                # The server is gone, and so are the processes that it forked.
                self.exitcode = -signal.SIGKILL

    def is_alive(self) -> bool:
        self.join(0.0)
        return self.exitcode is None

    def core_waits(self, every: float = _LOOK_SECONDS) -> CoreWaits:
        """How long it waits for a core from now on."""
        return CoreWaits(self.pid, every)

    def wait_for_message(self, pipe: Connection, limit: float) -> bool:
        """Wait until there is something to read from its pipe, or so many seconds are over; those without a core do not count.

        Raises:
            OSError: the pipe is closed.
        """
        began, every = time.monotonic(), min(_LOOK_SECONDS, limit / _LOOKS)
        if pipe.poll(every):
            return True
        waits = self.core_waits(every)
        while (rest := limit + waits.look(most=limit * _MOST_TIMES_LIMIT) - (time.monotonic() - began)) > 0.0:
            if pipe.poll(min(rest, every)):
                return True
        return False

    def kill(self, patience: float = 0.0) -> int:
        """Kill it, if it does not end by itself within `patience` seconds; how it ended. It is gone when this returns."""
        self.join(patience)
        if self.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.join(limits.KILL)
        self.exitcode = -signal.SIGKILL if self.exitcode is None else self.exitcode
        self._status.close()
        return self.exitcode


_servers: dict[tuple[int, str, str], ForkServer] = {}
"""By process, device, and the module of its own that a server has imported."""
_servers_lock = threading.Lock()


def server_for(device: str, *preloads: str, own: str = "") -> ForkServer:
    """This process's server for the device. A server is started if none is alive.

    Args:
        preloads: modules that a new server imports at once, beside what every worker needs.
        own: a module that the server has imported and others have not, "" for none.
    """
    with _servers_lock:
        key = os.getpid(), device, own
        server = _servers.get(key)
        if server is None or not server.alive:
            server = _servers[key] = _started(device, preloads, own)
            atexit.register(server.close)
        return server


def adopt(
    device: str, control: socket.socket, pid: int, wait: Callable[[], object] | None = None
) -> ForkServer:
    """Take a process that answers at this socket for this one's server.

    Args:
        wait: as of `ForkServer`.
    """
    server = ForkServer(control, pid, wait)
    _servers[os.getpid(), device, ""] = server
    return server


def _started(device: str, preloads: Sequence[str], own: str) -> ForkServer:
    ours, theirs = socket.socketpair()
    modules = (*preloads, own) if own else preloads
    command = [sys.executable, "-m", f"{__package__}.forking", device, str(theirs.fileno()), *modules]
    # A module of its own may lie where this process alone looks for modules.
    environment = server_environment() | (rooms.variables() if own else {})
    with theirs, _uninterrupted():
        process = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
    return ForkServer(ours, process.pid, process.wait)


def fork(device: str, what: Fork, *descriptors: int, own: str = "") -> Forked:
    """A new process, which gets copies of these descriptors.

    Args:
        own: as of `server_for`.

    Raises:
        RuntimeError: servers end again and again; why is on stderr.
    """
    for _ in range(_TRIES):
        server = server_for(device, own=own)
        forked = server.fork(what, *descriptors)
        if forked is not None:
            return forked
        server.close()
    raise RuntimeError(f"the process that forks workers for {own or device} dies")


def device_worker(device: str) -> Fork:
    """What forks a worker for the device."""
    return Fork(_WORKER, (device,), name="worker")


def fork_with_pipe(device: str, what: Fork) -> tuple[Forked, Connection]:
    """A new process, and this end of a pipe whose other end it gets; raises as `fork`."""
    ours, theirs = Pipe()
    with theirs:
        return fork(device, what, theirs.fileno()), ours


def server_environment() -> dict[str, str]:
    """The environment of a server, and of the workers that it forks."""
    # One thread each: a library's pool of threads would not survive the fork.
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    usual = rooms.added_to(worker_environment() | one_thread)
    # Where CI is set, Hypothesis loads a profile of its own when it is imported.
    return {name: value for name, value in usual.items() if name != "CI"}


def worker_environment() -> dict[str, str]:
    """This process's environment; `triton_mode.prepare` says how kernels are run in a worker."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is started meanwhile ignores Ctrl-C from its first moment; in threads but the main one there is nothing to do."""
    handler = None
    with contextlib.suppress(ValueError):
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


Surroundings = tuple[dict[str, str], str, list[str]]
"""Environment, folder and import path."""


def surroundings() -> Surroundings:
    """Those of this process, for a worker."""
    return worker_environment(), str(working_folder()), import_path()


def move_to(environment: dict[str, str], folder: str, path: Sequence[str]) -> None:
    """Take over the parent's environment, folder and import path."""
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
    go_to(folder)
    sys.path[:] = path
