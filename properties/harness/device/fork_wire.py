"""What is said to a process that forks others: `Fork` and `Reap`, each answered with a number."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_LENGTH, _REPLY = struct.Struct("<I"), struct.Struct("<q")
UNKNOWN = -(1 << 32)
"""The status of a process that nobody could tell."""
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
    """Tell how a process has ended, which is waited for for `patience` seconds; then it is killed, if `killed`."""

    pid: int
    patience: float = 0.0
    killed: bool = True


def ask(control: socket.socket, what: Fork | Reap, descriptors: Sequence[int]) -> int:
    """The answer; `UNKNOWN` where nobody is there to give it."""
    message = pickle.dumps(what, protocol=5)
    try:
        socket.send_fds(control, [_LENGTH.pack(len(message))], descriptors)
        control.sendall(message)
        reply = _exactly(control, _REPLY.size)
    except OSError:
        return UNKNOWN
    return int(_REPLY.unpack(reply)[0]) if reply else UNKNOWN


def asked(control: socket.socket) -> tuple[Fork | Reap, list[int]] | None:
    """The next request and the descriptors that came with it, None where nobody is left to ask."""
    head, descriptors, _, _ = socket.recv_fds(control, _LENGTH.size, 4)
    head += _exactly(control, _LENGTH.size - len(head)) if head else b""
    if len(head) < _LENGTH.size:
        return None
    message = _exactly(control, _LENGTH.unpack(head)[0])
    return pickle.loads(message), descriptors  # noqa: S301 - our own parent's


def answer(control: socket.socket, number: int) -> None:
    control.sendall(_REPLY.pack(number))


def _exactly(end: socket.socket, size: int) -> bytes:
    """`size` bytes, or none at the end."""
    received = b""
    while len(received) < size:
        chunk = end.recv(size - len(received))
        if not chunk:
            return b""
        received += chunk
    return received
