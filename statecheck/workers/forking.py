"""The process that forks others, see `forkserver`: `python -m statecheck.workers.forking <device> <descriptor> [modules]`."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import NoReturn

from statecheck.workers.forkserver import NO_DEVICE, REQUEST, Fork, adopt, server_environment, server_for
from statecheck.workers.own_process import collect_rarely, is_command

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_MOST_DESCRIPTORS = 8


def die_with_parent() -> None:
    """Ask the system to kill this process when its parent is gone, whatever either is doing; not everywhere possible."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        # It may have gone before the system was asked.
        if os.getppid() != parent:
            os._exit(1)


def name_process(name: str) -> None:
    """Have the system show this process under a name of at most 15 letters; not everywhere possible."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def preload(device: str, modules: Sequence[str]) -> None:
    """Import what every worker needs, and `modules`. Subjects are not among it: each worker imports its own.

    Without a device, only `modules`.
    """
    # Nearly all that is imported stays: collections would look through it in vain.
    gc.disable()
    if device:
        from statecheck.kernels import triton_mode

        triton_mode.prepare(device)
        import torch
        import triton.language  # noqa: F401 - for the workers

        torch.set_num_threads(1)
    for module in modules:
        _imported(module)
    # A collection writes to every object that it looks at, and so copies pages that forks share with this process. None is
    # begun for what is garbage by now: it would take longer than all forks do.
    gc.freeze()
    gc.enable()


def _imported(name: str) -> ModuleType:
    """The module, with all that it says it will need."""
    found = importlib.import_module(name)
    getattr(found, "preload", lambda: None)()
    return found


@dataclass
class _Client:
    """A process that has others forked, over a socket of its own. What was forked for it ends with it."""

    owner: int
    """Its process id, 0 for the parent of the server."""
    forked: set[int] = field(default_factory=set)
    """What runs of the processes that were forked for it."""


class _Server:
    """Forks what is asked for, and sends how each process ended, until the parent is gone."""

    def __init__(self, device: str, control: socket.socket) -> None:
        self._device, self._control = device, control
        self._clients = {control: _Client(0)}
        self._running: dict[int, Connection] = {}
        """By process id: where its exit code goes."""
        self._ended, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def serve(self) -> NoReturn:
        # Ctrl-C goes to every process of the terminal; the command itself decides what ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        name_process("forkserver")
        with contextlib.suppress(OSError):
            while self._control in self._clients:
                ready = wait([self._ended, *self._clients])
                if self._ended in ready:
                    os.read(self._ended, 1 << 12)
                    self._reap()
                for client in [one for one in self._clients if one in ready]:
                    if not self._fork(client):
                        self._end(client)
        # Without exit handlers of imported modules.
        os._exit(0)

    def _reap(self) -> None:
        """Send the exit codes of the processes that have ended, and end what was forked for them."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                connection = self._running.pop(pid, None)
                # An import may have left a process, and a parent may not wait for an exit code.
                with contextlib.suppress(OSError):
                    if connection is not None:
                        connection.send(os.waitstatus_to_exitcode(status))
                for control, client in list(self._clients.items()):
                    client.forked.discard(pid)
                    if client.owner == pid:
                        self._end(control)

    def _end(self, control: socket.socket) -> None:
        """A client is gone, or needs nothing more: end what was forked for it."""
        client = self._clients.pop(control, None)
        for pid in client.forked if client is not None else ():
            # It is this process's child until it is reaped, so that the number is its own.
            os.kill(pid, signal.SIGKILL)
        control.close()

    def _fork(self, client: socket.socket) -> bool:
        """Fork a process as the client's next request says; whether there was one."""
        try:
            asked, received, _, _ = socket.recv_fds(client, len(REQUEST), _MOST_DESCRIPTORS)
        except OSError:
            asked = b""
        if not asked:
            return False
        connection, descriptors = Connection(received[0]), received[1:]
        # After Ctrl-C, the client has closed its end.
        with contextlib.suppress(EOFError, OSError):
            what = connection.recv()
            pid = self._forked(what, descriptors, connection)
            self._running[pid] = connection
            self._clients[client].forked.add(pid)
            connection.send(pid)
        # The new process has them: a copy here would keep the other end from seeing its end.
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _forked(self, what: Fork, descriptors: Sequence[int], connection: Connection) -> int:
        server = os.getpid()
        module, _, function = what.target.partition(":")
        body = getattr(_imported(module), function)
        ours, theirs = socket.socketpair() if what.forks else (None, None)
        pid = os.fork()
        if pid == 0:
            with _exit_as_body_does():
                die_with_parent()
                # Close what is the server's, so that the other ends see when the server is gone.
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (self._ended, self._wake):
                    os.close(descriptor)
                for other in (connection, *self._running.values()):
                    other.close()
                for control in (*self._clients, *([ours] if ours is not None else [])):
                    control.close()
                # The server may have ended before `die_with_parent` looked who the parent is.
                if os.getppid() == server:
                    # Forks would all draw the same numbers.
                    random.seed()
                    name_process(what.name)
                    if theirs is not None:
                        adopt(self._device, theirs, server)
                    body(*descriptors, *what.arguments)
        if ours is not None and theirs is not None:
            theirs.close()
            self._clients[ours] = _Client(pid)
        return pid


@contextlib.contextmanager
def _exit_as_body_does() -> Iterator[None]:
    """End the process with the exit code of its body, without exit handlers of what the server has imported."""
    code = 1
    try:
        yield
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def main(device: str, descriptor: int, modules: Sequence[str]) -> NoReturn:
    """Fork processes until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()
    preload(device, modules)
    _Server(device, socket.socket(fileno=descriptor)).serve()


def start_server(device: str, *modules: str) -> None:
    """Have a server for the device, forked from this process where that is a command's own, or else started as a new process.

    A process that is forked costs no second import of torch and of the properties. Nothing of a subject may be here yet.
    """
    # A GPU's driver does not survive a fork, and kernels of the coordinator may be compiled where a worker's are executed.
    is_like_new = is_command() and device in ("cpu", NO_DEVICE) and "triton" not in sys.modules
    if not is_like_new:
        server_for(device, *modules)
        return
    ours_before = dict(os.environ)
    _put_environment(server_environment())
    preload(device, modules)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ours.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        _Server(device, theirs).serve()
    theirs.close()
    _put_environment(ours_before)
    # Ended with this process, and waited for: its CPU time is part of the command's.
    atexit.register(adopt(device, ours, pid, functools.partial(os.waitpid, pid, 0)).close)


def _put_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


if __name__ == "__main__":
    # What is forked knows this module under its own name.
    from statecheck.workers.forking import main as serve

    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
