"""The session as a plugin of pytest: it runs in a child process, which says what it does and how the session ends.

See `statecheck.workers.supervised` for the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from statecheck.workers.supervised import session, supervise


def supervise_command(config: pytest.Config) -> None:
    """Supervise a session whose exit code is that of a command, and not part of a program that calls `pytest.main`.

    Processes of xdist are supervised by the one that starts them. Each is such a program (`python -c`); its variables say nothing, since a
    session that a test starts inherits them.
    """
    if sys.argv[0] != "-c" and tuple(config.invocation_params.args) == tuple(sys.argv[1:]):
        supervise("test session", "at its start")


@contextmanager
def failing_end() -> Iterator[None]:
    """The session ends with a code other than 0 where an exception comes out of this."""
    try:
        yield
    except BaseException:
        running = session()
        if running is not None:
            running.end(1)
        raise


def _note(activity: str) -> None:
    running = session()
    if running is not None and not _Distributed.tests:
        running.note(activity)


class _Distributed:
    tests = False
    """Whether xdist runs tests in other processes, so that this one is in no test."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    supervise_command(config)
    with failing_end():
        code = yield
    running = session()
    if running is not None:
        running.end(int(code or 0))
    return code


def pytest_collectstart(collector: pytest.Collector) -> None:
    _note(f"during the collection of {collector.nodeid or 'tests'}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    _note("while processes of xdist ran the tests")
    _Distributed.tests = True


def pytest_runtest_logstart(nodeid: str) -> None:
    _note(f"during {nodeid}")


def pytest_runtest_logfinish(nodeid: str) -> None:
    _note(f"after {nodeid}")
