"""The description of a failure: one headline in every output, the law that is broken, and the rows of each output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oracle.sequences import SequenceLaws
from statecheck.case import Case
from statecheck.case.failure import failure_of, outcome_difference
from statecheck.case.values import Name, Outcome, Raised, Returned, call, record
from statecheck.report.failure import Entry, _lines_within, failure_entry, headline, should_hold
from statecheck.report.render import GITHUB, entry_lines, entry_markdown, github_annotations, report_text
from statecheck.report.scripts.script import repro_script
from tests.helpers.cases import a_case, subject_of
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
    outcome: Outcome, words: str
) -> None:
    case = a_reordering_case(outcome)
    found = outcome_difference(RIGHT, outcome, places=False)
    assert found is not None
    failure = failure_of(found, RIGHT, outcome, function="Sequences.extend", call=1, shown="")
    case = replace(case, failure=failure)
    assert should_hold(case).startswith(words)
    assert should_hold(case).endswith("(sequences/reorder)")
    assert "reorder" not in report_text(case, subject_of(case)).partition("## ")[0].replace(
        "sequences/reorder", ""
    )


@pytest.mark.parametrize(
    ("subject", "outcome", "is_told"),
    [
        ("my_port", Raised("RuntimeError", "rewind is not supported"), True),
        ("my_port", Raised("worker died", "SIGABRT", kind="fault"), False),
        ("transformers", Raised("RuntimeError", "rewind is not supported"), False),
    ],
)
def test_a_port_that_raises_is_told_what_a_refusal_is(subject: str, outcome: Outcome, is_told: bool) -> None:
    case = a_reordering_case(outcome)
    found = outcome_difference(RIGHT, outcome, places=False)
    assert found is not None
    failure = failure_of(found, RIGHT, outcome, function="Sequences.extend", call=1, shown="")
    rows = dict(failure_entry(replace(case, failure=failure, subject=subject)).brief.rows)
    assert ("NotImplementedError" in rows.get("if refused", "")) is is_told


def test_each_saved_case_of_an_engine_names_a_law() -> None:
    cases = [Case.load(path) for path in sorted((ROOT / "docs/findings").glob("*.json"))]
    broken = [
        case for case in cases if case.failure is not None and case.failure.place.startswith("result.broken.")
    ]
    assert broken
    assert all(should_hold(case).partition(" (")[0] != case.sentence for case in broken)


def test_a_step_has_no_row_of_fields_that_only_laws_read() -> None:
    for path in sorted((ROOT / "docs" / "findings").glob("*.json")):
        entry = failure_entry(Case.load(path))
        assert "not compared" not in dict(entry.rows), path.name


def test_a_step_says_itself_what_breaks_a_law() -> None:
    case = Case.load(ROOT / "docs/findings/copied-before-it-is-loaded.json")
    wrong = "the forward of r1 reads zeros of block 6 of group 1, but should read the state after its 4 computed tokens"
    assert headline(case, "0.33.0") == f"vllm 0.33.0: {wrong}"


def test_the_headline_is_the_first_line_of_a_report_a_script_and_what_pytest_prints(tmp_path: Path) -> None:
    case = a_case(
        expected=(Returned(3),),
        actual=(Returned(2),),
        message="result = 2, but should be 3 [divide(x=5, y=2)]",
    )
    line = "toy: divide: result = 2, but should be 3"
    assert headline(case) == line
    assert report_text(case, subject_of(case)).startswith(f"# {line}\n")
    assert repro_script(case, tmp_path, subject_of(case)).startswith(f'"""{line}\n')
    assert list(entry_lines(failure_entry(case).brief)) == [
        line,
        "  should hold  Toys divide. (toys/divide)",
        "  call         divide(x=5, y=2)",
        "  expected     3",
        "  actual       2",
    ]


def test_lines_break_between_words_and_what_is_pasted_stays_whole() -> None:
    path = "reports/" + "a" * 90
    lines = list(entry_lines(Entry("wrong " * 30, (("call", "f(x) " * 40), ("report", path))), 80))
    assert max(len(line) for line in lines if path not in line) <= 80
    assert f"  report  {path}" in lines
    assert " ".join(" ".join(lines).split()) == " ".join(
        f"{'wrong ' * 30} call {'f(x) ' * 40} report {path}".split()
    )


def test_steps_have_lines_of_their_own_and_one_line_in_markdown() -> None:
    entry = failure_entry(Case.load(ROOT / "docs/findings/copied-before-it-is-loaded.json")).brief
    assert [*_lines_within(3, ("abc", "d"))] == ["abc", "…"]
    steps = dict(entry.rows)["smallest input"].splitlines()
    assert len(steps) > 2
    shown = [line for line in entry_lines(entry, 500) if line.endswith(tuple(steps))]
    assert len({line.find(step) for line, step in zip(shown, steps, strict=True)}) == 1
    assert any("; ".join(steps) in line for line in entry_markdown(entry, 500))


def test_an_annotation_of_github_is_one_line_that_no_message_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("a: b, 100%\n::error::x", (("call", "f(\n::error::y)"),))
    monkeypatch.delenv(GITHUB, raising=False)
    assert github_annotations([entry]) == []
    monkeypatch.setenv(GITHUB, "true")
    assert github_annotations([entry]) == [
        "::error title=a%3A b%2C 100%25%0A%3A%3Aerror%3A%3Ax::call  f(%0A| ::error::y)"
    ]
