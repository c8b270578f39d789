"""Which releases a bisection tries next."""

from __future__ import annotations

import math
from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from statecheck.releases.bisect import search
from statecheck.report.bisection import NOT_SET_UP, Bisection, TriedRelease

WORDS = {"+": "FIXED", "-": "FAILED", "n": "NOT APPLICABLE", "s": NOT_SET_UP}


def searched(verdicts: str, first: tuple[int, ...] = (), *, everything: bool = False) -> Bisection:
    """A bisection of releases 0, 1, …, of which each would come out so."""
    whole = Bisection(tuple(map(str, range(len(verdicts)))))

    def try_release(name: str) -> TriedRelease:
        return TriedRelease(name, WORDS[verdicts[int(name)]])

    return search(whole, try_release, tuple(map(str, first)), everything=everything)


def changes(verdicts: str) -> int:
    return len(list(groupby(verdicts))) - 1


@given(
    before=st.integers(0, 40), wrong=st.integers(0, 40), after=st.integers(0, 40), kind=st.sampled_from("+n")
)
def test_a_single_change_is_found_by_halves(before: int, wrong: int, after: int, kind: str) -> None:
    verdicts = (kind * before + "-" * wrong) or "-"
    if after:
        verdicts = "-" * wrong + "+" * after
    found = searched(verdicts)
    alone = Bisection(
        found.names, tuple(TriedRelease(str(i), WORDS[sign]) for i, sign in enumerate(verdicts))
    )
    if changes(verdicts):
        assert found.line == alone.line
    assert len(found.tried) <= 2 + math.ceil(math.log2(max(2, len(verdicts))))


@given(verdicts=st.text("+-ns", min_size=1, max_size=30), first=st.lists(st.integers(0, 29), max_size=4))
def test_each_release_is_tried_once_and_every_change_that_was_seen_is_exact(
    verdicts: str, first: list[int]
) -> None:
    found = searched(verdicts, tuple(first))
    names = [release.name for release in found.tried]
    assert len(names) == len(set(names))
    assert {str(number) for number in first if number < len(verdicts)} <= set(names)
    decided = found.decided
    for earlier, other in pairwise(decided):
        if earlier.state != other.state:
            assert {verdicts[int(name)] for name in found.between(earlier.name, other.name)} <= {"s"}


def test_both_ends_and_what_costs_nothing_are_tried_first() -> None:
    assert [release.name for release in searched("+" * 20, (7, 3)).tried] == ["7", "3", "0", "19"]


def test_an_end_that_cannot_be_set_up_leads_to_the_next_one() -> None:
    found = searched("ss+++--ss")
    assert found.line == "wrong since 5"
    assert [release.name for release in found.tried[:6]] == ["0", "1", "2", "8", "7", "6"]


def test_a_change_there_and_back_needs_all_of_them() -> None:
    assert searched("++-++").line == "right in all 2 releases that gave a verdict, 0 to 4"
    assert searched("++-++", everything=True).line == "wrong since 2, right since 3"
    assert searched("++-++", first=(2,)).line == "wrong since 2, right since 3"
