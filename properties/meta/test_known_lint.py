"""No entry of known defects passes by a defect of another kind: every breakage is planted under every entry's circumstances."""

from __future__ import annotations

import pytest

from properties.meta.breakages import BREAKAGES
from properties.meta.known_lint import linted

pytestmark = [pytest.mark.usefixtures("interpreted"), pytest.mark.timeout(300)]

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
        "a decode that drafted nothing is no speculative row",
        "drafted-nothing",
    ): "the same rows lose their count",
}
"""Breakages that are an entry's very defect, and why."""


def test_no_entry_passes_by_a_breakage_of_another_kind() -> None:
    lint = linted()
    print(lint.figures)
    assert sorted(lint.passed_by - set(SAME)) == []


def test_an_entry_passes_by_the_breakages_that_are_its_defect() -> None:
    assert sorted(set(SAME) - linted().passed_by) == []


def test_every_breakage_is_planted() -> None:
    assert list(linted().found) == [breakage.name for breakage in BREAKAGES]
