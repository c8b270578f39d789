"""Whether an access stays inside the views that its pointers came from, and if not, by how much."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from statecheck.case.findings import byte_count
from statecheck.kernels.sanitizer.provenance import UNKNOWN, Provenance
from statecheck.kernels.sanitizer.touches import Touch
from statecheck.kernels.sanitizer.views import Booleans, Integers, TensorView


def first_outside(touch: Touch, provenance: Provenance) -> tuple[int, tuple[TensorView, ...]] | None:
    """The first address outside, and the views of which one should contain it: none where none is known."""
    origin = UNKNOWN if touch.origin is None else touch.origin
    if isinstance(origin, int):
        low, high, nbytes = touch.low, touch.high, touch.nbytes
        for view in _views(origin, provenance):
            # Most views are one run of bytes: nothing else has to be asked.
            if view.base <= low and high <= view.end and view.geometry.flat:
                return None
            if view.holds(low, high - nbytes, touch.addresses, nbytes):
                return None
        return _first(touch.addresses, touch.nbytes, origin, provenance)
    found = (
        _first(touch.addresses[origin == each], touch.nbytes, each, provenance) for each in np.unique(origin)
    )
    return next((outside for outside in found if outside is not None), None)


def first_misaligned(touch: Touch) -> int | None:
    """The first address that is no multiple of its element's size."""
    nbytes = touch.nbytes
    if nbytes == 1:
        return None
    if touch.is_run or touch.high - touch.low == nbytes:
        return touch.low if touch.low % nbytes else None
    wrong = touch.addresses % nbytes if nbytes & (nbytes - 1) else touch.addresses & (nbytes - 1)
    return int(touch.addresses[wrong.astype(np.bool_).argmax()]) if np.logical_or.reduce(wrong) else None


def _views(origin: int, provenance: Provenance) -> Iterable[TensorView]:
    return provenance.origins[origin] if origin != UNKNOWN else provenance.known()


def _first(
    addresses: Integers, nbytes: int, origin: int, provenance: Provenance
) -> tuple[int, tuple[TensorView, ...]] | None:
    inside = _inside_any(_views(origin, provenance), addresses, nbytes)
    if inside.all():
        return None
    views = provenance.origins[origin] if origin != UNKNOWN else ()
    return int(addresses[inside.argmin()]), views


def _inside_any(views: Iterable[TensorView], addresses: Integers, nbytes: int) -> Booleans:
    inside = np.zeros(addresses.shape, np.bool_)
    low, high = int(addresses.min()), int(addresses.max()) + nbytes
    for view in views:
        if view.base < high and low < view.end:
            inside |= view.inside(addresses, nbytes)
            if inside.all():
                break
    return inside


def nearest_view(address: int, nbytes: int, views: tuple[TensorView, ...]) -> TensorView | None:
    """The view of which the fewest bytes lie between it and the access; None where no view is known."""
    return min(views, key=lambda view: max(view.base - address, address + nbytes - view.end), default=None)


def where(address: int, nbytes: int, views: tuple[TensorView, ...], known: list[TensorView]) -> str:
    """In words where an outside access is: "right behind the end of `a`, in `b` instead"."""
    other = next((view for view in known if view not in views and _inside(view, address, nbytes)), None)
    instead = f", in `{other.name}` instead" if other else ""
    nearest = nearest_view(address, nbytes, views)
    if nearest is not None:
        return _beside(address, nbytes, nearest) + instead
    return f"at {address:#x}, an address that no known tensor contains"


def _inside(view: TensorView, address: int, nbytes: int) -> bool:
    return view.geometry.has(address - view.base, nbytes)


def _beside(address: int, nbytes: int, view: TensorView) -> str:
    if not view.geometry.span:
        return f"of `{view.name}`, which has no element"
    if address < view.base:
        return f"{byte_count(view.base - address)} before the start of `{view.name}`"
    if address >= view.end:
        distance = byte_count(address - view.end) if address > view.end else "right"
        return f"{distance} behind the end of `{view.name}`"
    if address + nbytes > view.end:
        return f"reaching {byte_count(address + nbytes - view.end)} behind the end of `{view.name}`"
    rows, rest = [], address - view.base
    for count, stride in view.geometry.outer:
        rows.append(min(rest // stride, count - 1))
        rest -= rows[-1] * stride
    after = f"the gap after row {rows[0] if len(rows) == 1 else rows}" if rows else "a gap"
    return f"in {after} of `{view.name}`"
