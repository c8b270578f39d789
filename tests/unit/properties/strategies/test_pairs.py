"""Engines that combine features have any two of them together."""

from __future__ import annotations

from itertools import combinations

import pytest

from properties.strategies.bounds import MOST_DRAFTS
from properties.strategies.releases import live, radix
from properties.strategies.releases.pairs import apart, covering_rows


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


def test_pairs_that_leave_a_feature_no_value_are_in_no_row() -> None:
    # "a" = 1 wants "c" = 1, and "b" = 1 wants "c" = 0.
    excluded = (*apart("c", 0, a=(1,)), *apart("c", 1, b=(1,)))
    rows = covering_rows({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, excluded)
    assert {(row["a"], row["b"], row["c"]) for row in rows} == {(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 1)}


def test_values_that_are_apart_are_pairs_of_choices() -> None:
    assert [*apart("a", 1, 2, b=("x",), c=(True,))] == [
        (("a", 1), ("b", "x")),
        (("a", 1), ("c", True)),
        (("a", 2), ("b", "x")),
        (("a", 2), ("c", True)),
    ]


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


@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.parametrize(
    "together",
    [
        {"connector": "mooncake", "checkpoints": True},
        {"connector": "simple-lazy", "num_spec": MOST_DRAFTS},
        {"connector": "offloading", "max_num_seqs": 16},
        {"connector": "async", "failing_loads": (0,), "async_scheduling": True},
        {"prefix_match_unit": 2, "items": ((2, 7), (10, 7))},
        {"attention_block_size": 4, "prefix_caching": False},
        {"sliding_window": 6, "async_scheduling": True},
        {"connector": "nixl", "prefix_caching": False},
    ],
    ids=str,
)
def test_an_engine_of_vllm_combines(runner: str, together: dict[str, object]) -> None:
    assert any(together.items() <= vars(world).items() for world in live.PAIRED[runner])


@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_a_block_of_vllm_takes_several_steps(runner: str) -> None:
    assert any(world.max_num_batched_tokens <= world.block_size // 2 for world in live.PAIRED[runner])


def test_stages_of_vllm_stand_beside_no_connector() -> None:
    staged = [world for world in live.PAIRED["V2"] if world.stages > 1]
    assert {world.num_spec for world in staged} >= {0, MOST_DRAFTS}
    assert {world.connector for world in staged} == {""}
    assert {world.stages for world in live.PAIRED["V1"]} == {1}


def test_few_engines_of_vllm_combine_all_pairs() -> None:
    assert max(map(len, live.PAIRED.values())) <= 80
