"""Pytest items as judges: runs of pytest in a forked process, with few and always the same examples, and without shrinking."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

PROFILE = "mutants"
_KEPT = 300


def set_examples(examples: int) -> None:
    """Let each property have so many examples: always the same, and no smaller ones after a failure."""
    settings.register_profile(
        PROFILE,
        settings.get_profile("default"),
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile(PROFILE)


def run(arguments: Sequence[str], plugin: object, scratch: Path) -> int:
    """Run pytest in this process, which has not collected anything before; pytest's exit code."""
    # Without rewritten assertions: what has been imported already cannot be rewritten.
    fixed = ["-q", "--assert=plain", "-p", "no:cacheprovider", f"--basetemp={scratch / 'pytest'}"]
    if find_spec("pytest_timeout") is not None:
        fixed.append("--timeout=0")
    return int(pytest.main([*fixed, *arguments], plugins=[plugin]))


class Examples:
    """What every run of items needs."""

    def __init__(self, examples: int) -> None:
        self._examples = examples

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        # The suite's own options have loaded another profile.
        set_examples(self._examples)


class Collected(Examples):
    """Hands on the ids of all items."""

    def __init__(self, examples: int, tell: Callable[..., None]) -> None:
        super().__init__(examples)
        self._tell = tell

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._tell(item=item.nodeid)


class Judge(Examples):
    """Runs items in a given order; the first that fails ends the process.

    Args:
        order: the items' ids.
        begin: is called with the place in the order before each item.
        fail: is called with the place and what went wrong; it does not return.
    """

    def __init__(
        self,
        examples: int,
        order: Sequence[str],
        begin: Callable[[int], None],
        fail: Callable[[int, BaseException], None],
    ) -> None:
        super().__init__(examples)
        self._order = {nodeid: place for place, nodeid in enumerate(order)}
        self._begin, self._fail = begin, fail

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begin(self._order[nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.excinfo is not None and not _says_nothing(call.excinfo.value):
            self._fail(self._order[item.nodeid], call.excinfo.value)


class Timed(Examples):
    """Hands on, for each item, whether it can judge and how long it took; `around` is asked to watch it."""

    def __init__(self, examples: int, around: Callable[[], Any], tell: Callable[..., None]) -> None:
        super().__init__(examples)
        self._around, self._tell = around, tell
        self._passed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._passed = True
        begun = time.process_time()
        with self._around() as seen:
            result = yield
        self._tell(item=item.nodeid, passed=self._passed, seconds=time.process_time() - begun, **seen)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        # An item that is skipped or fails on the source as it is judges nothing. Beside a known defect, another failure is new.
        if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.xfail.Exception):
            self._passed = False


def _says_nothing(error: BaseException) -> bool:
    return isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception))


def in_short(error: BaseException) -> str:
    """The first line of a failure."""
    text = f"{type(error).__name__}: {error}".strip()
    return text.splitlines()[0][:_KEPT]
