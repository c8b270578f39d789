"""Lanes whose elements overlap are no run of neighbours, whatever the first and the last of them are."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from statecheck.sanitizer import Misaligned, RaceWithinProgram, sanitize

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def overlapping_kernel(out_ptr, chosen, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some lanes store an element that is twice as wide as lanes are apart."""
    lanes = tl.arange(0, 8)
    mask = ((chosen >> lanes) & 1) == 1
    pointers = (out_ptr + lanes).to(tl.pointer_type(WIDE))
    tl.store(pointers, lanes.to(WIDE), mask=mask)


@pytest.mark.parametrize(
    "chosen", [0b10011, 0b11, 0b11111111], ids=["with a gap as wide", "neighbours", "all"]
)
def test_lanes_that_are_closer_than_their_elements_are_wide_are_no_run(chosen: int) -> None:
    """The bytes from the first to the last lane may be as many as those of all of them."""
    with sanitize(), pytest.raises((Misaligned, RaceWithinProgram)):
        overlapping_kernel[(1,)](torch.zeros(16, dtype=torch.int32), chosen, WIDE=tl.int64)


def test_a_single_lane_of_wide_elements_is_fine() -> None:
    out = torch.zeros(16, dtype=torch.int32)
    with sanitize():
        overlapping_kernel[(1,)](out, 0b100, WIDE=tl.int64)
    assert out.tolist() == [0, 0, 2, *[0] * 13]
