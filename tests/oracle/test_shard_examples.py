"""States on the ranks of one engine and of another: layouts, shards and refusals on sizes small enough to count by hand."""

from __future__ import annotations

from typing import Any

import pytest

from oracle import shards
from oracle.shards import Part, StateLayout
from tests.oracle.worked import case, refused

SIZES: dict[str, dict[str, int]] = {
    "linear": {"num_heads": 3, "head_dim": 5},
    "short_conv": {"channels": 6, "conv_kernel": 4},
    "mamba1": {"channels": 6, "state_size": 5, "conv_kernel": 4},
    "kda": {"num_heads": 3, "head_dim": 5, "conv_kernel": 4},
    "gdn": {"num_k_heads": 2, "num_v_heads": 6, "head_k_dim": 7, "head_v_dim": 5, "conv_kernel": 4},
    "mamba2": {"n_groups": 2, "num_heads": 6, "head_dim": 5, "state_size": 8, "conv_kernel": 4},
    "cca": {"num_heads": 6, "num_kv_heads": 2, "head_dim": 5, "conv_kernel": 4, "hidden_size": 11},
}
"""Sizes of a layer of each family. A convolution over 4 tokens keeps 3 of them."""

LAYERS_OF_MAMBA2 = {"n_groups": 1, "num_heads": 2, "head_dim": 1, "state_size": 2, "conv_kernel": 2}
"""The first layer's convolution has elements 1 and 2 of the heads, 3 and 4, and 5 and 6 of the group; its second state has 7 and 8 of head 0,
and 9 and 10 of head 1. The second layer has 11 to 20.
"""
WHOLE = (((1, 2, 3, 4, 5, 6), (7, 8, 9, 10)), ((11, 12, 13, 14, 15, 16), (17, 18, 19, 20)))
HEAD_0 = (((1, 3, 4, 5, 6), (7, 8)), ((11, 13, 14, 15, 16), (17, 18)))
HEAD_1 = (((2, 3, 4, 5, 6), (9, 10)), ((12, 13, 14, 15, 16), (19, 20)))


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        case("linear", "linear", ((((3, 25),), 1),)),
        case("short_conv", "short_conv", ((((6, 1),), 3),)),
        case("mamba1", "mamba1", ((((6, 1),), 3), (((6, 1),), 5))),
        case("kda", "kda", ((((3, 5), (3, 5), (3, 5)), 3), (((3, 5),), 5))),
        case("gdn", "gdn", ((((2, 7), (2, 7), (6, 5)), 3), (((6, 5),), 7))),
        case("mamba2", "mamba2", ((((6, 5), (2, 8), (2, 8)), 3), (((6, 5),), 8))),
        case("cca", "cca", ((((6, 5), (2, 5)), 3), (((1, 11),), 1))),
    ],
)
def test_a_layer_has_a_convolution_and_a_second_state(family: str, expected: Any) -> None:
    """Expected: of each state, the units and sizes of its parts, and the elements of a channel."""
    states = tuple(
        StateLayout(tuple(Part(units, size) for units, size in parts), rows) for parts, rows in expected
    )
    assert shards.layouts_of(family, SIZES[family]) == states


@pytest.mark.parametrize(
    ("family", "elements"),
    [
        ("linear", (75,)),
        ("short_conv", (18,)),
        ("mamba1", (18, 30)),
        ("kda", (135, 75)),
        ("gdn", (174, 210)),
        ("mamba2", (186, 240)),
        ("cca", (120, 11)),
    ],
)
def test_a_layer_has_the_states_of_its_family(family: str, elements: tuple[int, ...]) -> None:
    """Expected: the elements of each state of a layer. Both layers are on one rank."""
    ((first, second),) = shards.sent_states(family, SIZES[family], 1, 1)
    assert tuple(map(len, first)) == tuple(map(len, second)) == elements


@pytest.mark.parametrize("family", SIZES)
def test_a_size_is_an_int_of_at_least_1_and_of_a_convolution_2(family: str) -> None:
    for name in SIZES[family]:
        for size in (0, True, 2.0, None):
            with refused(name):
                shards.layouts_of(family, {**SIZES[family], name: size})  # type: ignore[dict-item]
        with refused(name):
            shards.layouts_of(family, {other: size for other, size in SIZES[family].items() if other != name})
        with refused(name if name == "conv_kernel" else ""):
            shards.layouts_of(family, {**SIZES[family], name: 1})


def test_a_convolution_over_2_tokens_keeps_one_of_them() -> None:
    states = shards.layouts_of("short_conv", {"channels": 6, "conv_kernel": 2})
    assert states == (StateLayout((Part(6, 1),), 1),)


def test_a_family_is_a_known_name() -> None:
    with refused("family"):
        shards.layouts_of("rwkv", SIZES["linear"])
    with refused("family"):
        shards.sent_states("rwkv", SIZES["linear"], 1, 1)


