"""Conditions that tell a defect of a release's builders from other wrong metadata."""

from __future__ import annotations

from dataclasses import replace

from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.case import Case, Failure
from statecheck.case.values import Call, Record, Returned
from statecheck.execution.run import Follower, rules_of
from statecheck.subject.profile import DOCUMENTS
from subjects.vllm_conditions import CONDITIONS
from tests.helpers.cases import a_case

GDN = BuilderSetup(kind="gdn", full_cudagraphs=True, max_num_seqs=3)
STEP = BuildCall((StepRequest(1, 0, True),))
"""The first token of a prompt, alone."""


def outcomes(*steps: Call) -> list[Returned]:
    """The expected outcomes of these calls."""
    asked = [call.expected for _, call in Follower(rules_of(DOCUMENTS)).follow(steps) if call is not None]
    assert all(isinstance(outcome, Returned) for outcome in asked)
    return [outcome for outcome in asked if isinstance(outcome, Returned)]


def as_decode(**changes: object) -> Case:
    """A release builds the metadata of the step as if it did not know which rows are in their prompt, with other values of some fields."""
    construct = GDN.construct()
    steps = (construct, STEP.build(GDN))
    made, right = outcomes(*steps)
    _, built = outcomes(construct, replace(STEP, marks=False, bounds=False).build(GDN))
    assert isinstance(built.value, Record)
    fields = tuple((name, changes.get(name, value)) for name, value in built.value.fields)
    wrong = replace(built, value=replace(built.value, fields=fields))
    failure = Failure("value", "metadata differ", function=steps[-1].function, call=1, place="result.x")
    return a_case(steps=steps, expected=(made, right), actual=(made, wrong), failure=failure)


def test_a_first_token_that_is_taken_for_a_decode_is_known() -> None:
    assert CONDITIONS["first_token"](as_decode(), DOCUMENTS)


def test_wrong_metadata_beside_a_first_token_is_not_known() -> None:
    assert not CONDITIONS["first_token"](as_decode(num_spec_decodes=7), DOCUMENTS)
