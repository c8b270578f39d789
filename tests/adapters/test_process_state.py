"""Changes of a subject to its process are put back."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from statecheck.subject.loading import ProcessState, restored


def _go_to_removed_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()


AFTER_THE_CALL: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "working folder": (lambda: os.chdir("/"), Path.cwd),
    "removed folder": (_go_to_removed_folder, Path.cwd),
    "handler": (
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGTERM),
    ),
    "device": (lambda: torch.set_default_device("meta"), lambda: torch.empty(0).device),
    "removed import path": (sys.path.clear, lambda: list(sys.path)),
    "dtype": (lambda: torch.set_default_dtype(torch.float16), lambda: torch.empty(0).dtype),
}
WITH_THE_NEXT_EXAMPLE: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "environment": (os.environ.clear, lambda: dict(os.environ)),
    "added import path": (lambda: sys.path.insert(0, "/nowhere"), lambda: list(sys.path)),
}


@pytest.mark.parametrize("name", AFTER_THE_CALL)
def test_settings_that_the_harness_relies_on_are_put_back_after_a_call(name: str) -> None:
    change, read = AFTER_THE_CALL[name]
    before = read()
    with ProcessState().kept():
        change()
    assert read() == before


@pytest.mark.parametrize("name", WITH_THE_NEXT_EXAMPLE)
def test_settings_that_later_calls_may_need_are_put_back_with_the_next_example(name: str) -> None:
    change, read = WITH_THE_NEXT_EXAMPLE[name]
    state, before = ProcessState(), read()
    with state.kept():
        change()
    changed = read()
    state.begin()
    assert (changed == before, read() == before) == (False, True)


def _go_and_raise() -> None:
    os.chdir("/")
    raise KeyError


def test_an_exception_of_a_call_comes_through_and_its_changes_are_put_back() -> None:
    before = Path.cwd()
    with pytest.raises(KeyError), restored():
        _go_and_raise()
    assert Path.cwd() == before
