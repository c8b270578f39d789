"""Batches of recurrences reach every form of their functions, and hold what no kernel may read apart from what is read."""

from __future__ import annotations

import math

import pytest
from hypothesis import strategies as st

from properties.strategies.recurrences import CHUNKED, NO_SLOT, RECURRENT, Batch, Row, Sizes, batches
from statecheck.case.values import Let, Tensor, floats_of
from statecheck.subject.profile import Profile
from tests.unit.properties.strategies.drawing import drawn


@pytest.mark.parametrize("group", [RECURRENT, CHUNKED], ids=["recurrent", "chunked"])
def test_batches_reach_the_forms_of_their_functions(group: tuple[str, ...]) -> None:
    found = drawn(batches(group))
    assert {batch.function for batch in found} == set(group)
    assert {batch.packed for batch in found} == {batch.column for batch in found} == {True, False}
    assert (
        {bool(batch.gap) for batch in found} == {bool(batch.spare_tokens) for batch in found} == {True, False}
    )
    assert {bool(batch.schedule) for batch in found} == {True, False}
    assert {batch.dtype for batch in found} == {"float32", "bfloat16", "float16"}
    rows = [row for batch in found for row in batch.rows]
    # More heads of keys than one, and more than a tile has of channels and of values.
    assert {1, 2} < {batch.sizes.heads for batch in found}
    assert max(batch.sizes.values for batch in found) > 32
    assert {"steep", "strided gates", "wide chunks"} <= {name for batch in found for name in batch.options}
    assert {row.slots is None for row in rows} == {row.length == 0 for row in rows} == {True, False}
    if group is RECURRENT:
        assert {row.accepted for row in rows} >= {1, 2}
        assert {batch.drafts for batch in found} == {None, 0, 1, 2, 3}
    else:
        assert {row.is_fresh for row in rows} == {True, False}
        assert max(row.length for row in rows) > 64


def test_all_slots_of_a_batch_differ() -> None:
    for batch in drawn(st.one_of(batches(RECURRENT), batches(CHUNKED)), range(2)):
        slots = [slot for row in batch.rows for slot in row.slots or () if slot != NO_SLOT]
        assert len(slots) == len(set(slots))
        assert all(0 <= slot < batch.slots for slot in slots)


BATCH = Batch(
    "linear_recurrent", Sizes(1, 1, 2, 2), (Row(0, 0, 1, (1,)), Row(99, 0, 1, None)), 3, spare_tokens=1, gap=1
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


@pytest.mark.parametrize(("large_grids", "heads"), [((), 4), (("kda_chunk",), 129)])
def test_only_functions_with_kernels_for_large_grids_have_many_heads(
    large_grids: tuple[str, ...], heads: int
) -> None:
    batch = Batch("kda_chunk", Sizes(129, 129, 8, 2), (Row(0, 0, 65, (0,)),), 1)
    found = batch.of_release(Profile(large_grids=large_grids)).of_functions(["kda_chunk"])
    assert (found.sizes.heads, found.sizes.value_heads) == (heads, heads)
