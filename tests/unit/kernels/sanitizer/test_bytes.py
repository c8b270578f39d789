"""Which bytes belong to a view, and which accesses meet: what the sanitizer decides in one go, decided byte by byte."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from statecheck.kernels.sanitizer import races
from statecheck.kernels.sanitizer.races import AccessLog
from statecheck.kernels.sanitizer.touches import Touch
from statecheck.kernels.sanitizer.views import StridedBytes, TensorView, geometry_of, view_of


@st.composite
def geometries(draw: st.DrawFn) -> StridedBytes:
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(rank))
    itemsize = draw(st.sampled_from([1, 2, 4]))
    return geometry_of(shape, tuple(draw(st.integers(0, 12)) * itemsize for _ in range(rank)), itemsize)


def bytes_of(geometry: StridedBytes) -> set[int]:
    elements = product(*map(range, geometry.shape))
    starts = (sum(i * s for i, s in zip(element, geometry.strides, strict=True)) for element in elements)
    return {start + byte for start in starts for byte in range(geometry.itemsize)}


@given(geometry=geometries(), nbytes=st.sampled_from([1, 2, 4, 8]))
def test_a_view_has_the_bytes_of_its_elements_and_no_others(geometry: StridedBytes, nbytes: int) -> None:
    owned, offsets = bytes_of(geometry), np.arange(-10, 160)
    wanted = [all(offset + byte in owned for byte in range(nbytes)) for offset in offsets.tolist()]
    assert geometry.inside(offsets, nbytes).tolist() == wanted
    assert [geometry.has(offset, nbytes) for offset in offsets.tolist()] == wanted


@pytest.mark.parametrize(
    "view",
    [
        torch.zeros(3, 4),
        torch.zeros(3, 4).T,
        torch.zeros(40).as_strided((3, 4), (10, 2)),
        torch.zeros(2, 1, 5),
    ],
    ids=lambda view: str(view.stride()),
)
def test_the_index_of_an_address_is_that_of_the_element(view: torch.Tensor) -> None:
    known: TensorView = view_of(view, "")
    for index in product(*map(range, view.shape)):
        assert known.index(view[index].data_ptr() + 1) == index


@st.composite
def touches(draw: st.DrawFn) -> Touch:
    kind, nbytes = draw(st.sampled_from(["load", "store", "atomic"])), draw(st.sampled_from([1, 2, 4]))
    addresses = np.array(draw(st.lists(st.integers(0, 24), min_size=1, max_size=4)), np.int64)
    low, high = int(addresses.min()), int(addresses.max()) + nbytes
    program, shape = (draw(st.integers(0, 2)), 0, 0), (len(addresses),)
    touch = Touch(kind, program, ("", 0), nbytes, addresses, low, high, None, shape, None)
    touch.writes = kind != "load"
    return touch


def touched(touch: Touch) -> set[int]:
    return {address + byte for address in touch.addresses.tolist() for byte in range(touch.nbytes)}


def suspicious(byte: int, all_touches: list[Touch]) -> bool:
    """Two programs touch it, one of them writes it, and not all do so atomically."""
    here = [touch for touch in all_touches if byte in touched(touch)]
    plain = any(touch.kind != "atomic" for touch in here)
    others = any(touch.program != other.program for touch, other in combinations(here, 2))
    return plain and others and any(touch.writes for touch in here)


@pytest.mark.parametrize(("pending", "pairs"), [(0, 0), (5, 0), (1 << 20, 0), (1 << 20, 1 << 11)])
@given(data=st.data())
def test_meetings_are_the_bytes_that_programs_share(pending: int, pairs: int, data: st.DataObject) -> None:
    all_touches = data.draw(st.lists(touches(), max_size=8))
    wanted = {byte for byte in range(40) if suspicious(byte, all_touches)}
    by_number = {byte: {i for i, t in enumerate(all_touches) if byte in touched(t)} for byte in wanted}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(races, "_PENDING", pending)
        patch.setattr(races, "_FEW_PAIRS", pairs)
        log = AccessLog()
        for touch in all_touches:
            log.add(touch)
        meetings = log.meetings()
    found = {byte: set(meeting.touches) for meeting in meetings for byte in range(meeting.low, meeting.high)}
    assert found == by_number
