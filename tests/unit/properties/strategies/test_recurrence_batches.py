"""Batches of recurrences reach every situation that they name, and hold what no kernel may read apart from what is read."""

from __future__ import annotations

import math

import pytest
from hypothesis import strategies as st

from properties.strategies.recurrences import CHUNKED, RECURRENT, Batch, Row, Sizes, batches
from statecheck.case.values import Let, Tensor, floats_of
from statecheck.subject.profile import Profile
from tests.unit.properties.strategies.drawing import drawn

EITHER = {
    "several rows",
    "a row of padding without a slot",
    "a row without tokens",
    "tokens behind the last row",
    "several heads of values for one of keys",
    "inputs in one memory",
    "room between slots",
    "slots as a column",
    "inputs of half precision",
    "another order of programs",
}
REACHED: dict[tuple[str, ...], set[str]] = {
    RECURRENT: EITHER | {"drafts", "several accepted tokens", "sizes that are no powers of two"},
    CHUNKED: EITHER | {"a row without a state", "several chunks"},
}


@pytest.mark.parametrize("group", REACHED)
def test_batches_reach_the_situations_of_their_functions(group: tuple[str, ...]) -> None:
    found = drawn(batches(group))
    assert REACHED[group] <= {one for batch in found for one in batch.situations()}
    assert {batch.function for batch in found} == set(group)


def test_all_slots_of_a_batch_differ() -> None:
    for batch in drawn(st.one_of(batches(RECURRENT), batches(CHUNKED)), range(2)):
        slots = [slot for row in batch.rows for slot in row.slots or ()]
        assert len(slots) == len(set(slots))
        assert all(0 <= slot < batch.slots for slot in slots)


BATCH = Batch(
    "linear_recurrent",
    Sizes(1, 1, 2, 2),
    (Row(0, 0, 1, (1,)), Row(99, 0, 1, None)),
    3,
    spare_tokens=1,
    gap=1,
)


def memory_of(batch: Batch, name: str) -> list[float]:
    lets = {step.name: step.value for step in batch.steps() if isinstance(step, Let)}
    assert isinstance(lets[name], Tensor)
    return list(floats_of(bytes(lets[name].elements or b""), batch.dtype))


def test_tokens_of_padding_unused_slots_and_the_room_between_them_are_nan() -> None:
    assert [math.isnan(value) for value in memory_of(BATCH, "v0")] == [False] * 2 + [True] * 4
    # A gap, then three slots of four elements, each with a gap behind it.
    unread = [True] * 6 + [False] * 4 + [True] * 6
    assert [math.isnan(value) for value in memory_of(BATCH, "states0")] == unread


def test_slots_begin_behind_null_slots() -> None:
    batch = BATCH.of_release(Profile(null_slots=(0,)))
    *_, made = batch.steps()
    assert made.named["slots"].values() == (2, 0)  # type: ignore[union-attr]
    assert batch.pool("states").shape[0] == 4


def test_a_function_is_not_handed_what_it_does_not_take() -> None:
    profile = Profile(without_drafts=("gdn_recurrent",), without_shared_heads=("gdn_recurrent",))
    row = Row(0, 0, 1, (0, 1), accepted=2)
    batch = Batch("gdn_recurrent", Sizes(1, 2, 3, 5), (row,), 2, drafts=1).of_release(profile)
    found = batch.of_functions(["gdn_recurrent"])
    assert (found.drafts, found.rows[0].slots, found.rows[0].accepted, found.sizes.value_heads) == (
        None,
        (0,),
        1,
        1,
    )
