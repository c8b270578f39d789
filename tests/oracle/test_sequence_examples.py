"""The law of sequences, worked by hand on a few tokens."""

from __future__ import annotations

import math

import pytest

from oracle.sequences import SequenceTokens, distance, generated_length, is_greedy, scale, wrong_lengths
from tests.oracle.worked import refused


def two_sequences() -> SequenceTokens:
    """Sequence 0 has 7 8 9 and sequence 1 has 5, both in context 0."""
    tokens = SequenceTokens()
    tokens.extend(0, [(0, (7, 8)), (1, (5,))])
    tokens.extend(0, [(0, (9,))])
    return tokens


def test_rows_are_appended_to_their_sequences() -> None:
    tokens = SequenceTokens()
    assert tokens.extend(0, [(3, (7, 8)), (1, (5,))]) == [(7, 8), (5,)]
    assert tokens.extend(0, [(3, (9,))]) == [(7, 8, 9)]
    assert tokens.of((0, 3)) == (7, 8, 9)
    assert tokens.of((0, 1)) == (5,)
    assert tokens.of((1, 3)) == ()
    assert tokens.lengths() == {(0, 1): 1, (0, 3): 3}


def test_a_row_needs_tokens_and_a_sequence_of_its_own() -> None:
    tokens = two_sequences()
    with refused("rows"):
        tokens.extend(0, [(0, (1,)), (0, (2,))])
    with refused("rows"):
        tokens.extend(0, [(2, ())])
    assert tokens.lengths() == {(0, 0): 3, (0, 1): 1}


def test_a_fork_replaces_what_the_target_had() -> None:
    tokens = two_sequences()
    tokens.fork(0, 0, 1)
    assert tokens.tokens == {(0, 0): (7, 8, 9), (0, 1): (7, 8, 9)}
    tokens.fork(0, 4, 1)
    assert tokens.tokens == {(0, 0): (7, 8, 9)}


@pytest.mark.parametrize(("n", "left"), [(1, (7, 8)), (2, (7,)), (3, ())])
def test_a_rollback_removes_the_last_tokens(n: int, left: tuple[int, ...]) -> None:
    tokens = two_sequences()
    tokens.roll_back(0, 0, n)
    assert (tokens.of((0, 0)), tokens.of((0, 1))) == (left, (5,))


@pytest.mark.parametrize(
    ("length", "left"),
    [(3, (7, 8, 9)), (4, (7, 8, 9, 1)), (5, (7, 8, 9, 1, 2)), (2, ()), (6, ()), (None, ())],
)
def test_a_cancelled_request_leaves_some_of_its_tokens_or_nothing(
    length: int | None, left: tuple[int, ...]
) -> None:
    tokens = two_sequences()
    tokens.cancel(0, 0, (1, 2), length)
    assert (tokens.of((0, 0)), tokens.of((0, 1))) == (left, (5,))


@pytest.mark.parametrize(("stop", "length"), [(None, 4), (9, 4), (5, 1), (6, 2), (7, 4)])
def test_generation_ends_at_the_first_stop_token(stop: int | None, length: int) -> None:
    assert generated_length((5, 6, 6, 7, 8), 4, stop) == length


@pytest.mark.parametrize("n", [0, 4])
def test_a_rollback_is_of_one_token_at_least_and_of_all_at_most(n: int) -> None:
    tokens = two_sequences()
    with refused("n"):
        tokens.roll_back(0, 0, n)
    assert tokens.of((0, 0)) == (7, 8, 9)


def test_a_saved_sequence_is_loaded_into_another_one() -> None:
    tokens = two_sequences()
    tokens.save(0, 0, "kept")
    tokens.roll_back(0, 0, 1)
    tokens.load(1, 1, "kept")
    assert tokens.tokens == {(0, 0): (7, 8), (0, 1): (5,), (1, 1): (7, 8, 9)}
    with refused("saved"):
        tokens.load(0, 0, "other")


def test_a_dropped_sequence_is_empty() -> None:
    tokens = two_sequences()
    tokens.drop(0, 0)
    assert tokens.tokens == {(0, 1): (5,)}


def test_reordered_sequences_have_what_others_had_before() -> None:
    tokens = two_sequences()
    tokens.reorder(0, [1, 0, 0])
    assert tokens.tokens == {(0, 0): (5,), (0, 1): (7, 8, 9), (0, 2): (7, 8, 9)}
    tokens.reorder(0, [0, 0])
    assert [tokens.of((0, number)) for number in range(3)] == [(5,), (5,), (7, 8, 9)]


@pytest.mark.parametrize(
    ("length", "left"), [(5, (7, 8, 9, 1, 2)), (4, (7, 8, 9, 1)), (3, ()), (6, ()), (None, ())]
)
def test_generated_tokens_belong_to_the_sequence_where_its_length_is_known(
    length: int | None, left: tuple[int, ...]
) -> None:
    tokens = two_sequences()
    tokens.generate(0, 0, (1, 2), length)
    assert (tokens.of((0, 0)), tokens.of((0, 1))) == (left, (5,))


def test_the_scale_is_the_largest_distance_from_the_mean() -> None:
    assert scale([1.0, 2.0, 6.0]) == 3.0
    assert scale([-4.0, 0.0, 1.0]) == 3.0
    assert scale([2.0, 2.0]) == 0.0


def test_a_distance_is_a_share_of_the_scale_of_the_fresh_logits() -> None:
    assert distance([1.0, 2.0, 6.0], [1.0, 2.0, 6.0]) == 0.0
    assert distance([1.0, 2.5, 4.5], [1.0, 2.0, 6.0]) == 0.5
    assert distance([1.0, 5.0, 6.0], [1.0, 2.0, 6.0]) == 1.0
    assert distance([], []) == 0.0


@pytest.mark.parametrize(
    ("seen", "fresh"),
    [
        ([1.0], [1.0, 2.0]),
        ([1.0, math.nan], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, math.inf]),
        ([2.0, 3.0], [2.0, 2.0]),
    ],
)
def test_a_distance_without_a_number_or_without_a_scale_is_infinite(
    seen: list[float], fresh: list[float]
) -> None:
    assert distance(seen, fresh) == math.inf


def test_equal_logits_without_a_scale_have_no_distance() -> None:
    assert distance([2.0, 2.0], [2.0, 2.0]) == 0.0


@pytest.mark.parametrize(
    ("token", "greedy"), [(0, False), (1, True), (2, True), (3, False), (-1, False), (4, False)]
)
def test_a_greedy_token_has_the_largest_logit_within_the_tolerance(token: int, greedy: bool) -> None:
    # The mean is 2, and so the scale is 2: within a quarter of it are 3.5 and more.
    assert is_greedy(token, [0.0, 4.0, 3.5, 0.5], 0.25) is greedy


def test_the_tolerance_of_a_greedy_token_is_a_share_of_the_scale() -> None:
    assert is_greedy(2, [0.0, 4.0, 3.5, 0.5], 0.24) is False
    assert is_greedy(1, [3.0, 3.0], 0.0) is True
    assert is_greedy(0, [4.0, 0.0], 0.0) is True


def test_a_reported_length_is_held_against_the_tokens() -> None:
    expected = {(0, 0): 3, (0, 1): 1, (0, 2): 4}
    assert wrong_lengths(expected, {(0, 1): 1, (0, 0): 3}) == []
    assert wrong_lengths(expected, {(1, 0): 1, (0, 3): 0, (0, 1): 2, (0, 0): 2}) == [(0, 0), (0, 1), (1, 0)]
