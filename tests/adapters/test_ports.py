"""An engine listens on a port; another process may take the port first."""

from __future__ import annotations

import pytest
from torch.distributed import DistNetworkError

from subjects.kit.ports import on_a_free_port


def test_another_port_is_tried_where_one_is_taken() -> None:
    ports = iter((True, True, False))

    def start() -> str:
        if next(ports):
            raise DistNetworkError("EADDRINUSE")
        return "listens"

    assert on_a_free_port(start) == "listens"


def test_a_port_that_is_always_taken_is_an_error() -> None:
    def start() -> None:
        raise DistNetworkError("EADDRINUSE")

    with pytest.raises(DistNetworkError):
        on_a_free_port(start)


def test_another_error_of_the_network_is_raised_at_once() -> None:
    starts: list[int] = []

    def start() -> None:
        starts.append(1)
        raise DistNetworkError("the network is unreachable")

    with pytest.raises(DistNetworkError):
        on_a_free_port(start)
    assert len(starts) == 1
