"""What a subject changes in its process is put back, and remarked once."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from statecheck.subject import remarks
from statecheck.subject.descriptors import OpenFiles
from statecheck.subject.remarks import take_remarks
from statecheck.subject.surroundings import ProcessState, kept_at_once


def _alarmed(*_: object) -> None:
    raise RuntimeError("alarmed")


def _leave_alarm() -> None:
    signal.signal(signal.SIGALRM, _alarmed)
    signal.setitimer(signal.ITIMER_REAL, 0.2)


def _leave_profiler() -> None:
    signal.signal(signal.SIGPROF, _alarmed)
    signal.setitimer(signal.ITIMER_PROF, 0.2, 0.2)


def _go_to_removed_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()


def _remove_output() -> None:
    sys.stdout = sys.stderr = None


AT_ONCE: dict[str, tuple[Callable[[], Any], str]] = {
    "working folder": (lambda: os.chdir("/"), "the subject changed the working folder in f: "),
    "removed folder": (_go_to_removed_folder, "the subject changed the working folder in f: "),
    "alarm": (_leave_alarm, "the subject changed the timer of SIGALRM in f: "),
    "profiler": (_leave_profiler, "the subject changed the timer of SIGPROF in f: "),
    "handler": (
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        "the subject changed the handler of SIGTERM in f: ",
    ),
    "device": (
        lambda: torch.set_default_device("meta"),
        "the subject changed torch's default device in f: 'cpu' became 'meta'; it was put back",
    ),
    "dtype": (
        lambda: torch.set_default_dtype(torch.float16),
        "the subject changed torch's default dtype in f: 'torch.float32' became 'torch.float16'; it was put back",
    ),
    "umask": (lambda: os.umask(0o777), "the subject changed the umask in f: "),
    "recursion": (lambda: sys.setrecursionlimit(4321), "the subject changed the recursion limit in f: "),
    "import path": (sys.path.clear, "the subject changed the import path (sys.path) in f: "),
    "streams": (_remove_output, "the subject changed the standard streams in f: "),
}
LATER: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "environment": (
        os.environ.clear,
        lambda: dict(os.environ),
        "the subject changed variables of the environment in f: ",
    ),
    "import path": (
        lambda: sys.path.insert(0, "/nowhere"),
        lambda: list(sys.path),
        "",
    ),
    "filters of warnings": (lambda: warnings.simplefilter("error"), lambda: list(warnings.filters), ""),
}


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remarks, "_noted", {})
    monkeypatch.setattr(remarks, "_reported", set())


def _state() -> tuple[Any, ...]:
    umask = os.umask(0)
    os.umask(umask)
    handlers = [signal.getsignal(one) for one in (signal.SIGALRM, signal.SIGPROF, signal.SIGTERM)]
    # The limit that pytest-timeout sets for this test goes on.
    timers = signal.getitimer(signal.ITIMER_REAL)[0] > 1, signal.getitimer(signal.ITIMER_PROF)
    torch_state = torch.empty(0).device, torch.empty(0).dtype
    return (
        Path.cwd(),
        umask,
        handlers,
        timers,
        torch_state,
        sys.getrecursionlimit(),
        {*sys.path},
        sys.stdout,
        sys.stderr,
    )


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_the_harness_relies_on_is_put_back_after_a_call(name: str) -> None:
    change, remark = AT_ONCE[name]
    before = _state()
    with ProcessState().kept("f"):
        change()
    assert _state() == before
    assert any(one.startswith(remark) for one in take_remarks().values())


@pytest.mark.parametrize("name", LATER)
def test_what_later_calls_may_need_is_put_back_with_the_next_example(name: str) -> None:
    change, read, remark = LATER[name]
    state, before = ProcessState(), read()
    with state.kept("f"):
        change()
    changed = read()
    state.begin()
    assert (changed == before, read() == before) == (False, True)
    assert any(one.startswith(remark) for one in take_remarks().values()) or not remark


def test_a_call_that_changes_nothing_is_not_remarked() -> None:
    with ProcessState().kept("f"):
        time.sleep(0.01)
    assert take_remarks() == {}


def test_a_change_is_remarked_once() -> None:
    for _ in range(2):
        with kept_at_once("f"):
            os.chdir("/")
        first = take_remarks()
    assert first == {}


def _go_and_raise() -> None:
    os.chdir("/")
    raise KeyError


def test_what_a_call_raises_comes_through_and_its_changes_are_put_back() -> None:
    before = Path.cwd()
    with pytest.raises(KeyError), kept_at_once("f"):
        _go_and_raise()
    assert Path.cwd() == before


def test_files_that_stay_open_are_remarked_and_not_closed() -> None:
    files, opened = OpenFiles(), []
    files.look()
    try:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
        files.look()
        assert [os.fstat(one) for one in opened]
    finally:
        for one in opened:
            os.close(one)
    (remark,) = take_remarks().values()
    assert remark.startswith("the subject leaves files open: a worker has ")
