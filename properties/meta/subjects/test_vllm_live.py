"""Declared defects of a release's own engine match the wrong states that they make, and no others."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from typing import Any

import pytest

from properties.harness.case import Case
from properties.harness.case.failure import Failure
from properties.harness.case.values import Returned, call, record
from properties.meta.breakages.broken import ROOT, a_case
from properties.strategies.live import LiveWorld
from properties.subjects.vllm_conditions.live import LIVE

PLACEHOLDERS = ("r1", 3, (0, 0))
DRAFT = ("r1", 3, (7,))
OWN, ANOTHERS, NOBODYS, ZEROS = ("r1", 2, ()), ("r0", 2, ()), ("?", 0, ()), ("", 0, ())
SPECULATES: dict[str, Any] = {"num_spec": 2}


def step(begins: bool, *findings: tuple[Any, ...]) -> Returned:
    scheduled = {"r1": {"computed": 0, "tokens": 1, "drafts": 0, "begins": begins}}
    return Returned(record("LiveStep", scheduled=scheduled, findings=findings))


def ends_with(
    *found: tuple[Any, ...], law: str = "read", tokens: int = 4, begins: int = 1, **settings: Any
) -> Case:
    """A life that ends with a step in which r1 reads these states; it was scheduled from its beginning so many times."""
    about = {"request": "r1", "tokens": tokens, "found": found, "conv": False}
    actual = [Returned(None), *[step(True)] * (begins - 1), step(True, (law, "seen", "wanted", about))]
    made = call("LiveEngine", settings=record("LiveSettings", **settings), bind="engine")
    steps = (made, *[call("LiveEngine.step", turns={})] * begins)
    failure = Failure("value", "seen", place=f"result.broken.{law}", function="LiveEngine.step")
    return replace(a_case(steps=steps, actual=tuple(actual)), failure=failure)


@pytest.mark.parametrize(
    ("name", "case", "matches"),
    [
        ("took_in_placeholders", ends_with(PLACEHOLDERS, **SPECULATES), True),
        ("took_in_placeholders", ends_with(PLACEHOLDERS), False),
        ("took_in_placeholders", ends_with(DRAFT, **SPECULATES), False),
        ("took_in_placeholders", ends_with(OWN, **SPECULATES), False),
        ("first_token_of_an_engine", ends_with(NOBODYS, tokens=0), True),
        ("first_token_of_an_engine", ends_with(NOBODYS, tokens=1), False),
        ("first_token_of_gdn_in_an_engine", ends_with(NOBODYS, tokens=0, kinds=("mamba2",)), False),
        ("resumed_with_a_short_rest", ends_with(OWN, begins=2, **SPECULATES), True),
        ("resumed_with_a_short_rest", ends_with(OWN, begins=1, **SPECULATES), False),
        ("accepted_count_of_another_row", ends_with(OWN, DRAFT, runner="V1", async_scheduling=True, **SPECULATES), True),
        ("accepted_count_of_another_row", ends_with(ANOTHERS, runner="V1", async_scheduling=True, **SPECULATES), False),
        ("accepted_count_of_another_row", ends_with(ZEROS, runner="V1", async_scheduling=True, **SPECULATES), False),
        ("accepted_count_of_another_row", ends_with(OWN, runner="V2", async_scheduling=True, **SPECULATES), False),
        ("unaligned_chunk_of_a_draft", ends_with(OWN, law="published", method="eagle", **SPECULATES), True),
        ("unaligned_chunk_of_a_draft", ends_with(ANOTHERS, law="published", method="eagle", **SPECULATES), False),
        ("recurrent_hit_past_the_drop", ends_with(ZEROS, law="attention", method="eagle", **SPECULATES), True),
        ("recurrent_hit_past_the_drop", ends_with(ZEROS, law="attention", **SPECULATES), False),
        ("hits_inside_blocks", ends_with(ZEROS, law="attention", prefix_match_unit=2), True),
        ("hits_inside_blocks", ends_with(ZEROS, law="attention"), False),
    ],
)  # fmt: skip
def test_a_declared_defect_has_its_own_wrong_states(name: str, case: Case, matches: bool) -> None:
    assert LIVE[name](case) is matches


def test_a_field_of_settings_that_a_case_leaves_out_is_as_it_was_drawn() -> None:
    """Both sides have the default; the adapter's cannot be imported without a release."""
    text = (ROOT / "properties/subjects/vllm/live_config.py").read_text(encoding="utf-8")
    (settings,) = (one for one in ast.parse(text).body if getattr(one, "name", "") == "LiveSettings")
    assert isinstance(settings, ast.ClassDef)
    defaults = {
        one.target.id: ast.literal_eval(one.value)
        for one in settings.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None
    }
    always = dict(LiveWorld().settings.fields)
    drawn = {one.name: one.default for one in fields(LiveWorld) if one.name != "layout"}
    assert {name: defaults[name] for name in drawn.keys() - always} == {
        name: drawn[name] for name in drawn.keys() - always
    }
