"""A client's side of workers that are shared: in place of a crew of its own."""

from __future__ import annotations

import socket
import time
from typing import Any

from properties.harness.case.faults import INTERRUPTED, Faulted
from properties.harness.device.channel import Channel
from properties.harness.device.share import HEAD, NUMBER
from properties.harness.device.wire import (
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


class SharedCrew:
    """What `Crew` is for a port, at the socket `address` of a `share`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.replaced = 0
        self.pids: tuple[int, ...] = ()
        self._channel: Channel | None = None
        self.number = 0

    def worker(self, *, fresh: bool = True) -> SharedCrew:  # noqa: ARG002 - whoever shares it sees to that
        """Raises DeviceGone where nobody is at the address."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        while self._channel is None:
            channel = _connected(self.address, deadline)
            try:
                (self.number,) = NUMBER.unpack(channel.receive(_CONNECT_SECONDS))
            except (EOFError, OSError) as error:
                # It has ended since; another one is on its way.
                channel.close()
                if time.monotonic() > deadline:
                    raise DeviceGone(f"nobody answers at {self.address}: {error}") from error
            else:
                self._channel = channel
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
        assert self._channel is not None
        try:
            self._channel.send(message)
            # Others may have their turn first, each with a limit of its own.
            reply = self._channel.receive()
            while letter_of(reply) == COMPILING:
                reply = self._channel.receive()
        except (EOFError, OSError):
            self.close()
            raise Faulted(INTERRUPTED) from None
        return letter_of(reply), *content_of(reply)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None


def _connected(address: str, deadline: float) -> Channel:
    end = socket.socket(socket.AF_UNIX)
    while True:
        try:
            end.connect(address)
        except OSError as error:
            if time.monotonic() > deadline:
                end.close()
                raise DeviceGone(f"nobody answers at {address}: {error}") from error
            time.sleep(_POLL_SECONDS)
        else:
            return Channel(end)
