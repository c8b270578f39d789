"""`pytest -p statecheck.sanitize` runs a project's tests without a GPU: kernels are executed on the CPU, and every launch is watched.

    pytest -p statecheck.sanitize tests/ops
    pytest -p statecheck.sanitize --cuda-on-cpu tests/kernels

Tests need no fixture and no change. A finding (see `statecheck.sanitizer`) is raised by the launch in which it was found, so that its test
fails; the session fails, too, if the test catches it. A test of a kernel that the executor does not know is skipped, with the operation.
What `torch.empty` returns counts as unwritten, unless the suite fills it. The session ends with a table of the kernels.

With `--cuda-on-cpu`, tensors that ask for the device "cuda" land on the CPU, see `statecheck.kernels.cuda_on_cpu`. With
TRITON_INTERPRET=0 kernels are compiled, for a run on a GPU: nothing is watched then.

A test may ask for the fixture `sanitizer`, to register tensors that its kernels reach through raw addresses:

    def test_blocks_are_copied(sanitizer):
        sanitizer.register(state, "state")
        copy_kernel[(4,)](table, out, BLOCK=64)
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from statecheck.case.findings import NotExecuted
from statecheck.kernels import triton_mode
from statecheck.suite.sanitizer import sanitizer

__all__ = ["sanitizer"]

_SESSION = "statecheck watched session"
_SENT = "statecheck kernels"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("statecheck").addoption(
        "--cuda-on-cpu", action="store_true", help="tensors that ask for the device cuda land on the CPU"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of the project is imported, which may ask for a device."""
    _prepare(early_config)


def pytest_configure(config: pytest.Config) -> None:
    # For a plugin that a conftest.py names.
    _prepare(config)


def _prepare(config: pytest.Config) -> None:
    if os.environ.get(triton_mode.INTERPRET) == "0" or config.pluginmanager.has_plugin(_SESSION):
        return
    try:
        triton_mode.prepare("cpu")
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    # A function that torch compiles as a whole cannot be watched: torch refuses one beside the watch of new tensors.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    if config.known_args_namespace.cuda_on_cpu:
        from statecheck.kernels import cuda_on_cpu

        cuda_on_cpu.install()
    if getattr(config.known_args_namespace, "numprocesses", None):
        # Processes of pytest-xdist load what `-p` names only behind the project's conftest.py.
        plugins = os.environ.get("PYTEST_PLUGINS", "")
        os.environ["PYTEST_PLUGINS"] = ",".join(filter(None, (plugins, __name__)))
    config.pluginmanager.register(_Watching(), _SESSION)


class _Watching:
    """The hooks of a session that executes its kernels."""

    def __init__(self) -> None:
        from statecheck.suite.watched_tests import WatchedSession

        self._session = WatchedSession()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self._session.watching(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        return (yield from _skip_if_not_executed())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        return (yield from _skip_if_not_executed())

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        ended = self._session.end()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_SENT] = ended
        elif self._session.found and session.exitstatus == pytest.ExitCode.OK:
            # A test has caught what was found.
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._session.add(getattr(node, "workeroutput", {}).get(_SENT, {"rows": []}))

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        terminalreporter.section("kernels executed on the CPU")
        for line in self._session.table(every=config.get_verbosity() > 0):
            terminalreporter.line(line)


def _skip_if_not_executed() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except NotExecuted as unknown:
        pytest.skip(str(unknown))
