"""Ports that engines listen on in a test, although nothing connects to them."""

import socket
from collections.abc import Callable
from typing import TypeVar

from torch.distributed import DistNetworkError

T = TypeVar("T")
_PORTS = 5
"""Ports that are tried."""


def free_port() -> int:
    """A port of the system's choice: two workers that look for a free port themselves find the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on_a_free_port(start: Callable[[], T]) -> T:
    """Start what listens on a `free_port`; again, on another port, where another process has taken it since it was chosen.

    Raises:
        DistNetworkError: five ports were taken, or the network failed in another way.
    """
    for _ in range(_PORTS - 1):
        try:
            return start()
        except DistNetworkError as error:
            # Any other error of the network is the engine's own.
            if "EADDRINUSE" not in str(error):
                raise
    return start()
