"""Launches that the executor does not know: no property says anything about them, and the operation is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import Status, verdict_of
from statecheck.kernels import launch
from statecheck.kernels.source.ir import NotUnderstoodError
from subjects import Subject
from tests.helpers.hunts import hunting
from tests.helpers.planted import Variant, broken_subject

pytestmark = pytest.mark.usefixtures("executed")

INTACT = Variant("not_understood", "align/kernels/preprocess.py", "(dst_col >= 0)", "(dst_col >= 0)")


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor knows no operation."""

    def refuse(*_: Any) -> Any:
        raise NotUnderstoodError("tt.new")

    monkeypatch.setattr(launch, "compiled", refuse)


def explored(name: str, subject: Subject, *, sanitized: bool = True) -> ExecutionContext:
    """A context in which a property has run a few examples."""
    context = ExecutionContext(subject, InProcess(subject, "cpu", sanitized=sanitized))
    with hunting(shrink=False):
        load_properties()[name].explore(context, seed=1, max_examples=3)
    return context


ORDERS = "preprocess-kernel/program-order"
RED_ZONE = "precopy/null-block"
BYTES = "preprocess-kernel/columns"


@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize("name", [ORDERS, RED_ZONE, BYTES], ids=["order-free", "red zone", "bytes"])
def test_a_property_whose_kernel_cannot_be_executed_is_not_applicable(name: str, tmp_path: Path) -> None:
    with broken_subject(INTACT, tmp_path) as subject:
        found = verdict_of(explored(name, subject).counts)
    assert found.status is Status.NOT_APPLICABLE
    assert "kernel is not executed on a CPU: the executor does not know tt.new" in found.reason
