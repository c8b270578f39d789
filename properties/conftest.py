"""What a test run leaves out unless it is asked for, and which tests share a process."""

from __future__ import annotations

from typing import Any

import pytest

from properties.harness.execution.private.pytest import shares_fixtures

_LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("statecheck")
    group.addoption("--slow", action="store_true", help="run the tests that are marked slow, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long, and is left out without --slow")
    config.stash[_LEFT_OUT] = 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # Each process would make what its module shares anew, and some take half a minute.
        if shares_fixtures(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
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
    told = getattr(node, "workeroutput", {}).get("slow", 0)
    config.stash[_LEFT_OUT] = max(config.stash[_LEFT_OUT], told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if count := config.stash[_LEFT_OUT]:
        terminalreporter.write_line(
            f"{count} slow tests left out: make test PYTEST_ARGS=--slow runs them, too"
        )
