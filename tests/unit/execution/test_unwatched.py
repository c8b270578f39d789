"""Launches that the executor does not know: which properties say nothing about them, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import Status, verdict_of
from statecheck.kernels import launch
from statecheck.kernels.source.ir import NotUnderstoodError
from subjects import Subject
from tests.helpers.hunts import hunting
from tests.helpers.planted import Variant, broken_subject

pytestmark = pytest.mark.usefixtures("executed")

INTACT = Variant("not_understood", "align/kernels/preprocess.py", "(dst_col >= 0)", "(dst_col >= 0)")
WHY = "nothing watches launches in Triton's interpreter: {} (the executor does not know tt.new)"
Refusing = Callable[[bool], None]


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    """Have the executor know no operation, of kernels with bfloat16 numbers or without."""

    def refuse_all(bfloat16: bool) -> None:
        def refuse(*_: Any) -> Any:
            error = NotUnderstoodError("tt.new")
            error.bfloat16 = bfloat16
            raise error

        monkeypatch.setattr(launch, "compiled", refuse)

    return refuse_all


def explored(name: str, subject: Subject, *, sanitized: bool = True) -> ExecutionContext:
    """A context in which a property has run a few examples."""
    context = ExecutionContext(subject, InProcess(subject, "cpu", sanitized=sanitized))
    with hunting(shrink=False):
        load_properties()[name].explore(context, seed=1, max_examples=3)
    return context


ORDERS = "no_order_of_programs_shows_in_the_columns_of_the_step"
RED_ZONE = "nothing_is_precopied_through_a_sentinel"
BYTES = "a_request_goes_to_the_column_of_its_last_token_and_remembers_where_it_comes_from"


@pytest.mark.parametrize(
    ("name", "bfloat16", "verdict", "words"),
    [
        (ORDERS, False, Status.NOT_APPLICABLE, WHY.format("preprocess_mamba_align_fused_kernel")),
        (RED_ZONE, False, Status.NOT_APPLICABLE, WHY.format("precopy_mamba_align_fused_kernel")),
        (BYTES, False, Status.PASSED, ""),
        (BYTES, True, Status.NOT_APPLICABLE, "has bfloat16 numbers, which Triton's interpreter gets wrong"),
    ],
    ids=["order-free", "red zone", "bytes", "bfloat16"],
)
def test_a_property_that_has_to_watch_launches_or_needs_bfloat16_is_not_applicable(
    name: str, bfloat16: bool, verdict: Status, words: str, refusing: Refusing, tmp_path: Path
) -> None:
    refusing(bfloat16)
    with broken_subject(INTACT, tmp_path) as subject:
        found = verdict_of(explored(name, subject).counts)
    assert found.status is verdict
    assert words in found.reason
