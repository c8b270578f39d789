"""No entry of known defects passes by a defect of another kind: every breakage is planted under every entry's circumstances."""

from __future__ import annotations

import pytest

from tests.breakages.table import BREAKAGES
from tests.campaign.known.known_lint import linted

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("executed")]

SAME = {
    (
        "starts are read once per tensor object",
        "stale-chunk-memo",
    ): "both give the result of the first call again",
    (
        "computed tokens are kept on the batch",
        "stale-computed-tokens",
    ): "both give the result of the first call again",
    (
        "padding makes a uniform batch uneven",
        "uniform-padding-is-prefill",
    ): "the same comparison with the first row",
    (
        "a mark of prompt counts only for rows that are too long anyway",
        "uniform-batch-overlooks-prompts",
    ): "neither looks at the marks of a uniform batch",
    (
        "decodes are counted wherever they stand",
        "uniform-batch-overlooks-prompts",
    ): "where the only row with tokens is in its prompt, both make all rows decodes; other uniform batches are rare",
    (
        "rows of one token are speculative beside drafts only",
        "drafted-nothing-in-a-life",
    ): "both lose the accepted count of a decode that drafted nothing, where no other row has drafts",
    (
        "a run that overlaps itself is moved from the wrong end",
        "run-onto-itself",
    ): "both read bytes after they have overwritten them",
}
"""Breakages that are an entry's very defect under its circumstances, and why."""
PARTLY = {
    (
        "rows slide from the wrong end",
        "shift-within-a-block",
    ): "both read bytes after they were overwritten, this one in every order",
    (
        "the first program sets the counts, not the last",
        "accepted-count-in-place",
    ): "the same race, in a kernel whose programs share the tiles of a state: what shows may also be a part of a copy",
}
"""Breakages that look like an entry's defect in some of their failures."""


def test_no_entry_passes_by_a_breakage_of_another_kind() -> None:
    lint = linted()
    assert sorted(lint.passed_by - set(SAME) - set(PARTLY)) == []


def test_an_entry_passes_by_the_breakages_that_are_its_defect() -> None:
    reported = set(linted().planted) - linted().passed_by
    assert sorted(set(SAME) & reported) == []
    assert len(set(SAME) & linted().passed_by) >= 4


def test_every_breakage_is_planted() -> None:
    lint = linted()
    assert list(lint.found) == [breakage.name for breakage in BREAKAGES]
    assert len(lint.planted) >= 25
