"""A client's side of workers that several processes share, in place of workers of its own."""

from __future__ import annotations

import time
from multiprocessing.connection import Client, Connection
from typing import Any

from statecheck.case.faults import INTERRUPTED, Faulted
from statecheck.workers.share import HEAD, NUMBER
from statecheck.workers.wire import (
    ANEW,
    COMPILING,
    ERROR,
    FAULT,
    GONE,
    Meanwhile,
    content_of,
    letter_of,
    request,
)

_CONNECT_SECONDS = 60.0
_POLL_SECONDS = 0.05


class DeviceGone(BaseException):
    """No worker gets ready on the device any more. No `Exception`: whoever searches must not take it for a failing example."""


class SharedWorkers:
    """What `WorkerWithSpare` is for a port, at the socket `address` of a `share`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.replaced = 0
        self.pids: tuple[int, ...] = ()
        self._way: Connection | None = None
        self.number = 0

    def worker(self, *, fresh: bool = True) -> SharedWorkers:  # noqa: ARG002 - whoever shares it sees to that
        """Raises DeviceGone where nobody is at the address."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        while self._way is None:
            way = _connected(self.address, deadline)
            try:
                if not way.poll(_CONNECT_SECONDS):
                    raise TimeoutError
                (self.number,) = NUMBER.unpack(way.recv_bytes())
            except (EOFError, OSError) as error:
                # It has ended since; another one is on its way.
                way.close()
                if time.monotonic() > deadline:
                    raise DeviceGone(f"nobody answers at {self.address}: {error}") from error
            else:
                self._way = way
        return self

    def ask(self, limit: float, method: str, number: int, begins: bool, *rest: Any) -> tuple[Any, Meanwhile]:
        """As `WorkerProcess.ask`, in turn with others.

        Raises:
            Faulted: the message ended the worker; or, as `INTERRUPTED`, another's did, and the example has to be run anew.
            DeviceGone: no worker gets ready.
            Exception: what the method raised.
        """
        letter, value, meanwhile = self._answered(
            HEAD.pack(limit, begins) + request(method, number, begins, *rest)
        )
        if letter in (FAULT, ANEW):
            self.replaced += 1
            raise Faulted(value if letter == FAULT else INTERRUPTED)
        if letter == GONE:
            raise DeviceGone(value)
        if letter == ERROR:
            raise value
        return value, meanwhile

    def _answered(self, message: bytes) -> tuple[bytes, Any, Meanwhile]:
        assert self._way is not None
        try:
            self._way.send_bytes(message)
            # Others may have their turn first, each with a limit of its own.
            reply = self._way.recv_bytes()
            while letter_of(reply) == COMPILING:
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
                raise DeviceGone(f"nobody answers at {address}: {error}") from error
            time.sleep(_POLL_SECONDS)
