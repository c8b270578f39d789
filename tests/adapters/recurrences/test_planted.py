"""Defects of planted.toml, each in a copy of the port of the examples, are found and shrunk; the port itself passes."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from statecheck import rooms
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import adapted
from tests.helpers.observers import FailureLog
from tests.helpers.slow import slow_after

_SOURCE = (rooms.FOLDER / "examples" / "recurrences_port.py").read_text(encoding="utf-8")
_MOST_EXAMPLES = 400
_MOST_TOKENS = 70
PLANTED = {
    row["name"]: row
    for row in tomllib.loads(Path(__file__).with_name("planted.toml").read_text(encoding="utf-8"))["defect"]
}
PAIRS = {f"{name}: {id_}": (name, id_) for name, row in PLANTED.items() for id_ in row["found_by"]}
PROPERTIES = [id_ for id_ in load_properties() if id_.startswith(("recurrent-kernels/", "chunked-kernels/"))]
_OF_PROGRAMS = ("recurrent-kernels/program-order", "chunked-kernels/program-order")


def _port(source: str) -> Iterator[ModuleType]:
    module = ModuleType("planted_recurrences")
    module.__file__ = __file__
    sys.modules[module.__name__] = module
    exec(compile(source, "planted_recurrences.py", "exec"), vars(module))  # noqa: S102 - a source of our own
    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[tuple[ModuleType, str]]:
    """A copy of the port with a defect, and a property that finds it."""
    name, id_ = PAIRS[request.param]
    defect, source = PLANTED[name], _SOURCE
    for old, new in ([defect["old"], defect["new"]], *defect.get("also", ())):
        assert source.count(old) == 1
        source = source.replace(old, new)
    for module in _port(source):
        yield module, id_


def explore(module: ModuleType, id_: str, seed: int, examples: int) -> tuple[ExecutionContext, FailureLog]:
    subject, log = adapted(module), FailureLog()
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"), log)
    load_properties()[id_].explore(context, seed=seed, max_examples=examples)
    return context, log


@pytest.mark.parametrize("planted", slow_after(4, PAIRS), indirect=True)
def test_a_planted_defect_is_found_and_shrunk(planted: tuple[ModuleType, str]) -> None:
    module, id_ = planted
    with pytest.raises(Falsified) as raised:
        explore(module, id_, 1, _MOST_EXAMPLES)
    case = raised.value.case
    starts = [call.named["query_start_loc"].values() for call in case.calls]
    print(f"{id_}: {len(case.calls)} calls, rows {starts}, {case.message[:100]}")
    assert max(row_starts[-1] for row_starts in starts) <= _MOST_TOKENS


@pytest.mark.parametrize("seed", slow_after(1, range(1, 6)))
@pytest.mark.parametrize("id_", PROPERTIES)
def test_the_port_of_the_examples_passes(id_: str, seed: int) -> None:
    for module in _port(_SOURCE):
        context, _ = explore(module, id_, seed, 25)
        # An example in which nothing differs is discarded.
        assert bool(context.counts.compared) == (id_ not in _OF_PROGRAMS)


def test_every_property_finds_a_planted_defect() -> None:
    found = {id_ for row in PLANTED.values() for id_ in row["found_by"]}
    assert set(PROPERTIES) - found - set(_OF_PROGRAMS) == set()
