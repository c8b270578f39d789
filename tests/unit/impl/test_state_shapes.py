"""State shapes of every family for few heads, channels, taps and ranks: those of the rules, and their refusals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from oracle import shapes
from oracle.errors import Refused
from subjects import LAYOUT_VARIABLE, load

IMPL = load("impl")
FAMILIES = {
    "linear_attention_state_shape": ("num_heads", "tp_size", "head_dim"),
    "mamba1_state_shape": ("tp_world_size", "intermediate_size", "state_size", "conv_kernel"),
    "short_conv_state_shape": ("tp_world_size", "intermediate_size", "conv_kernel", "num_spec"),
    "kda_state_shape": ("tp_world_size", "num_heads", "head_dim", "conv_kernel_size", "num_spec"),
}


def arguments(family: str) -> Iterator[dict[str, int]]:
    names = FAMILIES[family]
    for values in product(*(range(1 if name != "num_spec" else 0, 4) for name in names)):
        yield dict(zip(names, values, strict=True))


@pytest.mark.parametrize("layout", ["SD", "DS"])
@pytest.mark.parametrize("family", FAMILIES)
def test_shapes_are_those_of_the_rules(family: str, layout: str) -> None:
    rule, function = getattr(shapes, family), IMPL.resolve(f"MambaStateShapeCalculator.{family}")
    known = {} if family.startswith("linear") else {"layout": layout}
    with IMPL.environment({LAYOUT_VARIABLE: layout}):
        for given in arguments(family):
            try:
                expected = rule(**given, **known)
            except Refused as refused:
                with pytest.raises(ValueError, match=f"^{refused.argument} = "):
                    function(**given)
            else:
                assert function(**given) == expected, given


def test_groups_are_added_by_the_rules() -> None:
    function = IMPL.resolve("MambaStateShapeCalculator.extra_groups_for_head_shards")
    for groups, ranks in product(range(9), repeat=2):
        try:
            expected = shapes.extra_groups_for_head_shards(groups, ranks)
        except Refused as refused:
            with pytest.raises(ValueError, match=f"^{refused.argument} = "):
                function(groups, ranks)
        else:
            assert function(groups, ranks) == expected, (groups, ranks)
