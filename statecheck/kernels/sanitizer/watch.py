"""The sanitizer itself: what users declare, and what is found in every access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from statecheck.case.findings import (
    Access,
    FreedBlock,
    Misaligned,
    OutsideView,
    OverflowedOffset,
    Program,
    RaceBetweenPrograms,
    RaceWithinProgram,
    UnwrittenRead,
    byte_count,
)
from statecheck.kernels.sanitizer.races import AccessLog, Lanes, first_race, written_twice
from statecheck.kernels.sanitizer.shadow import Shadow
from statecheck.kernels.sanitizer.touches import (
    Observer,
    Touch,
    first_misaligned,
    first_outside,
    nearest_view,
    place_texts,
    where,
)
from statecheck.kernels.sanitizer.views import UNKNOWN, Provenance, TensorView, view_of

_OVERFLOWED = 1 << 62
"""Where no machine has memory: the address of overflow number n is n times 2**40 more."""


class Sanitizer(Observer):
    """What is known about memory; the code that launches declares it. See `statecheck.sanitizer`.

    Args:
        record: keep which access wrote a byte last.
        bounds_only: report only accesses outside of all known storages, and offsets that overflow. Such an access may end the process, or reach
            another address on a GPU.
    """

    def __init__(self, *, record: bool = False, bounds_only: bool = False) -> None:
        self.launches = 0
        self.provenance = Provenance()
        self.shadow = Shadow()
        self._record, self._bounds_only = record, bounds_only
        self._arguments: Sequence[Any] = ()
        self._writers: list[tuple[Touch, Access, TensorView | None]] = []
        self._kernel = ""
        self._log: AccessLog | None = None
        self._lanes = Lanes()
        self._overflows: list[tuple[tuple[str, int], int]] = []

    def register(self, tensor: Any, name: str) -> None:
        """A tensor that kernels reach through raw addresses (a table of data_ptr()), or the name of any tensor.

        It is kept alive until it is forgotten, or the context ends.
        """
        self.provenance.register(view_of(tensor, name, keep=True))

    def forget(self, tensor: Any) -> None:
        """Take a registration back.

        Raises:
            ValueError: there is none.
        """
        view = view_of(tensor, "")
        if not self.provenance.forget(view):
            shape = list(view.geometry.shape)
            raise ValueError(f"tensor = {shape} at {view.base:#x}, but should be a registered one [forget]")

    def unwritten(self, tensor: Any) -> None:
        """These bytes have not been written yet: reading them is an error until a kernel stores there."""
        self.shadow.mark_unwritten(view_of(tensor, "", keep=True))

    def written(self, tensor: Any) -> None:
        """The host has written these bytes."""
        self.shadow.mark_written(view_of(tensor, "", keep=True))

    def free(self, tensor: Any, why: str = "") -> None:
        """No kernel may load or store these bytes, for example those of a block handed back to its pool."""
        self.shadow.free(view_of(tensor, self._name_of(tensor), keep=True), why)

    def own(self, tensor: Any, owner: str, why: str = "") -> None:
        """These bytes are free no longer; findings name the owner, and why."""
        self.shadow.own(view_of(tensor, "", keep=True), owner, why)

    def last_writer(self, address: int) -> Access | None:
        """The last store or atomic that a kernel made to the byte at an address.

        Raises:
            ValueError: nothing is recorded.
        """
        if not self._record:
            raise ValueError("record = False, but should be True to ask for the last writer [sanitize]")
        for touch, access, view in reversed(self._writers):
            if touch.low <= address < touch.high and touch.has(address):
                index = view.index(address) if view else None
                return replace(access, address=address, index=index)
        return None

    def begin_launch(self, kernel: str, programs: int, arguments: Sequence[Any]) -> None:
        self.launches += 1
        self._kernel = kernel
        self.provenance.begin_launch()
        self._arguments = arguments if self._bounds_only else ()
        self._lanes = Lanes()
        self._log = AccessLog() if programs > 1 and not self._bounds_only else None
        self._overflows = []

    def overflowed(self, place: tuple[str, int], magnitude: int) -> int:
        """The address that stands for those of an offset that has overflowed at this line; its use is a finding."""
        overflow = place, magnitude
        if overflow not in self._overflows:
            self._overflows.append(overflow)
        return _OVERFLOWED + (self._overflows.index(overflow) << 40)

    def end_launch(self) -> None:
        """All programs have ended.

        Raises:
            RaceBetweenPrograms: two of them got in each other's way.
        """
        log, self._log, self._arguments = self._log, None, ()
        race = first_race(log) if log is not None else None
        if race is not None:
            self._refuse_race(*race)

    def barrier(self, program: Program) -> None:
        self._lanes.barrier(program)

    def before(self, touch: Touch) -> None:
        """An access that is about to be made.

        Raises:
            Finding: it may not be made.
        """
        if not len(touch.addresses):
            return
        if self._overflows:
            self._require_no_overflow(touch)
        outside = first_outside(touch, self.provenance)
        if self._bounds_only:
            if outside is not None and (address := self._first_outside_storages(touch)) is not None:
                self._refuse_outside(touch, address, outside[1])
            return
        if outside is not None:
            self._refuse_outside(touch, *outside)
        misaligned = first_misaligned(touch)
        if misaligned is not None:
            self._refuse_misaligned(touch, misaligned)
        if self.shadow.near(touch.low, touch.high):
            self._before_marked(touch)
        twice = written_twice(touch) if touch.kind == "store" else None
        if twice is not None:
            self._refuse_twice(touch, twice)
        met = self._lanes.add(touch)
        if met is not None:
            self._refuse_meeting(touch, *met)

    def _first_outside_storages(self, touch: Touch) -> int | None:
        """The first address that no storage of a known tensor has: there may be no memory, or memory of something else."""
        inside = np.zeros(touch.addresses.shape, np.bool_)
        for argument in (*self._arguments, *(view.tensor for view in self.provenance.registered)):
            # Triton's reinterpreted tensors have none of their own.
            tensor = argument if hasattr(argument, "untyped_storage") else getattr(argument, "base", None)
            if tensor is not None:
                storage = tensor.untyped_storage()
                first, last = storage.data_ptr(), storage.data_ptr() + storage.nbytes() - touch.nbytes
                inside |= (touch.addresses >= first) & (touch.addresses <= last)
        return None if inside.all() else int(touch.addresses[inside.argmin()])

    def _before_marked(self, touch: Touch) -> None:
        freed = self.shadow.freed_address(touch)
        if freed is not None:
            self._refuse_freed(touch, freed)
        unwritten = self.shadow.unwritten_address(touch)
        if unwritten is not None:
            self._refuse_unwritten(touch, unwritten)

    def after(self, touch: Touch) -> None:
        """The access has been made, and an atomic one's part in the order of programs is known."""
        if self._bounds_only:
            return
        if self._log is None or touch.kind != "store":
            touch.data = None
        if not len(touch.addresses):
            return
        if touch.writes:
            self.shadow.store(touch)
            if self._record:
                self._writers.append((touch, self._access(touch, touch.low), self._view_at(touch, touch.low)))
        if self._log is not None:
            self._log.add(touch)

    def _refuse_outside(self, touch: Touch, address: int, views: tuple[TensorView, ...]) -> NoReturn:
        nearest = nearest_view(address, touch.nbytes, views)
        name, index = (nearest.name, nearest.index(address)) if nearest is not None else ("", None)
        access = self._access(touch, address, name, index)
        element = f", as element {list(index)}" if index else ""
        place = where(address, touch.nbytes, views, self.provenance.known())
        message = (
            f"program {touch.program} of {self._kernel} {access.verb} {byte_count(touch.nbytes)} at {access.place}{element}, "
            f"{place}{self._owned(address)}"
        )
        raise OutsideView(message, access)

    def _require_no_overflow(self, touch: Touch) -> None:
        # A kernel may have moved such a pointer on, to and fro.
        numbers = (touch.addresses + (1 << 39) - _OVERFLOWED) >> 40
        overflowed = (numbers >= 0) & (numbers < len(self._overflows))
        if not overflowed.any():
            return
        at = int(overflowed.argmax())
        address, (place, magnitude) = int(touch.addresses[at]), self._overflows[int(numbers[at])]
        access = self._access(touch, address, "", None)
        message = (
            f"program {touch.program} of {self._kernel} {access.verb} {byte_count(touch.nbytes)} at {access.place}, by an offset that "
            f"overflows int32 at {place_texts(place)[0]}: it is up to {magnitude}, but should be < {1 << 31}"
        )
        raise OverflowedOffset(message, access)

    def _refuse_misaligned(self, touch: Touch, address: int) -> NoReturn:
        access = self._access(touch, address)
        message = (
            f"{access}, at an address that is no multiple of {touch.nbytes}: a CPU does not mind, and a GPU "
            "ends the program"
        )
        raise Misaligned(message, access)

    def _refuse_freed(self, touch: Touch, byte: int) -> NoReturn:
        access = self._access(touch, byte)
        mark = self.shadow.freed.at(byte)
        assert mark is not None
        owner = f" of {mark.owner}" if mark.owner else ""
        why = f": {mark.why}" if mark.why else ""
        raise FreedBlock(f"{access}, but these bytes{owner} were freed{why}", access)

    def _refuse_unwritten(self, touch: Touch, byte: int) -> NoReturn:
        access = self._access(touch, byte)
        raise UnwrittenRead(f"{access}, but it has not been written yet{self._owned(byte)}", access)

    def _refuse_twice(self, touch: Touch, byte: int) -> NoReturn:
        access = self._access(touch, byte)
        message = (
            f"{access} in two lanes of one tile with different values: which one stays is left to chance"
        )
        raise RaceWithinProgram(message, access, access)

    def _refuse_meeting(self, touch: Touch, earlier: Touch, byte: int) -> NoReturn:
        access, other = self._access(touch, byte), self._access(earlier, byte)
        message = (
            f"{access}, which another lane of the program {other.verb} at {other.place}, with no barrier between; "
            "a CPU makes a tile's accesses all at once, so this looks right here and goes wrong on a GPU"
        )
        raise RaceWithinProgram(message, access, other)

    def _refuse_race(self, first: Touch, second: Touch, byte: int) -> NoReturn:
        access, other = self._access(first, byte), self._access(second, byte)
        message = (
            f"{access}; program {other.program} {other.verb} it at {other.place}, and nothing orders the two"
            f"{self._owned(byte)}"
        )
        raise RaceBetweenPrograms(message, access, other)

    def _owned(self, byte: int) -> str:
        mark = self.shadow.freed.at(byte)
        if mark is None or not mark.owner:
            return ""
        why = f", {mark.why}" if mark.why else ""
        return f" ({mark.owner}{why})"

    def _access(
        self, touch: Touch, byte: int, name: str | None = None, index: tuple[int, ...] | None = None
    ) -> Access:
        """The element of a touch that has this byte."""
        if name is None:
            view = self._view_at(touch, byte)
            name, index = (view.name, view.index(byte)) if view else ("", None)
        texts = place_texts(touch.place)
        kind, program = touch.kind, touch.program
        return Access(
            kind, program, self._kernel, name, index, byte, touch.nbytes, *texts, launch=self.launches
        )

    def _view_at(self, touch: Touch, byte: int) -> TensorView | None:
        some = touch.origin if isinstance(touch.origin, int) else UNKNOWN
        views = list(self.provenance.origins[some]) if some != UNKNOWN else self.provenance.known()
        return next((view for view in views if view.geometry.has(byte - view.base, 1)), None)

    def _name_of(self, tensor: Any) -> str:
        key = view_of(tensor, "").key
        return next((view.name for view in self.provenance.registered if view.key == key), "")
