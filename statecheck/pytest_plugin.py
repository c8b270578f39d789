"""What pytest knows of statecheck wherever it is installed: options, and nothing else until a test module asks for properties.

`pytest --pyargs statecheck --subject my_port` runs the properties themselves, with the options that they have in a checkout.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from statecheck.rooms import FOLDER, open_rooms, property_files, with_working_folder

_PACKAGE = "statecheck"
_TESTS = FOLDER / "properties"
_OPTIONS = "statecheck.suite.options"
_VERDICTS = "statecheck properties"
_TOLD = "statecheck property"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("statecheck")
    group.addoption(
        "--statecheck-max-examples",
        type=_positive,
        default=None,
        metavar="N",
        help="of each property of a port (default: what the test module says, or Hypothesis' profile)",
    )
    group.addoption(
        "--statecheck-reports",
        default="reports",
        metavar="DIR",
        help="where reports of falsified properties go (default reports/)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"max_examples = {text!r}, but should be a number >= 1")
    return int(text)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Where the package itself is to be tested, its tests and their options are those of a checkout."""
    if not early_config.known_args_namespace.pyargs:
        return
    files = [*map(str, property_files())]
    if _PACKAGE in args:
        at = args.index(_PACKAGE)
        args[at : at + 1] = files
    elif not set(files) & set(args):
        return
    open_rooms()
    with_working_folder()
    early_config.pluginmanager.import_plugin(_OPTIONS)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Suites(config))


class _Suites:
    """Has properties judged as soon as there are some, in this process or in one of xdist's."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def _verdicts(self) -> Any:
        """The plugin that gives them, which takes seconds to import."""
        manager = self._config.pluginmanager
        if not manager.has_plugin(_VERDICTS):
            open_rooms()
            from statecheck.suite.verdicts import PropertyTests

            manager.register(PropertyTests(Path(self._config.getoption("--statecheck-reports"))), _VERDICTS)
            return manager.get_plugin(_VERDICTS)
        return None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if any(hasattr(getattr(item, "function", None), "properties") for item in items):
            new = self._verdicts()
            # It came too late for the hook that is being called.
            if new is not None:
                new.pytest_collection_modifyitems(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # In the process that hands tests to xdist's there are none that were collected.
        if any(name == _TOLD for name, _ in report.user_properties):
            new = self._verdicts()
            if new is not None:
                new.pytest_runtest_logreport(report)
