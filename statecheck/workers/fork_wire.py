"""The messages to the fork server: `Fork` and `Reap`, each answered with a number.

A request and its descriptors are one message; `multiprocessing.connection` would send two.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_HEAD, _REPLY = struct.Struct("<QI"), struct.Struct("<Qq")
UNKNOWN = -(1 << 32)
"""The status of a process whose exit status could not be read."""
ALIVE = UNKNOWN + 1
"""The status of a process that has not ended."""


@dataclass(frozen=True)
class Fork:
    """Fork a process that calls "package.module:function" with the descriptor that comes with it, and with `arguments`.

    Args:
        name: what the system shows the process under, at most 15 letters.
        forks: the process may have to fork others.
    """

    target: str
    arguments: tuple[Any, ...] = ()
    name: str = ""
    forks: bool = False


@dataclass(frozen=True)
class Reap:
    """The exit status of a process. After `patience` seconds it is killed, if `killed`."""

    pid: int
    patience: float = 0.0
    killed: bool = True


def ask(control: socket.socket, number: int, what: Fork | Reap, descriptors: Sequence[int]) -> int:
    """The answer; `UNKNOWN` if the server is gone.

    Ctrl-C may come at any moment, and the next request has to get its own answer all the same: so a request is sent as one
    piece, under a number of its own, and answers to others before it are skipped.
    """
    message = pickle.dumps(what, protocol=5)
    whole = _HEAD.pack(number, len(message)) + message
    try:
        sent = socket.send_fds(control, [whole], descriptors)
        control.sendall(whole[sent:])
        while reply := _exactly(control, _REPLY.size):
            answered, value = _REPLY.unpack(reply)
            if answered == number:
                return int(value)
    except OSError:
        """The server is gone."""
    return UNKNOWN


@dataclass(frozen=True)
class ForkRequest:
    """A request, its number, and the descriptors that came with it."""

    number: int
    what: Fork | Reap
    descriptors: tuple[int, ...]


def asked(control: socket.socket) -> ForkRequest | None:
    """The next request, None once the parent is gone."""
    head, descriptors, _, _ = socket.recv_fds(control, _HEAD.size, 4)
    head += _exactly(control, _HEAD.size - len(head)) if head else b""
    if len(head) < _HEAD.size:
        return None
    number, size = _HEAD.unpack(head)
    # From our own parent: no other process has the other end.
    what = pickle.loads(_exactly(control, size))  # noqa: S301
    return ForkRequest(number, what, tuple(descriptors))


def answer(control: socket.socket, request: ForkRequest, value: int) -> None:
    control.sendall(_REPLY.pack(request.number, value))


def _exactly(end: socket.socket, size: int) -> bytes:
    """`size` bytes, or none at the end."""
    received = b""
    while len(received) < size:
        chunk = end.recv(size - len(received))
        if not chunk:
            return b""
        received += chunk
    return received
