"""Where pointers come from: every pointer carries the views it may point into, through all that kernels do with it.

What it carries is the number of an origin, a tuple of views, or an array of such numbers where the elements of a tile differ.
The addresses themselves stay what they are, so that kernels compare and subtract them as ever. What loses its origin is
looked up by its address later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from statecheck.kernels.sanitizer.views import Integers, TensorView, view_of

Origin = int | Integers
UNKNOWN = -1


class Provenance:
    """The registered views, and the origins of the pointers of a launch."""

    def __init__(self) -> None:
        self._registered: dict[Any, TensorView] = {}
        self.arguments: list[TensorView] = []
        self.origins: list[tuple[TensorView, ...]] = []
        self._numbers: dict[tuple[TensorView, ...], int] = {}
        self._starts: dict[int, tuple[TensorView, ...]] = {}
        self._sorted: Integers | None = None

    @property
    def registered(self) -> list[TensorView]:
        """The latest last."""
        return list(self._registered.values())

    def register(self, view: TensorView) -> None:
        self.forget(view)
        self._registered[view.key] = view
        if view.base:
            self._starts[view.base] = (*self._starts.get(view.base, ()), view)
            self._sorted = None

    def forget(self, view: TensorView) -> bool:
        known = self._registered.pop(view.key, None)
        if known is None:
            return False
        if known.base:
            left = tuple(view for view in self._starts[known.base] if view is not known)
            self._starts |= {known.base: left}
            if not left:
                del self._starts[known.base]
            self._sorted = None
        return True

    def _addresses(self) -> Integers:
        """The first bytes of the registered views, in order."""
        if self._sorted is None:
            self._sorted = np.array(sorted(self._starts), np.int64)
        return self._sorted

    def begin_launch(self) -> None:
        self.arguments, self.origins, self._numbers = [], [], {}

    def known(self) -> list[TensorView]:
        return [*self.arguments, *self._registered.values()]

    def number(self, views: tuple[TensorView, ...]) -> int:
        if views not in self._numbers:
            self._numbers[views] = len(self.origins)
            self.origins.append(views)
        return self._numbers[views]

    def view(self, argument: Any, name: str) -> int:
        """A tensor that a launch is handed: the origin of pointers made of it."""
        view = view_of(argument, name)
        view = self._registered.get(view.key, view)
        self.arguments.append(view)
        return self.number((view,))

    def at(self, address: int) -> int | None:
        """Integers that are the address of a registered tensor point into it."""
        views = self._starts.get(address)
        return self.number(views) if views else None

    def among(self, addresses: Integers) -> Integers | None:
        """The same for each of many; None where none of them is one."""
        starts = self._addresses()
        if not len(starts) or not addresses.size:
            return None
        if int(addresses.max()) < starts[0] or int(addresses.min()) > starts[-1]:
            return None
        at = np.minimum(np.searchsorted(starts, addresses), len(starts) - 1)
        found = starts[at] == addresses
        if not found.any():
            return None
        numbers = [self.number(self._starts[int(start)]) for start in starts]
        return np.where(found, np.array(numbers)[at], UNKNOWN)
