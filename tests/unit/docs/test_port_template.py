"""The template of a port's repository: a port that is right, and a workflow whose commands exist."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.execution.selection import Offers
from statecheck.execution.verdict import Status, verdict_of
from subjects import Subject, adapted
from tests.helpers.modules import ROOT
from tests.helpers.parsing import options_of

TEMPLATE = ROOT / "examples/port"
WORKFLOW = TEMPLATE / ".github/workflows/statecheck.yml"
FEW = 10
needs_yaml = pytest.mark.skipif(find_spec("yaml") is None, reason="PyYAML is not installed")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.syspath_prepend(str(TEMPLATE))
    monkeypatch.delitem(sys.modules, "my_port", raising=False)
    return adapted(import_module("my_port"))


def test_the_port_offers_five_functions_that_are_right(port: Subject) -> None:
    assert len(Offers(port).offered) == 5
    context = ExecutionContext(port, InProcess(port, "cpu"))
    verdicts: dict[str, Status] = {}
    for name, tested in load_properties().items():
        if tested.not_applicable(context) is None:
            context.counts.take()
            tested.explore(context, seed=1, max_examples=FEW)
            verdicts[name] = verdict_of(context.counts).status
    assert len(verdicts) == 8
    assert set(verdicts.values()) == {Status.PASSED}


def steps() -> list[dict[str, Any]]:
    found = import_module("yaml").safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return list(found["jobs"]["properties"]["steps"])


@needs_yaml
def test_every_command_of_the_workflow_can_be_parsed() -> None:
    commands = [step["run"] for step in steps() if step.get("run", "").startswith("statecheck ")]
    budgets = []
    for command in commands:
        options = options_of(shlex.split(command.replace("$SUBJECT", "my_port"))[1:])
        budgets.append(options.budget)
    # A pull request, and a night.
    assert budgets == [300, 3600]
    assert [step["run"] for step in steps() if "${{" in step.get("run", "")] == []
