"""Lines and branches that functions have, and those that they come to."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from statecheck.reach.source import Point, source
from statecheck.reach.trace import Trace

TEXT = '''\
"""A module."""
import contextlib

LIMIT = 3 if contextlib else 4


def kind(number, names=None):
    if names is None:
        return "none"
    if number > LIMIT and names or not number:
        return "many"
    while number > 0:
        number -= 1
    for name in names:
        if name == "last":
            break
    assert number == 0
    with contextlib.suppress(KeyError):
        number = {}["missing"]
    return [name for name in names if name] or "empty"


def jit(function):
    return function


@jit
def kernel(pointer):
    if pointer:
        return 1
    return 2
'''


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "traced_module.py"
    path.write_text(TEXT, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("traced_module", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def texts(points: set[Point] | frozenset[Point]) -> set[tuple[str, str]]:
    """Of each branch the text from its column on, and which way it goes."""
    return {(TEXT.splitlines()[one.line - 1][one.column :], one.way) for one in points if one.way}


def lines(points: set[Point] | frozenset[Point]) -> set[int]:
    return {one.line for one in points if not one.way}


def traced(module: ModuleType, *calls: tuple[object, ...]) -> frozenset[Point]:
    trace = Trace([str(module.__file__)])
    with trace.watching():
        for call in calls:
            module.kind(*call)
    return trace.take() & frozenset(source(str(module.__file__)).points())


def test_the_points_of_a_file_are_those_of_its_functions_apart_from_kernels(module: ModuleType) -> None:
    points = source(str(module.__file__)).points()
    assert lines(points) == {*range(8, 21), 24}
    assert texts(points) == {
        ("names is None:", "is None"),
        ("names is None:", "is not None"),
        *((condition, way) for condition in CONDITIONS for way in ("true", "false")),
        ("for name in names:", "ends"),
        ("for name in names:", "goes on"),
    }


CONDITIONS = (
    "number > LIMIT and names or not number:",
    "names or not number:",
    "number:",
    "number > 0:",
    'name == "last":',
    'name] or "empty"',
    '[name for name in names if name] or "empty"',
)


def test_what_a_function_comes_to_is_noted(module: ModuleType) -> None:
    found = traced(module, (1,))
    assert lines(found) == {8, 9}
    assert texts(found) == {("names is None:", "is None")}


def test_both_ways_of_a_loop_and_of_conditions_within_one_line_are_noted(module: ModuleType) -> None:
    found = traced(module, (2, ["first", "last"]), (1, ["", "first"]), (4, []))
    missed = source(str(module.__file__)).points() - found
    assert lines(missed) == {9, 11, 24}
    assert texts(missed) == {
        ("names is None:", "is None"),
        ("names or not number:", "true"),
        ("number:", "false"),
    }


def test_only_what_is_new_is_given_and_only_while_it_watches(module: ModuleType) -> None:
    trace = Trace([str(module.__file__)])
    module.kind(1)
    assert trace.take() == frozenset()
    for expected in (True, False):
        with trace.watching():
            module.kind(1)
        assert bool(trace.take()) is expected


def test_other_files_are_left_alone(module: ModuleType, tmp_path: Path) -> None:
    trace = Trace([str(tmp_path / "other.py")])
    with trace.watching():
        module.kind(1)
    assert trace.take() == frozenset()


def test_without_files_nothing_is_watched() -> None:
    before = sys.gettrace()
    with Trace(()).watching():
        assert sys.gettrace() is before
