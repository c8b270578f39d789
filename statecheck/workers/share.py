"""One GPU's workers, shared by several processes that search: they think while others compute.

A process of its own owns the workers and hands them the messages of its clients, one at a time each. Where a worker comes to its
end, the client whose message it was is told of what, and every other one that was in the middle of an example runs it anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener

from statecheck.case.faults import Faulted
from statecheck.workers.forking import die_with_parent
from statecheck.workers.server import Surroundings, move_to
from statecheck.workers.wire import ANEW, FAULT, GONE, answer
from statecheck.workers.worker_process import WorkerProcess, WorkerWithSpare

HEAD = struct.Struct("<d?")
"""Before a request: its time limit in seconds, and whether an example begins with it."""
NUMBER = struct.Struct("<q")
"""What a client is told first: the number under which it asks."""
_GONE_SECONDS = 60.0
_FORGET_SECONDS = 10.0


@dataclass
class _SharedWorker:
    """A worker with a spare one, and whose turn it is. `generation` counts the workers that there were."""

    workers: WorkerWithSpare
    turn: threading.Lock = field(default_factory=threading.Lock)
    current: WorkerProcess | None = None
    generation: int = 0
    gone: tuple[float, str] | None = None

    def worker(self) -> WorkerProcess:
        """Raises RuntimeError where none gets ready; then, for a while, without trying again."""
        if self.gone is not None and time.monotonic() < self.gone[0]:
            raise RuntimeError(self.gone[1])
        try:
            found = self.workers.worker()
        except Exception as error:
            self.gone = time.monotonic() + _GONE_SECONDS, str(error)
            raise RuntimeError(str(error)) from error
        if found is not self.current:
            self.current, self.generation = found, self.generation + 1
        return found

    def asked(self, generation: int, message: bytes, client: Connection) -> tuple[int, bytes]:
        """The generation that the client's example is in from now on, and the answer to its message."""
        limit, begins = HEAD.unpack_from(message)
        try:
            worker = self.worker()
        except RuntimeError as error:
            return -1, answer(GONE, str(error))
        if not begins and generation != self.generation:
            return -1, answer(ANEW, None)
        try:
            return self.generation, worker.ask_with(limit, message[HEAD.size :], client.send_bytes)
        except Faulted as faulted:
            return -1, answer(FAULT, faulted.fault)

    def forget(self, number: int) -> None:
        if self.current is not None and self.current.usable:
            with contextlib.suppress(Exception):
                self.current.ask(_FORGET_SECONDS, "forget", number)


class Share:
    """Answers clients at a socket; each is one thread, which waits most of the time.

    Args:
        workers: how many there are at a time, each for its part of the clients.
    """

    def __init__(self, device: str, subject: str, workers: int) -> None:
        self._shared = [_SharedWorker(WorkerWithSpare(device, subject)) for _ in range(workers)]
        self._clients = 0

    def serve(self, listener: Listener) -> None:
        """Until the process ends."""
        while True:
            client = listener.accept()
            number, self._clients = self._clients, self._clients + 1
            shared = self._shared[number % len(self._shared)]
            threading.Thread(target=_serve, args=(number, shared, client), daemon=True).start()


def _serve(number: int, shared: _SharedWorker, client: Connection) -> None:
    """One client, until it is gone."""
    generation = -1
    with contextlib.suppress(EOFError, OSError):
        client.send_bytes(NUMBER.pack(number))
        while True:
            message = client.recv_bytes()
            with shared.turn:
                generation, reply = shared.asked(generation, message, client)
            client.send_bytes(reply)
    client.close()
    with shared.turn:
        shared.forget(number)


def main(
    descriptor: int,
    surroundings: Surroundings,
    device: str,
    subject: str,
    workers: int,
    address: str,
) -> None:
    """The life of a process that is forked for this; it ends with its parent, and its workers with it."""
    os.close(descriptor)
    move_to(*surroundings)
    serve(device, subject, workers, address)


def serve(device: str, subject: str, workers: int, address: str) -> None:
    """Share workers at an address, until the process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)  # noqa: PTH108 - a socket's address
    with Listener(address, "AF_UNIX", backlog=256) as listener:
        Share(device, subject, workers).serve(listener)


if __name__ == "__main__":
    die_with_parent()
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
