"""Defects of planted.toml, each in a copy of the reference port, are found and shrunk to a few operations."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from statecheck.case import Case
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import adapted
from tests.helpers.observers import FailureLog
from tests.helpers.slow import slow_after

_SOURCE = Path(__file__).with_name("reference_port.py").read_text(encoding="utf-8")
_MOST_EXAMPLES = 400
_MOST_CALLS = 7
"""Of a shrunk case, with the call that makes the context. A rounding needs a certain state, beside which up to two sequences more may stay."""
PLANTED = {
    row["name"]: row
    for row in tomllib.loads(Path(__file__).with_name("planted.toml").read_text(encoding="utf-8"))["defect"]
}


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A copy of the reference port with a defect."""
    defect, source = PLANTED[request.param], _SOURCE
    for old, new in ([defect["old"], defect["new"]], *defect.get("also", ())):
        assert source.count(old) == 1
        source = source.replace(old, new)
    module = ModuleType("planted_port")
    module.__file__ = __file__
    sys.modules["planted_port"] = module
    exec(compile(source, "planted_port.py", "exec"), vars(module))  # noqa: S102 - a source of our own
    yield module
    del sys.modules["planted_port"]


def _shrunk(module: ModuleType, id_: str, seed: int) -> tuple[Case, int]:
    """The shrunk case, and the number of examples until the first failing one."""
    subject, log = adapted(module), FailureLog()
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"), log)
    with pytest.raises(Falsified) as raised:
        load_properties()[id_].explore(context, seed=seed, max_examples=_MOST_EXAMPLES)
    return raised.value.case, log.examples[0]


@pytest.mark.parametrize("planted", slow_after(2, PLANTED), indirect=True)
def test_a_planted_defect_is_found_and_shrunk(planted: ModuleType, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["planted"]
    case, examples = _shrunk(planted, PLANTED[name]["found_by"], seed=1)
    tokens = [len(tokens) for call in case.calls for _, tokens in call.named.get("rows", ())]
    print(f"{name}: {examples} examples, {len(case.calls)} calls, {sum(tokens)} tokens")
    assert len(case.calls) <= _MOST_CALLS
    assert case.model == "small"
