"""Floats that are expected within bounds: how they are compared, named and remembered."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from statecheck.case.failure import difference, form_difference
from statecheck.case.values import Bounded, Let, Returned, Tensor, Value, call, floats_of, raw_floats
from statecheck.execution.run import KnownMemory

EXPECTED = Bounded(
    "float32",
    (2, 2),
    raw_floats([0.0, 0.0, 7.0, 0.0], "float32"),
    ((0, 1.0, 0.5), (1, 2.0, 0.0), (3, 0.0, math.inf)),
)
RIGHT = [1.5, 2.0, 7.0, float("nan")]


def memory(*values: float) -> Tensor:
    return Tensor("uint8", (4 * len(values),), raw_floats(values, "float32"))


def found(actual: Value, expected: Bounded = EXPECTED) -> str:
    return str(difference(expected, actual, "states", places=False) or "")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_read_and_written_as_torch_has_them(dtype: str) -> None:
    values = (1.0, -0.375, 96.0, 2.0**-10)
    tensor = torch.tensor(values, dtype=getattr(torch, dtype))
    raw = tensor.view(torch.uint8).numpy().tobytes()
    assert (raw_floats(values, dtype), floats_of(raw, dtype)) == (raw, values)


def test_elements_within_their_bounds_are_right_and_unbounded_ones_are_anything() -> None:
    assert found(memory(*RIGHT)) == ""


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 1.625, "states[0, 0] = 1.625, but should be within 0.5 of 1"),
        (0, float("nan"), "states[0, 0] = nan, but should be within 0.5 of 1"),
        (1, 2.25, "states[0, 1] = 2.25, but should be within 0 of 2"),
        (2, 7.5, "states[1, 0] = 7.5, but should be 7.0 to the bit"),
    ],
)
def test_an_element_outside_of_its_bound_is_named(at: int, value: float, message: str) -> None:
    assert found(memory(*[*RIGHT[:at], value, *RIGHT[at + 1 :]])) == message


@pytest.mark.parametrize(
    ("value", "right"), [(6.5e4, True), (math.inf, True), (-math.inf, False), (0.0, False), (math.nan, False)]
)
def test_a_number_that_may_be_too_large_for_its_type_may_be_infinite(value: float, right: bool) -> None:
    large = Bounded("float16", (1,), bytes(2), ((0, 6.5e4, 600.0),))
    seen = Tensor("uint8", (2,), raw_floats([value], "float16"))
    assert (not found(seen, large)) is right
    assert found(
        Tensor("uint8", (2,), raw_floats([math.inf], "float16")), replace(large, near=((0, 6.4e4, 600.0),))
    )


def test_an_element_that_is_exact_may_not_change_its_bits() -> None:
    exact = replace(EXPECTED, raw=bytes(16), near=())
    assert found(memory(0.0, 0.0, -0.0, 0.0), exact) == "states[1, 0] = -0, but should be 0.0 to the bit"


def test_a_result_has_the_expected_type_and_shape() -> None:
    result = Tensor("float32", (2, 2), tuple(RIGHT))
    bounded = replace(EXPECTED, near=(*EXPECTED.near, (2, 7.0, 0.0)))
    assert found(result, bounded) == ""
    for wrong in (replace(result, dtype="float16"), replace(result, shape=(4,)), 1):
        assert found(wrong, bounded) != ""
        assert form_difference(bounded, wrong, "states") is not None
    assert form_difference(bounded, result, "states") is None


def test_memory_of_another_size_is_a_difference() -> None:
    assert found(memory(1.0)) == "len(states) = 4, but should be 16"


def test_an_element_of_a_view_has_the_views_index_and_the_room_between_its_place() -> None:
    pool = Bounded("float32", (8,), bytes(32), (), ((2, 2), (4, 1), 1))
    assert [pool.index(at) for at in (1, 2, 5, 6, 0, 3, 7)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (0,),
        (3,),
        (7,),
    ]


def test_memory_that_a_call_leaves_within_bounds_is_remembered_so() -> None:
    known = KnownMemory()
    known.note(Let("states", memory(0.0)))
    left = Bounded("float32", (1,), bytes(4), ((0, 1.0, 0.5),))
    step = call("step", observes=("states",))
    known.follow(step, step, Returned(None, after=(("states", left),)))
    assert known.known(step) == {"states": left}
    known.follow(step, step, Returned(None, after=(("states", memory(2.0)),)))
    assert known.contents("states") == memory(2.0)
