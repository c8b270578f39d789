"""pytest on the properties themselves: its options, where examples run, and fixtures.

It is a plugin of the suite in a checkout, and of `pytest --pyargs statecheck` where statecheck is installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from statecheck.execution import profiles
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import Executor, choose_device, ordinary_port
from statecheck.execution.selection import Offers, require_declared_properties
from statecheck.kernels import triton_mode
from statecheck.rooms import FOLDER
from statecheck.subject import Subject, load
from statecheck.suite.sanitizer import sanitizer
from statecheck.suite.verdicts import FAIL_ON_UNTESTED, PropertyTests
from statecheck.util.text import listed
from statecheck.workers.port import InWorker
from statecheck.workers.supervised import import_limited

__all__ = ["sanitizer"]

pytest_plugins = ("statecheck.suite.slow_tests", "statecheck.suite.supervision")

PLUGIN = "statecheck properties"
"""Under this name pytest knows what gives properties their verdicts."""
_BENCH = pytest.StashKey[ExecutionContext]()

profiles.load()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("statecheck")
    group.addoption("--subject", default="impl", help="what to verify: impl, or any importable module")
    group.addoption("--device", default="auto", help="auto, cpu or cuda")
    group.addoption(
        "--require", default="", metavar="a,b", help="fail if the subject does not offer these functions"
    )
    group.addoption(
        "--max-examples", type=int, default=None, help="of each property (default: of Hypothesis' profile)"
    )
    group.addoption(
        FAIL_ON_UNTESTED, action="store_true", help="fail if an applicable property was not tested"
    )
    group.addoption("--no-sanitize", action="store_true", help="do not watch kernels on a CPU")
    group.addoption(
        "--in-process",
        action="store_true",
        help="run the subject on a GPU in this process, which a fault ends",
    )
    group.addoption("--corpus", default=str(FOLDER / "corpus"), help="cases that are replayed first")
    group.addoption("--reports", default="reports", help="where reports of falsified properties go")


def pytest_configure(config: pytest.Config) -> None:
    try:
        profiles.limit(config.getoption("--max-examples"))
        device = choose_device(config.getoption("--device"))
        triton_mode.prepare(device)
        name = config.getoption("--subject")
        with import_limited(name):
            subject = load(name)
        require_declared_properties(subject)
        Offers(subject).require(listed(config.getoption("--require")))
        port = _port(config, subject, device)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_BENCH] = ExecutionContext(subject, port)
    reports = Path(config.getoption("--reports"))
    config.pluginmanager.register(PropertyTests(reports, config.stash[_BENCH]), PLUGIN)


def _port(config: pytest.Config, subject: Subject, device: str) -> Executor:
    if device == "cpu" or config.getoption("--in-process"):
        return ordinary_port(subject, device, sanitized=not config.getoption("--no-sanitize"))
    port = InWorker(subject.name, device)
    config.add_cleanup(port.close)
    return port


def pytest_report_header(config: pytest.Config) -> str:
    context = config.stash[_BENCH]
    where = f"statecheck: subject {context.subject.name}, device {context.port.device}"
    return f"{where}; {Offers(context.subject).sentence}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A known case fails in a moment, where a search takes its time; the sort keeps all else as it was.
    items.sort(key=lambda item: item.path.name != "test_corpus.py" or item.path.parent.name != "properties")


@pytest.fixture(scope="session")
def trial(request: pytest.FixtureRequest) -> ExecutionContext:
    """Where the properties' examples run. Each example makes itself a `Example` on it."""
    return request.config.stash[_BENCH]


@pytest.fixture(scope="session")
def executed(trial: ExecutionContext) -> None:
    """For tests of what only kernels that are executed on a CPU can do, such as running programs in another order."""
    if trial.port.device != "cpu":
        pytest.skip("kernels are compiled in this process, and this is about executed ones")
