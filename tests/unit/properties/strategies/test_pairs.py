"""Engines that combine features have any two of them together."""

from __future__ import annotations

from itertools import combinations

import pytest

from properties.strategies.releases import radix
from properties.strategies.releases.pairs import covering_rows


def test_rows_have_all_pairs_of_values_but_those_that_are_excluded() -> None:
    features = {"a": (0, 1, 2), "b": ("x", "y"), "c": (False, True)}
    excluded = [(("b", "y"), ("a", 1)), (("c", True), ("a", 2))]
    rows = covering_rows(features, excluded)
    found = {frozenset(pair) for row in rows for pair in combinations(row.items(), 2)}
    every = {
        frozenset(((feature, value), (other, second)))
        for feature, other in combinations(features, 2)
        for value in features[feature]
        for second in features[other]
    }
    assert found == every - {frozenset(pair) for pair in excluded}
    # All triples would be twelve.
    assert len(rows) <= 7
    assert covering_rows(features, excluded) == rows


@pytest.mark.parametrize(
    "together",
    [
        {"sessions": True, "strategy": "extra_buffer_lazy"},
        {"strategy": "extra_buffer_lazy", "mixed": True},
        {"sessions": True, "mixed": True},
        {"kind": "mamba2", "host_policy": "write_back"},
        {"host_policy": "write_through", "num_draft_tokens": 1 + radix.MOST_DRAFTS},
        {"core": "rust", "states_per_path": 2},
        {"max_running_requests": 16, "page_size": 16},
        # Room for one request in one pool, and for all of them in the other.
        {"max_mamba_cache_size": 6, "max_total_tokens": radix.KEYS_THAT_REMAIN},
        {"max_mamba_cache_size": 48, "max_total_tokens": radix.FEWEST_KEYS},
    ],
    ids=str,
)
def test_an_engine_of_sglang_combines(together: dict[str, object]) -> None:
    assert any(together.items() <= vars(world).items() for world in radix.PAIRED)


def test_few_engines_of_sglang_combine_all_pairs() -> None:
    assert len(radix.PAIRED) <= 40
