"""Whole messages over a stream socket, with a time limit."""

from __future__ import annotations

import socket
import struct
import time

_HEADER = struct.Struct("<Q")
_CHUNK = 1 << 18


class Channel:
    """One end of a conversation. Messages are bytes; what they mean is the users' business."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = bytearray()

    def send(self, message: bytes) -> None:
        """Raises OSError where nobody is at the other end."""
        # `receive` leaves its limit on the socket, where it would hold for sending too.
        self._end.settimeout(None)
        self._end.sendall(_HEADER.pack(len(message)) + message)

    def receive(self, limit: float | None = None) -> bytes:
        """The next message.

        Raises:
            TimeoutError: it is not there after `limit` seconds.
            EOFError: it never will be.
        """
        deadline = None if limit is None else time.monotonic() + limit
        while (message := self._whole()) is None:
            # With 0 the socket would not wait, and raise BlockingIOError instead of TimeoutError.
            self._end.settimeout(None if deadline is None else max(1e-6, deadline - time.monotonic()))
            try:
                chunk = self._end.recv(_CHUNK)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise EOFError
            self._received += chunk
        return message

    def _whole(self) -> bytes | None:
        """A message, if all of it has arrived."""
        if len(self._received) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._received)
        end = _HEADER.size + length
        if len(self._received) < end:
            return None
        message = bytes(memoryview(self._received)[_HEADER.size : end])
        del self._received[:end]
        return message

    @property
    def ended(self) -> bool:
        """Whether the other end is gone and has left nothing."""
        if self._received:
            return False
        self._end.settimeout(0)
        try:
            return not self._end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._end.close()
