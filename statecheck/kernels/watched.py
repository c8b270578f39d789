"""The memory of a launch that the sanitizer watches: it is shown every access before it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from statecheck.kernels import launch
from statecheck.kernels.observed import Array, ObservedMemory
from statecheck.kernels.sanitizer.watch import Sanitizer


@contextlib.contextmanager
def watching(sanitizer: Callable[[], Sanitizer]) -> Iterator[None]:
    """Every access of an executed launch in this context is shown to the sanitizer before it is made.

    Args:
        sanitizer: is asked for it at each launch.
    """

    def memory(launched: launch.Launched) -> WatchedMemory:
        return WatchedMemory(sanitizer(), launched)

    with launch.running(memory=memory):
        yield


class WatchedMemory(ObservedMemory):
    """Tells a sanitizer where pointers come from, and where launches and barriers are."""

    def __init__(self, watch: Sanitizer, launched: launch.Launched) -> None:
        super().__init__(watch)
        self._watch = watch
        watch.begin_launch(launched.kernel, prod(launched.grid))
        provenance = watch.provenance
        self._arguments = [
            provenance.view(argument, name) if hasattr(argument, "data_ptr") else None
            for argument, name in zip(launched.arguments, launched.names, strict=True)
        ]
        self._at = provenance.at

    def argument(self, number: int) -> int | None:
        return self._arguments[number]

    def origin_of(self, value: int) -> Any:
        return self._at(value)

    def origins_of(self, values: Array) -> Any:
        return self._watch.provenance.among(values)

    def end(self) -> None:
        self._watch.end_launch()

    def barrier(self) -> None:
        self._watch.barrier(self.program)
