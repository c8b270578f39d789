"""Failures of engines and libraries of sequences: which of them count as one cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oracle.sequences import SequenceLaws
from statecheck.case import Case
from statecheck.case.bucket import cause_of
from statecheck.case.values import Name, Raised, Returned, call, record
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT

FINDINGS = ROOT / "docs/findings"
RIGHT = record("SequenceStep", broken=record("SequenceLaws", **vars(SequenceLaws())))


def of_law(law: str) -> list[Path]:
    """Saved cases of an engine that break a law: each is of a defect of its own."""
    cases = {path: Case.load(path) for path in FINDINGS.glob("*.json")}
    return [
        path for path, case in cases.items() if case.failure and case.failure.place == f"result.broken.{law}"
    ]


@pytest.mark.parametrize("law", ["read", "published"])
def test_defects_of_an_engine_that_break_one_law_are_several_causes(law: str) -> None:
    keys = {path.name: cause_of(Case.load(path)).key for path in of_law(law)}
    assert len(keys) > 3
    assert len(set(keys.values())) == len(keys), keys


def a_sequence_case(
    model: str, operation: str, law: str, raised: str = "", said: str = "", **features: Any
) -> Case:
    broken = record("SequenceLaws", **vars(SequenceLaws()) | ({law: "something is wrong"} if law else {}))
    made = call("Sequences", model=model, seed=0, features=features, bind="library")
    operations: dict[str, dict[str, Any]] = {
        "extend": {"rows": [(0, (1,))], "features": {}},
        "reorder": {"order": (0,)},
        "generate": {"sequence": 0, "n": 1, "features": {}},
    }
    asked = call(f"Sequences.{operation}", self=Name("library"), context=0, **operations[operation])
    outcome = Raised(raised, said) if raised else Returned(record("SequenceStep", broken=broken))
    return a_case(
        steps=(made, asked),
        expected=(Returned(record("Sequences")), Returned(RIGHT)),
        actual=(Returned(record("Sequences")), outcome),
    )


def test_a_defect_of_a_model_is_one_cause_whatever_operation_shows_it() -> None:
    shown = [("extend", "logits"), ("reorder", "length"), ("generate", "tokens")]
    keys = {cause_of(a_sequence_case("nemotron_h", *place)).key for place in shown}
    assert len(keys) == 1


def test_other_models_features_and_errors_are_other_causes() -> None:
    cases = [
        a_sequence_case("nemotron_h", "extend", "logits"),
        a_sequence_case("mamba2", "extend", "logits"),
        a_sequence_case("mamba2", "extend", "logits", step=1),
        a_sequence_case("mamba2", "extend", "", "RuntimeError", "rewind to 3 is not supported"),
        a_sequence_case("mamba2", "extend", "", "RuntimeError", "shape {1, 3} differs"),
    ]
    assert len({cause_of(case).key for case in cases}) == 5
    assert cause_of(cases[2]).setting == "mamba2, step=1"


def test_one_error_of_a_library_is_one_cause_whatever_call_and_numbers_show_it() -> None:
    shown = [
        ("extend", "rewind to 3 is not supported"),
        ("generate", "rewind to 12 is not supported\nat line 4"),
    ]
    keys = {cause_of(a_sequence_case("mamba2", name, "", "RuntimeError", said)).key for name, said in shown}
    assert len(keys) == 1
