"""The bytes of the states that a forward leaves after each token, as a function of the prefix alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import shake_128
from typing import TYPE_CHECKING, Protocol

from properties.engine.places import StatePlace

if TYPE_CHECKING:
    # It takes torch, which scenarios of other kinds can do without.
    from properties.engine.recurrent import Recurrent


@dataclass(frozen=True)
class LayerState:
    """The states that a forward reads or leaves for one request in one layer, as the bytes that a serving engine stores.

    It is the state after some prefix: all zero bytes before the first token.
    `windows` has, for each conv state of the layer, the K-1 newest conv inputs, oldest first, a row of bytes (channels × item size)
    each. `temporal` has, for each temporal state of the layer (none or one), its bytes in row-major order.
    """

    windows: tuple[tuple[bytes, ...], ...]
    temporal: tuple[bytes, ...]


Written = list[dict[int, bytes]]
"""For each token, by number of the place: its conv row, or the temporal state after it."""


Read = dict[int, tuple[bytes, ...]]
"""States that a forward has read for one request: by number of the place, the conv rows of its window, or its temporal state alone."""


class Model(Protocol):
    """Computes states, and the token that follows each; 0 where none is asked for."""

    def right(self, place: StatePlace, prefix: int) -> bytes | None:
        """The temporal state after the prefix, or the conv row of its last token; None where that is not known."""
        ...

    def run(
        self, read: Read, tokens: Sequence[int], prefixes: Sequence[int]
    ) -> tuple[Written, list[int]]: ...


@dataclass(eq=False)
class Fingerprints:
    """States that say which prefix they stand for, layer by layer and element by element.

    Those of the empty prefix are zeros, which is what a model starts from.
    """

    places: Sequence[StatePlace]
    _known: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def right(self, place: StatePlace, prefix: int) -> bytes:
        key = place.number, prefix
        if key not in self._known:
            size = place.row_bytes if place.window else place.array.shape[1]
            text = f"{place.number} {prefix}".encode()
            self._known[key] = shake_128(text).digest(size) if prefix else bytes(size)
        return self._known[key]

    def meaning(self, place: StatePlace, found: bytes) -> int | None:
        """The prefix whose bytes these are, at this place."""
        known = ((key[1], contents) for key, contents in self._known.items() if key[0] == place.number)
        return next((prefix for prefix, contents in known if prefix and contents == found), None)

    def run(
        self,
        read: Read,  # noqa: ARG002 - what was read has been compared already
        tokens: Sequence[int],
        prefixes: Sequence[int],
    ) -> tuple[Written, list[int]]:
        written = [{place.number: self.right(place, prefix) for place in self.places} for prefix in prefixes]
        return written, [0] * len(tokens)


@dataclass(eq=False)
class Recurrences:
    """A real recurrence: what it reads is all that it knows of the past."""

    places: Sequence[StatePlace]
    recurrent: Recurrent

    def right(self, place: StatePlace, prefix: int) -> bytes | None:  # noqa: ARG002 - only the tokens tell
        return None

    def run(
        self,
        read: Read,
        tokens: Sequence[int],
        prefixes: Sequence[int],  # noqa: ARG002 - a real model does not know them
    ) -> tuple[Written, list[int]]:
        layers: dict[int, list[StatePlace]] = {}
        for place in self.places:
            layers.setdefault(place.layer, []).append(place)
        states = tuple(
            LayerState(
                tuple(read[place.number] for place in layers[layer] if place.window),
                tuple(read[place.number][0] for place in layers[layer] if not place.window),
            )
            for layer in sorted(layers)
        )
        written, following = [], []
        for token in tokens:
            states, after = self.recurrent.advance(states, token)
            written.append(self.by_place(states))
            following.append(after)
        return written, following

    def by_place(self, states: Sequence[LayerState]) -> dict[int, bytes]:
        """The newest row of each window, and each temporal state, by number of the place."""
        found: dict[int, bytes] = {}
        parts = {number: (iter(state.windows), iter(state.temporal)) for number, state in enumerate(states)}
        for place in self.places:
            windows, temporal = parts[place.layer]
            found[place.number] = next(windows)[-1] if place.window else next(temporal)
        return found
