"""Races between programs as they are, and as a tool sees them that takes several bytes for one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statecheck.kernels.sanitizer.races import races
from statecheck.kernels.sanitizer.touches import Touch, place_texts
from statecheck.kernels.sanitizer.watch import Sanitizer

Where = tuple[str, tuple[str, str]]


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders: `places` as "kernels.py:88", and `message`, a sentence about them."""

    kernel: str
    places: tuple[str, str]
    message: str


class CellSanitizer(Sanitizer):
    """Notes races between programs, and nothing else: no access is refused.

    `races` are those of two programs that touch the same byte. `shared` are those of two programs that touch different bytes
    of one cell, of `cell` bytes. Of each kernel and pair of lines there is one.
    """

    def __init__(self, cell: int) -> None:
        super().__init__()
        self._cell = cell
        self._races: dict[Where, Race] = {}
        self._shared: dict[Where, Race] = {}

    @property
    def races(self) -> list[Race]:
        return [*self._races.values()]

    @property
    def shared(self) -> list[Race]:
        return [race for where, race in self._shared.items() if where not in self._races]

    def before(self, touch: Touch) -> None:
        """Any access may be made."""

    def after(self, touch: Touch) -> None:
        touch.data = None
        if self._log is not None:
            self._log.add(touch)

    def end_launch(self) -> None:
        log, self._log = self._log, None
        if log is None:
            return
        words = f"touch different bytes of the same {self._cell}"
        self._note(self._races, races(log), "touch the same byte")
        self._note(self._shared, races(log, self._cell), words)

    def _note(self, noted: dict[Where, Race], found: Iterable[tuple[Touch, Touch, int]], how: str) -> None:
        for first, second, _ in found:
            race = self._race(first, second, how)
            noted.setdefault((race.kernel, race.places), race)

    def _race(self, first: Touch, second: Touch, how: str) -> Race:
        places = place_texts(first.place)[0], place_texts(second.place)[0]
        message = (
            f"programs {first.program} at {places[0]} and {second.program} at {places[1]} of {self._kernel} {how}, "
            "and nothing orders the two"
        )
        return Race(self._kernel, places, message)
