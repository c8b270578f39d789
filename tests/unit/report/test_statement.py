"""What a report says should hold: the law that is broken, and not what the property that met it is named for."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.sequences import SequenceLaws
from statecheck.case import Case
from statecheck.case.values import Name, Outcome, Raised, Returned, call, record
from statecheck.report.markdown import report_text
from statecheck.report.statement import should_hold
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT

SENTENCE = "After a reordering, as beams do it, each sequence goes on as a fresh run over the tokens that it has now."
RIGHT = Returned(record("SequenceStep", broken=record("SequenceLaws", **vars(SequenceLaws()))))


def a_reordering_case(outcome: Outcome) -> Case:
    made = call("Sequences", model="small", seed=0, features={}, bind="library")
    given = call("Sequences.extend", self=Name("library"), context=0, rows=[(0, (1,))], features={})
    return a_case(
        sentence=SENTENCE,
        property_id="sequences/reorder",
        steps=(made, given),
        expected=(Returned(record("Sequences")), RIGHT),
        actual=(Returned(record("Sequences")), outcome),
        message="",
        failure=None,
    )


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            Returned(
                record("SequenceStep", broken=record("SequenceLaws", **vars(SequenceLaws(logits="wrong"))))
            ),
            "The logits of a sequence's next token are those of a fresh run over its tokens",
        ),
        (Raised("IndexError", "no"), "No call fails that an engine or a library offers"),
    ],
)
def test_a_report_names_the_law_and_not_a_reordering_that_did_not_happen(
    outcome: Outcome, words: str, tmp_path: Path
) -> None:
    from dataclasses import replace

    from statecheck.case.failure import failure_of, outcome_difference

    case = a_reordering_case(outcome)
    found = outcome_difference(RIGHT, outcome, places=False)
    assert found is not None
    failure = failure_of(found, RIGHT, outcome, function="Sequences.extend", call=1, shown="")
    case = replace(case, failure=failure)
    assert should_hold(case).startswith(words)
    assert should_hold(case).endswith("(sequences/reorder)")
    assert "reorder" not in report_text(case, tmp_path).partition("## ")[0].replace("sequences/reorder", "")


def test_each_saved_case_of_an_engine_names_a_law() -> None:
    cases = [Case.load(path) for path in sorted((ROOT / "docs/findings").glob("*.json"))]
    broken = [
        case for case in cases if case.failure is not None and case.failure.place.startswith("result.broken.")
    ]
    assert broken
    assert all(should_hold(case).partition(" (")[0] != case.sentence for case in broken)


def test_a_property_of_a_function_has_its_own_sentence() -> None:
    assert should_hold(a_case()) == "Toys divide. (toys/divide)"
