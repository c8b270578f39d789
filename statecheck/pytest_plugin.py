"""What pytest knows of statecheck wherever it is installed: options, and nothing else until a test module asks for properties.

`pytest --pyargs statecheck --subject my_port` runs the properties themselves, with the options that they have in a checkout.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from statecheck.rooms import FOLDER, open_rooms, property_files, with_working_folder

_PACKAGE = "statecheck"
_TESTS = FOLDER / "properties"
_OPTIONS = "statecheck.suite.options"
_SUPERVISION = "statecheck.suite.supervision"
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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None, Any, Any]:
    """Where the package itself is to be tested, its tests and their options are those of a checkout.

    A session that may ask for properties is supervised before it imports anything of a project: conftest.py and test modules
    import the subject. This wrapper is the first, outside of the one that captures output.
    """
    package = early_config.known_args_namespace.pyargs and _names_package(args)
    if not package and not mentions_statecheck(early_config):
        return (yield)
    early_config.pluginmanager.import_plugin(_SUPERVISION)
    from statecheck.suite.supervision import failing_end, supervise_command

    supervise_command(early_config)
    with failing_end():
        if package:
            open_rooms()
            with_working_folder()
            early_config.pluginmanager.import_plugin(_OPTIONS)
        return (yield)


def _names_package(args: list[str]) -> bool:
    """Whether the properties are to be run; the package's name gives way to their files."""
    files = [*map(str, property_files())]
    if _PACKAGE not in args:
        return bool(set(files) & set(args))
    at = args.index(_PACKAGE)
    args[at : at + 1] = files
    return True


def mentions_statecheck(config: pytest.Config) -> bool:
    """Whether a Python file that the session may import has this package's name in it: its properties are asked for by it.

    Files are looked through, and not imported. Of an argument that is neither a path nor the name of a package nothing is known, as of
    an option that is not: it has no files.
    """
    places = config.known_args_namespace.file_or_dir or config.getini("testpaths") or ["."]
    ignored = config.getini("norecursedirs")
    return any(
        _PACKAGE.encode() in path.read_bytes()
        for place in places
        for root in _roots(config.invocation_params.dir, place)
        for path in _python_files(root, ignored)
    )


def _roots(folder: Path, place: str) -> Iterator[Path]:
    """Where an argument's files lie: a folder, that of a file, or that of a package."""
    path = folder / place.partition("::")[0]
    # Folders of an ini file may be patterns.
    found = [path] if path.exists() else list(folder.glob(place)) if not Path(place).is_absolute() else []
    if found:
        yield from found
        return
    with suppress(ImportError, ValueError):
        # Of the package alone: to find a module in it would import it.
        spec = find_spec(place.partition("::")[0].partition(".")[0])
        yield from map(Path, (spec.submodule_search_locations or ()) if spec is not None else ())


def _python_files(root: Path, ignored: Sequence[str]) -> Iterator[Path]:
    """The folder's files; for a file, those of its folder, and what is imported from the folders around it."""
    if root.is_file():
        yield from root.parent.glob("*.py")
    for parent in root.resolve().parents:
        yield from filter(Path.is_file, [parent / "conftest.py"])
    for folder, names, files in os.walk(root):
        names[:] = [word for word in names if not any(fnmatch(word, pattern) for pattern in ignored)]
        yield from (path for name in files if name.endswith(".py") and (path := Path(folder, name)).is_file())


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
