"""One GPU's workers, shared by several processes that search: they draw and compare while others compute.

A process of its own owns the workers and passes the messages of its clients on, one at a time each. If a worker ends, the client
whose message ended it gets the fault, and every other client that was in the middle of an example runs the example again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from statecheck.case.raised import INTERRUPTED, Faulted
from statecheck.workers import limits
from statecheck.workers.forkserver import Surroundings, move_to
from statecheck.workers.worker_process import (
    ANEW,
    ERROR,
    FAULT,
    GONE,
    Meanwhile,
    WorkerProcess,
    WorkerWithSpare,
    answer,
    content_of,
    letter_of,
    request,
)

_POLL_SECONDS = 0.05
SharedMessage = tuple[float, bool, bytes]
"""Its time limit in seconds, whether an example begins with it, and the request."""


@dataclass
class _SharedWorker:
    """A worker with a spare one, and a lock for the client that uses it. `generation` counts the workers that there were."""

    workers: WorkerWithSpare
    turn: threading.Lock = field(default_factory=threading.Lock)
    current: WorkerProcess | None = None
    generation: int = 0
    failed: tuple[float, str] | None = None
    """Until when no other worker is started, and why."""

    def worker(self) -> WorkerProcess:
        """Raises RuntimeError if no worker gets ready; for a while after that, without another attempt."""
        if self.failed is not None and time.monotonic() < self.failed[0]:
            raise RuntimeError(self.failed[1])
        try:
            worker = self.workers.worker()
        except Exception as error:
            self.failed = time.monotonic() + limits.DEVICE_RETRY, str(error)
            raise RuntimeError(str(error)) from error
        if worker is not self.current:
            self.current, self.generation = worker, self.generation + 1
        return worker

    def ask(self, generation: int, message: SharedMessage) -> tuple[int, bytes]:
        """The generation that the client's example is in from now on, and the answer to its message."""
        limit, begins, asked = message
        try:
            worker = self.worker()
        except RuntimeError as error:
            return -1, answer(GONE, str(error))
        if not begins and generation != self.generation:
            return -1, answer(ANEW, None)
        try:
            return self.generation, worker.ask_with(limit, asked)
        except Faulted as faulted:
            return -1, answer(FAULT, faulted.fault)

    def forget(self, number: int) -> None:
        if self.current is not None and self.current.usable:
            with contextlib.suppress(Exception):
                self.current.ask(limits.EXIT, "forget", number)


class WorkerSharing:
    """Answers clients at a socket; each is one thread, which waits most of the time.

    Args:
        workers: how many there are at a time, each for its part of the clients.
    """

    def __init__(self, device: str, subject: str, workers: int) -> None:
        self._workers = [_SharedWorker(WorkerWithSpare(device, subject)) for _ in range(workers)]
        self._clients = 0

    def serve(self, listener: Listener) -> None:
        """Until the process ends."""
        while True:
            client = listener.accept()
            number, self._clients = self._clients, self._clients + 1
            worker = self._workers[number % len(self._workers)]
            threading.Thread(target=_serve, args=(number, worker, client), daemon=True).start()


def _serve(number: int, worker: _SharedWorker, client: Connection) -> None:
    """One client, until it is gone. It learns first under which number it asks."""
    generation = -1
    with contextlib.suppress(EOFError, OSError):
        client.send(number)
        while True:
            message = client.recv()
            with worker.turn:
                generation, reply = worker.ask(generation, message)
            client.send_bytes(reply)
    client.close()
    with worker.turn:
        worker.forget(number)


def main(surroundings: Surroundings, device: str, subject: str, workers: int, address: str) -> None:
    """Share workers at an address, in a process that is forked for this; it ends with its parent, and its workers with it."""
    move_to(*surroundings)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)  # noqa: PTH108 - a socket's address
    with Listener(address, "AF_UNIX", backlog=256) as listener:
        WorkerSharing(device, subject, workers).serve(listener)


class DeviceGone(BaseException):
    """No worker gets ready on the device any more. No `Exception`, because a search must not take it for a failing example."""


class SharedWorkers:
    """For a port, in place of a `WorkerWithSpare`: the workers that are shared at the socket `address`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.replaced = 0
        self.pids: tuple[int, ...] = ()
        self._way: Connection | None = None
        self.number = 0

    def worker(self, *, fresh: bool = True) -> SharedWorkers:  # noqa: ARG002 - the process that shares replaces workers
        """Raises DeviceGone if no process shares workers at the address."""
        deadline = time.monotonic() + limits.CONNECTION
        while self._way is None:
            way = _connected(self.address, deadline)
            try:
                if not way.poll(limits.CONNECTION):
                    raise TimeoutError
                self.number = way.recv()
            except (EOFError, OSError) as error:
                # It has ended since; the campaign starts another one.
                way.close()
                if time.monotonic() > deadline:
                    raise DeviceGone(f"there is no answer at {self.address}: {error}") from error
            else:
                self._way = way
        return self

    def ask(self, limit: float, method: str, number: int, begins: bool, *rest: Any) -> tuple[Any, Meanwhile]:
        """As `WorkerProcess.ask`, in turn with others.

        Raises:
            Faulted: the message ended the worker; or, as `INTERRUPTED`, another client's did, and the example has to be run again.
            DeviceGone: no worker gets ready.
            Exception: what the method raised.
        """
        letter, value, meanwhile = self._answered(limit, begins, request(method, number, begins, *rest))
        if letter in (FAULT, ANEW):
            self.replaced += 1
            raise Faulted(value if letter == FAULT else INTERRUPTED)
        if letter == GONE:
            raise DeviceGone(value)
        if letter == ERROR:
            raise value
        return value, meanwhile

    def _answered(self, *message: Any) -> tuple[bytes, Any, Meanwhile]:
        assert self._way is not None
        try:
            self._way.send(message)
            # Other clients may come first, each with its own limit, so that this one waits without a limit.
            reply = self._way.recv_bytes()
        except (EOFError, OSError):
            self.close()
            raise Faulted(INTERRUPTED) from None
        return letter_of(reply), *content_of(reply)

    def close(self) -> None:
        if self._way is not None:
            self._way.close()
        self._way = None


def _connected(address: str, deadline: float) -> Connection:
    while True:
        try:
            return Client(address, "AF_UNIX")
        except OSError as error:
            if time.monotonic() > deadline:
                raise DeviceGone(f"there is no answer at {address}: {error}") from error
            time.sleep(_POLL_SECONDS)
