"""A process that has torch and Triton imported, and forks workers. It never touches the device itself.

The standard library's fork server will not do: a process has only one of it, while kernels of a process are either
executed or compiled; it may not be used by daemons, which the engines of a campaign are; and in Python 3.11 it
imports its preloads without the parent's path.

Nothing outlives its parent: the server ends when its control socket does, and takes its workers with it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from properties.harness import rooms

_REQUEST, _REPLY = struct.Struct("<cqd"), struct.Struct("<q")
_FORK, _END = b"f", b"e"
_PR_SET_PDEATHSIG = 1
_REAP_SECONDS = 10.0
_WATCH_MILLISECONDS = 50
_TRIES = 3
UNKNOWN = -(1 << 32)
"""The status of a process that nobody could tell."""


class ForkServer:
    """The parent's side. Threads may share it."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        command = [sys.executable, "-m", __name__, device, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command, env=_environment(), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self) -> tuple[int, socket.socket] | None:
        """A new worker's process id, and this end of the way to it; None where the server is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            pid = self._ask(_FORK, fds=[theirs.fileno()])
        if pid == UNKNOWN:
            ours.close()
            return None
        return pid, ours

    def end(self, pid: int, patience: float = 0.0) -> int:
        """Kill a worker that does not end by itself within `patience` seconds; how it ended, `UNKNOWN` if nobody knows."""
        return self._ask(_END, pid, patience)

    def _ask(self, what: bytes, pid: int = 0, patience: float = 0.0, fds: list[int] | None = None) -> int:
        with self._lock, contextlib.suppress(OSError):
            socket.send_fds(self._control, [_REQUEST.pack(what, pid, patience)], fds or [])
            reply = _exactly(self._control, _REPLY.size)
            return int(_REPLY.unpack(reply)[0]) if reply else UNKNOWN
        return UNKNOWN

    def close(self) -> None:
        """End the server, and its workers with it."""
        self._control.close()
        self._process.kill()
        self._process.wait()


_servers: dict[tuple[int, str], ForkServer] = {}
_servers_lock = threading.Lock()


def server_for(device: str) -> ForkServer:
    """This process's server for the device; a new one where there is none, or none any more."""
    with _servers_lock:
        key = os.getpid(), device
        found = _servers.get(key)
        if found is None or not found.alive:
            found = _servers[key] = ForkServer(device)
            atexit.register(found.close)
        return found


def fork(device: str) -> tuple[ForkServer, int, socket.socket]:
    """A new worker: who has forked it, its process id, and this end of the way to it.

    Raises:
        RuntimeError: servers die; they have said why on stderr.
    """
    for _ in range(_TRIES):
        server = server_for(device)
        forked = server.fork()
        if forked is not None:
            return server, *forked
        server.close()
    raise RuntimeError(f"the process that forks workers for {device} dies")


def _environment() -> dict[str, str]:
    # One thread each: a library's pool of threads would not survive the fork.
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return rooms.added_to(worker_environment() | one_thread)


def worker_environment() -> dict[str, str]:
    """This process's environment; `triton_mode.prepare` says how kernels are run in a worker."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def _exactly(end: socket.socket, size: int) -> bytes:
    """`size` bytes, or none at the end."""
    received = b""
    while len(received) < size:
        chunk = end.recv(size - len(received))
        if not chunk:
            return b""
        received += chunk
    return received


def die_with_parent() -> None:
    """Ask the system to kill this process when its parent is gone, whatever either is doing; not everywhere possible."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        # It may have gone before the system was asked.
        if os.getppid() != parent:
            os._exit(1)


def preload(device: str) -> None:
    """Import what every worker needs. Subjects are not among it: each worker imports its own."""
    from properties.harness import triton_mode

    triton_mode.prepare(device)
    import torch
    import triton.language  # noqa: F401 - for the workers

    from properties.harness import port  # noqa: F401 - for the workers

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def main(device: str, descriptor: int) -> None:
    """The server's life: forks until its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    with _ending_with(control):
        preload(device)
    with contextlib.suppress(OSError):
        while _served(device, control):
            """One more request."""
    # Without the ends of what has been imported: nobody is left to be told of leaks.
    os._exit(0)


@contextlib.contextmanager
def _ending_with(control: socket.socket) -> Iterator[None]:
    """End the process when the other end is gone, which otherwise shows only once imports of seconds are over.

    The thread is over before anything is forked.
    """
    done, poll = threading.Event(), select.poll()
    poll.register(control, 0)

    def watch() -> None:
        while not done.is_set():
            # Nothing was asked for: what is told all the same is that nobody is there any more.
            if poll.poll(_WATCH_MILLISECONDS):
                os._exit(0)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _served(device: str, control: socket.socket) -> bool:
    """Answer one request, False where nobody is left to ask."""
    data, fds, _, _ = socket.recv_fds(control, _REQUEST.size, 1)
    data += _exactly(control, _REQUEST.size - len(data)) if data else b""
    if len(data) < _REQUEST.size:
        return False
    what, pid, patience = _REQUEST.unpack(data)
    answer = _forked(device, control, fds[0]) if what == _FORK else _ended(pid, patience)
    control.sendall(_REPLY.pack(answer))
    return True


def _forked(device: str, control: socket.socket, descriptor: int) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_worker(device, control, descriptor, server)
    os.close(descriptor)
    return pid


def _become_worker(device: str, control: socket.socket, descriptor: int, server: int) -> None:
    from properties.harness.device.channel import Channel
    from properties.harness.device.server import Server

    code = 1
    try:
        die_with_parent()
        if os.getppid() == server:
            control.close()
            _silence()
            Server(device, Channel(socket.socket(fileno=descriptor))).run()
            code = 0
    finally:
        # Without the ends of what the server has imported.
        os._exit(code)


def _silence() -> None:
    """What a subject or the device's library prints would tear the campaign's display."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _ended(pid: int, patience: float) -> int:
    """Reap a worker: as it ends by itself within `patience` seconds, or else killed."""
    kill_at = time.monotonic() + patience
    deadline, killed = kill_at + _REAP_SECONDS, False
    while time.monotonic() < deadline:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return UNKNOWN
        if found:
            return os.waitstatus_to_exitcode(status)
        if not killed and time.monotonic() >= kill_at:
            os.kill(pid, signal.SIGKILL)
            killed = True
        time.sleep(0.001)
    return UNKNOWN


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
