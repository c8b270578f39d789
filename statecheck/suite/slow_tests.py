"""Tests that take long and change rarely: left out of a test run unless they are asked for."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("statecheck")
    group.addoption("--slow", action="store_true", help="run the tests that are marked slow, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long, and is left out without --slow")
    if not (config.getoption("--slow") or config.option.markexpr):
        config.option.markexpr = "not slow"


def pytest_report_header(config: pytest.Config) -> str:
    left_out = config.option.markexpr == "not slow"
    return "slow tests are left out: make test PYTEST_ARGS=--slow runs them, too" if left_out else ""
