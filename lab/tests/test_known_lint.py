"""No entry of known defects passes by a defect of another kind: every planted defect is hunted under every entry's circumstances."""

from __future__ import annotations

import pytest

from lab.tests.known_lint import linted
from tests.helpers.planted import PlantedDefect, planted_in_impl

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
        "rows of one token are speculative beside drafts only",
        "drafted-nothing-in-a-life",
    ): "both lose the accepted count of a decode that drafted nothing, where no other row has drafts",
}
"""Planted defects that are an entry's very defect under its circumstances, and why."""
PASSED = {
    ("starts are read once per tensor object", "stale-chunk-memo"),
    ("computed tokens are kept on the batch", "stale-computed-tokens"),
    ("padding makes a uniform batch uneven", "uniform-padding-is-prefill"),
    ("rows of one token are speculative beside drafts only", "drafted-nothing-in-a-life"),
}
"""Those of `SAME` that an entry passes by within the examples of this test, so that it is seen to work."""


@pytest.mark.parametrize("planted", planted_in_impl(), ids=lambda planted: planted.name)
def test_a_planted_defect_is_found_and_no_entry_of_another_defect_matches(planted: PlantedDefect) -> None:
    lint = linted(planted)
    passed_by = lint.passed_by
    assert sorted(passed_by - set(SAME)) == []
    assert sorted(set(SAME) & set(lint.planted) - passed_by) == []
    assert {pair for pair in PASSED if pair[0] == planted.name} <= passed_by


def test_each_reason_is_about_a_planted_defect() -> None:
    assert {name for name, _ in SAME} <= {planted.name for planted in planted_in_impl()}
