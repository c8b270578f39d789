"""What the sanitizer knows about bytes: never written, handed back, or owned.

Views are remembered as they are, newest last, and may be gigabytes; only what kernels store is remembered by the byte,
in pages that exist once something in them has been stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from statecheck.kernels.sanitizer.touches import Touch
from statecheck.kernels.sanitizer.views import Booleans, Integers, TensorView

_PAGE_BITS = 16
_PAGE = 1 << _PAGE_BITS


@dataclass(frozen=True)
class Declared:
    """What was said last about a view's bytes. `holds`: they are unwritten, or freed."""

    holds: bool
    owner: str = ""
    why: str = ""


class Regions:
    """Marks of views, of which a byte has that of the newest view that contains it."""

    def __init__(self) -> None:
        self.entries: list[tuple[TensorView, Declared]] = []
        self._lows: Integers = np.zeros(0, np.int64)
        self._highs: Integers = self._lows
        self._holding: Booleans = np.zeros(0, np.bool_)
        self.low, self.high = 0, 0

    def mark(self, view: TensorView, mark: Declared) -> None:
        if not view.geometry.span:
            return
        # A view that a newer one covers is not asked any more; kept, they would pile up.
        self.entries = [entry for entry in self.entries if not _covers(view, entry[0])] + [(view, mark)]
        self._lows = np.array([known.base for known, _ in self.entries], np.int64)
        self._highs = np.array([known.end for known, _ in self.entries], np.int64)
        self._holding = np.array([known.holds for _, known in self.entries], np.bool_)
        held = self._holding
        self.low = int(self._lows[held].min()) if held.any() else 0
        self.high = int(self._highs[held].max()) if held.any() else 0

    def near(self, low: int, high: int) -> bool:
        """Whether a mark that holds may be in this range of bytes."""
        if high <= self.low or low >= self.high:
            return False
        return bool(((self._lows < high) & (self._highs > low) & self._holding).any())

    def of(self, found: Integers) -> Integers:
        """For every byte the number of the entry that it has its mark from, or -1."""
        result = np.full(found.shape, -1, np.int64)
        low, high = int(found.min()), int(found.max())
        for number in np.flatnonzero((self._lows <= high) & (self._highs > low))[::-1]:
            inside = (result < 0) & self.entries[number][0].inside(found, 1)
            result[inside] = number
        return result

    def holding(self, found: Integers) -> Booleans:
        if not self.entries:
            return np.zeros(found.shape, np.bool_)
        entries = self.of(found)
        return (entries >= 0) & self._holding[entries]

    def at(self, address: int) -> Declared | None:
        if not self.entries:
            return None
        number = int(self.of(np.array([address], np.int64))[0])
        return self.entries[number][1] if number >= 0 else None


def _covers(view: TensorView, older: TensorView) -> bool:
    if view.key == older.key:
        return True
    return view.geometry.flat and view.base <= older.base and older.end <= view.end


class Pages:
    """Bytes that kernels have stored."""

    def __init__(self) -> None:
        self._pages: dict[int, Booleans] = {}

    def add(self, touch: Touch) -> None:
        found, _ = touch.bytes_between(touch.low, touch.high)
        pages = found >> _PAGE_BITS
        for page in np.unique(pages).tolist():
            bits = self._pages.setdefault(page, np.zeros(_PAGE, np.bool_))
            bits[found[pages == page] & (_PAGE - 1)] = True

    def has(self, found: Integers) -> Booleans:
        result = np.zeros(found.shape, np.bool_)
        pages = found >> _PAGE_BITS
        for page in np.unique(pages).tolist():
            if page in self._pages:
                some = pages == page
                result[some] = self._pages[page][found[some] & (_PAGE - 1)]
        return result

    def clear(self, view: TensorView) -> None:
        for page, bits in self._pages.items():
            first = page << _PAGE_BITS
            if first < view.end and first + _PAGE > view.base:
                bits[view.inside(first + np.arange(_PAGE), 1)] = False


class Shadow:
    """All that is known about bytes."""

    def __init__(self) -> None:
        self.unwritten, self.freed, self.stored = Regions(), Regions(), Pages()

    def mark_unwritten(self, view: TensorView) -> None:
        self.stored.clear(view)
        self.unwritten.mark(view, Declared(True))

    def mark_written(self, view: TensorView) -> None:
        if self.unwritten.near(view.base, view.end):
            self.unwritten.mark(view, Declared(False))

    def free(self, view: TensorView, why: str) -> None:
        self.freed.mark(view, Declared(True, self.owner_of(view.base), why))

    def own(self, view: TensorView, owner: str, why: str) -> None:
        self.freed.mark(view, Declared(False, owner, why))

    def owner_of(self, address: int) -> str:
        mark = self.freed.at(address)
        return mark.owner if mark else ""

    def near(self, low: int, high: int) -> bool:
        """Whether some of these bytes may have been handed back, or be unwritten."""
        freed, unwritten = self.freed, self.unwritten
        return (low < freed.high and high > freed.low) or (low < unwritten.high and high > unwritten.low)

    def freed_address(self, touch: Touch) -> int | None:
        """The first freed byte that is touched."""
        if not self.freed.near(touch.low, touch.high):
            return None
        return _first(touch, self.freed.holding)

    def unwritten_address(self, touch: Touch) -> int | None:
        """The first byte that is read before it was written."""
        if not touch.reads or not self.unwritten.near(touch.low, touch.high):
            return None
        return _first(touch, lambda found: self.unwritten.holding(found) & ~self.stored.has(found))

    def store(self, touch: Touch) -> None:
        if touch.writes and self.unwritten.near(touch.low, touch.high):
            self.stored.add(touch)


def _first(touch: Touch, wrong: Callable[[Integers], Booleans]) -> int | None:
    found, _ = touch.bytes_between(touch.low, touch.high)
    bad = wrong(found)
    return int(found[bad.argmax()]) if bad.any() else None
