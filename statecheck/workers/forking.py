"""The process that forks others, see `forkserver`: `python -m statecheck.workers.forking <device> <descriptor> [modules]`."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import random
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NoReturn

from statecheck.workers.fork_wire import ALIVE, UNKNOWN, Fork, Reap, answer, asked
from statecheck.workers.forkserver import adopt

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_REAP_SECONDS = 10.0
_REAP_MILLISECONDS, _WATCH_MILLISECONDS = 1, 50


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
    if device:
        _preload_for(device)
    for module in modules:
        _imported(module)
    # A collection writes to every object that it looks at, and so copies pages that forks share with this process.
    gc.collect()
    gc.freeze()


def _preload_for(device: str) -> None:
    from statecheck.kernels import triton_mode

    triton_mode.prepare(device)
    import torch
    import triton.language  # noqa: F401 - for the workers

    torch.set_num_threads(1)


def _imported(name: str) -> ModuleType:
    """The module, with all that it says it will need."""
    found = importlib.import_module(name)
    getattr(found, "preload", lambda: None)()
    return found


def main(device: str, descriptor: int, modules: Sequence[str]) -> None:
    """Fork processes until the parent is gone."""
    # Ctrl-C goes to every process of the terminal; the command itself decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_process("forkserver")
    control = socket.socket(fileno=descriptor)
    with _exit_on_close(control):
        preload(device, modules)
    _serve(device, control)


@contextlib.contextmanager
def _exit_on_close(control: socket.socket) -> Iterator[None]:
    """End the process when the other end is gone, also during the imports, which take seconds.

    The thread is over before anything is forked.
    """
    done, poll = threading.Event(), select.poll()
    poll.register(control, 0)

    def watch() -> None:
        while not done.is_set():
            # There are no requests yet, so that something to read means that the parent is gone.
            if poll.poll(_WATCH_MILLISECONDS):
                os._exit(0)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _serve(device: str, control: socket.socket) -> NoReturn:
    """Answer requests until the parent is gone."""
    with contextlib.suppress(OSError):
        while (request := asked(control)) is not None:
            what = request.what
            if isinstance(what, Fork):
                answer(control, request, _forked(device, control, what, request.descriptors))
            else:
                answer(control, request, _reaped(control, what))
    # Without exit handlers of imported modules.
    os._exit(0)


def _forked(device: str, control: socket.socket, what: Fork, descriptors: Sequence[int]) -> int:
    server = os.getpid()
    module, _, function = what.target.partition(":")
    body = getattr(_imported(module), function)
    pid = os.fork()
    if pid == 0:
        with _exit_as_body_does():
            die_with_parent()
            # As long as a copy is open here, the other end does not see that the server is gone.
            control.close()
            # The server may have ended before `die_with_parent` looked who the parent is.
            if os.getppid() == server:
                _settle(device, what, descriptors)
                body(*descriptors, *what.arguments)
    # The new process has them: a copy here would keep the other end from seeing its end.
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _settle(device: str, what: Fork, descriptors: Sequence[int]) -> None:
    """Get random numbers, a name and, if it forks others, a server of its own."""
    # Forks would all draw the same numbers.
    random.seed()
    name_process(what.name)
    if not what.forks:
        return
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        for descriptor in descriptors:
            os.close(descriptor)
        name_process("forkserver")
        _serve(device, theirs)
    theirs.close()
    adopt(device, ours, pid)


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


def _reaped(control: socket.socket, what: Reap) -> int:
    """How a process ended; see `Reap`. Raises OSError if the parent is gone meanwhile."""
    gone, since, killed = select.poll(), time.monotonic(), False
    gone.register(control, 0)
    while True:
        try:
            found, status = os.waitpid(what.pid, os.WNOHANG)
        except ChildProcessError:
            return UNKNOWN
        if found:
            return os.waitstatus_to_exitcode(status)
        waited = time.monotonic() - since - what.patience
        if waited >= 0 and not what.killed:
            return ALIVE
        if waited >= 0 and not killed:
            os.kill(what.pid, signal.SIGKILL)
            killed = True
        if waited >= _REAP_SECONDS:
            return UNKNOWN
        # Most processes end at once: the longer it takes, the less often it is polled.
        if gone.poll(_REAP_MILLISECONDS * (1 + int(time.monotonic() - since) * 10)):
            raise ConnectionResetError


if __name__ == "__main__":
    # What is forked knows this module under its own name.
    from statecheck.workers.forking import main as serve

    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
