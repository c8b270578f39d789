"""What one load, store or atomic of a program touches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.case.findings import Program, byte_count
from statecheck.kernels.sanitizer.views import UNKNOWN, Booleans, Integers, Origin, Provenance, TensorView

Place = tuple[str, int]
"""A file and a line of kernel code; ("", 0) if it is not known."""
_NOTHING: Integers = np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class Touch:
    """All active lanes of one access."""

    kind: str
    program: Program
    place: Place
    nbytes: int
    addresses: Integers
    low: int
    high: int
    """The end of the last element."""
    mask: Any
    """The active lanes of the tile; None for all."""
    shape: tuple[int, ...]
    origin: Origin | None
    data: Any = None
    """Of a store, the values of the active lanes, in the type that is stored."""
    reads: bool = True
    writes: bool = False
    acquires: bool = False
    releases: bool = False
    is_run: bool = False
    """The active lanes' elements are known to be neighbours, in the order of the lanes."""

    @property
    def scalar(self) -> bool:
        return self.shape == () or all(n == 1 for n in self.shape)

    def without_addresses(self) -> Touch:
        """The same in less memory: what was done, and where, without the addresses; of neighbours what was stored, too."""
        origin = self.origin if isinstance(self.origin, int) else None
        data = self.data if self.is_run else None
        return replace(self, addresses=_NOTHING, mask=None, origin=origin, data=data)

    def lane_numbers(self) -> Integers:
        return np.arange(len(self.addresses)) if self.mask is None else np.flatnonzero(self.mask)

    def spaced(self) -> bool:
        """Whether the lanes' elements follow each other without touching the same byte."""
        if self.is_run:
            return True
        gaps = self.addresses[1:] - self.addresses[:-1]
        return not len(gaps) or bool(gaps.min() >= self.nbytes)

    def has(self, byte: int) -> bool:
        return bool(((self.addresses <= byte) & (byte < self.addresses + self.nbytes)).any())

    def stored_bytes(self, low: int, high: int) -> tuple[Integers, NDArray[np.uint8]]:
        """Of a store, the address and the value of each byte from `low` to before `high`."""
        stored = np.ascontiguousarray(self.data).reshape(-1).view(np.uint8)
        if self.is_run:
            low, high = max(low, self.low), min(high, self.high)
            return np.arange(low, high), stored[low - self.low : high - self.low]
        some = (self.addresses < high) & (self.addresses + self.nbytes > low)
        found = (self.addresses[some][:, None] + np.arange(self.nbytes)).reshape(-1)
        stored = stored.reshape(-1, self.nbytes)[some].reshape(-1)
        inside = (found >= low) & (found < high)
        return found[inside], stored[inside]

    def bytes_between(self, low: int, high: int) -> tuple[Integers, Integers]:
        """Every byte touched from `low` to before `high`, and the lane that touches it."""
        some = (self.addresses < high) & (self.addresses + self.nbytes > low)
        found = self.addresses[some][:, None] + np.arange(self.nbytes)
        lanes = np.broadcast_to(self.lane_numbers()[some][:, None], found.shape)
        inside = (found >= low) & (found < high)
        return found[inside], lanes[inside]


def place_texts(place: Place) -> tuple[str, str]:
    file, line = place
    if not file:
        return "an unknown line", ""
    return f"{Path(file).name}:{line}", f"{file}:{line}"


class Observer:
    """Is shown the operations of a launch; those of tiles without an active lane among them."""

    def before(self, touch: Touch) -> None:
        """An operation is about to be made. What this raises, the launch raises; then the operation is not made."""

    def after(self, touch: Touch) -> None:
        """The operation has been made; a compare and swap says now whether it wrote."""


# Whether an access stays inside the views that its pointers came from, and if not, by how much.


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
