"""A process that has torch and Triton imported, and forks workers and engines. It never touches the device itself.

The standard library's fork server will not do: a process has only one of it, while kernels of a process are either
executed or compiled; it may not be used by daemons, which the engines of a campaign are; and in Python 3.11 it
imports its preloads without the parent's path.

Importing torch, Triton, Hypothesis and the properties takes seconds of CPU time. One process of a campaign pays for it:
a process that has to fork others gets a server of its own as its first step, forked while it is still like the one that
it was forked from.

Nothing outlives its parent: the server ends when its control socket does, and takes what it has forked with it.
This is the parent's side; what the server does is in `forking`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from statecheck import rooms
from statecheck.workers.fork_wire import ALIVE, UNKNOWN, Fork, Reap, ask

_TRIES = 3
_WORKER, SHARE = f"{__package__}.server:main", f"{__package__}.shared_workers:main"


class _Child:
    """A process that this one has forked, as `subprocess.Popen` has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self._status is None:
            try:
                found, status = os.waitpid(self.pid, options)
                self._status = os.waitstatus_to_exitcode(status) if found else None
            except ChildProcessError:
                self._status = UNKNOWN
        return self._status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        self.poll(0)


class ForkServer:
    """The parent's side of a server that runs already. Threads may share it."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | _Child) -> None:
        self._control, self._process, self._lock = control, process, threading.Lock()
        self._numbers = itertools.count()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, what: Fork, *descriptors: int) -> int | None:
        """The new process's id; None where the server is gone."""
        pid = self._ask(what, *descriptors)
        return None if pid == UNKNOWN else pid

    def end(self, pid: int, patience: float = 0.0) -> int:
        """Kill a process that does not end by itself within `patience` seconds; how it ended, or `UNKNOWN`."""
        return self._ask(Reap(pid, patience))

    def ended(self, pid: int, patience: float = 0.0) -> int | None:
        """How a process ended, or `UNKNOWN`; None if it runs on after `patience` seconds."""
        status = self._ask(Reap(pid, patience, killed=False))
        return None if status == ALIVE else status

    def _ask(self, what: Fork | Reap, *descriptors: int) -> int:
        with self._lock:
            with contextlib.suppress(OSError):
                # A subject may have stopped its parent, which would never answer.
                os.kill(self.pid, signal.SIGCONT)
            return ask(self._control, next(self._numbers), what, descriptors)

    def close(self) -> None:
        """End the server, and what it has forked with it."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class Forked:
    """A process that a server has forked, as `multiprocessing.Process` has it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid
        self.exitcode: int | None = None

    def join(self, timeout: float) -> None:
        if self.exitcode is None:
            self._note(self._server.ended(self.pid, timeout))

    def is_alive(self) -> bool:
        self.join(0.0)
        return self.exitcode is None

    def kill(self) -> None:
        """It is gone when this returns."""
        if self.exitcode is None:
            self._note(self._server.end(self.pid))

    def _note(self, status: int | None) -> None:
        # If the server is gone, so are the processes that it forked.
        self.exitcode = -signal.SIGKILL if status == UNKNOWN else status


_servers: dict[tuple[int, str], ForkServer] = {}
_servers_lock = threading.Lock()


def server_for(device: str, *preloads: str) -> ForkServer:
    """This process's server for the device; a new one where there is none, or none any more.

    Args:
        preloads: modules that a new one imports at once, beside what every worker needs.
    """
    with _servers_lock:
        key = os.getpid(), device
        found = _servers.get(key)
        if found is None or not found.alive:
            found = _servers[key] = _started(device, preloads)
            atexit.register(found.close)
        return found


def adopt(device: str, control: socket.socket, pid: int) -> None:
    """Take a process that this one has forked for its server."""
    _servers[os.getpid(), device] = ForkServer(control, _Child(pid))


def _started(device: str, preloads: Sequence[str]) -> ForkServer:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", f"{__package__}.forking", device, str(theirs.fileno()), *preloads]
    with theirs, _uninterrupted():
        process = subprocess.Popen(
            command, env=_environment(), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
    return ForkServer(ours, process)


def fork(device: str, what: Fork | None = None) -> tuple[ForkServer, int, socket.socket]:
    """A new process, by default a worker: who has forked it, its process id, and this end of the way to it.

    Raises:
        RuntimeError: servers end again and again; why is on stderr.
    """
    wanted = what or Fork(_WORKER, (device,), name="worker")
    for _ in range(_TRIES):
        server = server_for(device)
        ours, theirs = socket.socketpair()
        with theirs:
            pid = server.fork(wanted, theirs.fileno())
        if pid is not None:
            return server, pid, ours
        ours.close()
        server.close()
    raise RuntimeError(f"the process that forks workers for {device} dies")


def _environment() -> dict[str, str]:
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