@pytest.mark.parametrize(
    ("units", "tp_size", "expected"),
    [
        case("one-rank", 3, 1, ((0, 1, 2),)),
        case("two-units-a-rank", 6, 3, ((0, 1), (2, 3), (4, 5))),
        case("three-units-a-rank", 6, 2, ((0, 1, 2), (3, 4, 5))),
        case("one-unit-a-rank", 3, 3, ((0,), (1,), (2,))),
        case("two-ranks-a-unit", 2, 4, ((0,), (0,), (1,), (1,))),
        case("three-ranks-a-unit", 2, 6, ((0,), (0,), (0,), (1,), (1,), (1,))),
        case("two-ranks-each-of-three-units", 3, 6, ((0,), (0,), (1,), (1,), (2,), (2,))),
        case("one-unit-for-all", 1, 3, ((0,), (0,), (0,))),
    ],
)
def test_ranks_divide_units_or_share_them(
    units: int, tp_size: int, expected: tuple[tuple[int, ...], ...]
) -> None:
    held = tuple(tuple(shards.units_of_rank(units, tp_size, rank)) for rank in range(tp_size))
    assert held == expected


@pytest.mark.parametrize(("units", "tp_size"), [(3, 2), (2, 3), (4, 6), (6, 4)])
def test_units_are_a_multiple_of_the_ranks_or_the_ranks_of_the_units(units: int, tp_size: int) -> None:
    for rank in range(tp_size):
        with refused("tp_size"):
            shards.units_of_rank(units, tp_size, rank)


TWO_STATES = (StateLayout((Part(4, 2), Part(1, 3)), 2), StateLayout((Part(2, 3),), 3))
"""The first has channels 0 to 7 of four heads and 8 to 10 of one group, each of two elements: 1 to 22. The second has channels 0 to 5 of two
heads, each of three elements: 23 to 40. The second layer has 41 to 80.
"""


@pytest.mark.parametrize(
    ("tp_size", "rank", "expected"),
    [
        case("whole", 1, 0, (((1, 22),), ((23, 40),), ((41, 62),), ((63, 80),))),
        case("first-of-two", 2, 0, (((1, 8), (17, 22)), ((23, 31),), ((41, 48), (57, 62)), ((63, 71),))),
        case("second-of-two", 2, 1, (((9, 22),), ((32, 40),), ((49, 62),), ((72, 80),))),
        case("second-of-four", 4, 1, (((5, 8), (17, 22)), ((23, 31),), ((45, 48), (57, 62)), ((63, 71),))),
        case("last-of-four", 4, 3, (((13, 22),), ((32, 40),), ((53, 62),), ((72, 80),))),
    ],
)
def test_a_shard_has_the_elements_of_its_channels_in_order(tp_size: int, rank: int, expected: Any) -> None:
    """Expected: of each layer's states, the first and the last element of each run."""
    states = [tuple(at for first, last in runs for at in range(first, last + 1)) for runs in expected]
    held = shards.shard_of_layers(TWO_STATES, tp_size, rank)
    assert held == (tuple(states[:2]), tuple(states[2:]))


def test_a_part_begins_behind_all_parts_before_it() -> None:
    state = StateLayout((Part(2, 3), Part(2, 1), Part(1, 2)), 1)
    first, _ = shards.shard_of_layers((state,), 2, 1)
    assert first == ((4, 5, 6, 8, 9, 10),)


def test_a_state_without_parts_has_no_elements() -> None:
    assert shards.shard_of_layers((StateLayout((), 2),), 2, 1) == (((),), ((),))


@pytest.mark.parametrize("source_tp", [1, 2, 4])
@pytest.mark.parametrize(
    ("target_tp", "expected"), [(1, (WHOLE,)), (2, (HEAD_0, HEAD_1)), (4, (HEAD_0, HEAD_0, HEAD_1, HEAD_1))]
)
def test_a_target_holds_its_shards_whatever_the_source_has(
    source_tp: int, target_tp: int, expected: Any
) -> None:
    assert shards.sent_states("mamba2", LAYERS_OF_MAMBA2, source_tp, target_tp) == expected


@pytest.mark.parametrize(
    ("argument", "source_tp", "target_tp"),
    [
        ("source_tp", 0, 1),
        ("source_tp", True, 1),
        ("source_tp", 2.0, 1),
        ("target_tp", 1, 0),
        ("target_tp", 1, True),
        ("target_tp", 1, None),
        ("tp_size", 3, 1),
        ("tp_size", 1, 3),
        ("source_tp", 0, 0),
    ],
)
def test_both_engines_have_ranks_that_can_hold_the_states(
    argument: str, source_tp: Any, target_tp: Any
) -> None:
    with refused(argument):
        shards.sent_states("mamba2", LAYERS_OF_MAMBA2, source_tp, target_tp)
