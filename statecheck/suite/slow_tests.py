"""Tests that take long and change rarely: left out of a test run unless they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

_LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("statecheck")
    group.addoption("--slow", action="store_true", help="run the tests that are marked slow, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long, and is left out without --slow")
    config.stash[_LEFT_OUT] = 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow") or config.getoption("markexpr"):
        return
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    if slow:
        items[:] = [item for item in items if item.get_closest_marker("slow") is None]
        config.hook.pytest_deselected(items=slow)
        config.stash[_LEFT_OUT] = len(slow)


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Workers of xdist collect, and their controller tells.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow"] = session.config.stash[_LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    config = node.config
    left_out = getattr(node, "workeroutput", {}).get("slow", 0)
    config.stash[_LEFT_OUT] = max(config.stash[_LEFT_OUT], left_out)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if count := config.stash[_LEFT_OUT]:
        terminalreporter.write_line(
            f"{count} slow tests left out: make test PYTEST_ARGS=--slow runs them, too"
        )
