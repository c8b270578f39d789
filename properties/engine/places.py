"""The host's picture of the pools: every state of every layer as an array that shares memory with its pool's bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from properties.engine.world import NEVER, World

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class StatePlace:
    """A state of a layer: `number` among all, `window` = K - 1 conv rows, or 0 of a temporal state.

    `array` has the bytes of every block: [num_blocks, rows, channels, item size] of a conv state whichever way round it
    is stored, [num_blocks, bytes] of a temporal state.
    """

    number: int
    layer: int
    group: int
    pool: str
    state: int
    window: int
    array: Bytes
    label: str

    @property
    def row_bytes(self) -> int:
        """Bytes of a conv row."""
        return int(self.array.shape[-2] * self.array.shape[-1])

    def temporal(self, block: int) -> bytes:
        return self.array[block].tobytes()

    def rows(self, block: int, first: int, count: int) -> tuple[bytes, ...]:
        """Conv rows; fewer where the state has no more."""
        rows = self.array[block, first : first + count]
        return tuple(row.tobytes() for row in rows)

    def write(self, block: int, contents: bytes) -> None:
        """The temporal state of a block."""
        self.array[block] = np.frombuffer(contents, np.uint8)

    def write_rows(self, block: int, rows: tuple[bytes, ...] | list[bytes]) -> None:
        """Conv rows, from the first on."""
        for number, row in enumerate(rows):
            self.array[block, number] = np.frombuffer(row, np.uint8).reshape(self.array.shape[2:])


@dataclass(eq=False)
class Mirror:
    """The bytes of all pools as they were seen or written last."""

    world: World
    pools: dict[str, Bytes] = field(init=False)
    places: list[StatePlace] = field(init=False)

    def __post_init__(self) -> None:
        pages = self.world.setup.pages()
        self.pages = pages
        self.pools = {
            name: np.full(page * self.world.num_blocks, NEVER, np.uint8) for name, page in pages.items()
        }
        self.places = list(self._places())
        self._masks = {place.pool: {} for place in self.places}  # type: dict[str, dict[int, Bytes]]
        for place in self.places:
            self._mark(place)

    def _places(self) -> Iterator[StatePlace]:
        number = 0
        for layer, (name, group, pool) in enumerate(self.world.setup.named_layers()):
            kept = self.world.setup.groups[group]
            for index, (state, offset) in enumerate(zip(kept.states, kept.offsets, strict=True)):
                array, window = self._array(pool, offset, state)
                label = f"{name}'s {state.kind} state" if len(kept.states) > 1 else f"{name}'s state"
                yield StatePlace(number, layer, group, pool, index, window, array, label)
                number += 1

    def _array(self, pool: str, offset: int, state: Any) -> tuple[Bytes, int]:
        page, size = self.pages[pool], state.itemsize
        shape: tuple[int, ...] = (state.nbytes,)
        strides: tuple[int, ...] = (1,)
        window = 0
        if state.kind == "conv":
            dim_first = self.world.setup.layout == "DS"
            rows, channels = state.shape[::-1] if dim_first else state.shape
            apart = (size, rows * size) if dim_first else (channels * size, size)
            shape, strides, window = (rows, channels, size), (*apart, 1), rows - self.world.num_spec
        array = np.ndarray(
            (self.world.num_blocks, *shape), np.uint8, self.pools[pool], offset, (page, *strides)
        )
        return array, window

    def _mark(self, place: StatePlace) -> None:
        """Which bytes of a page are states of a group."""
        mask = self._masks[place.pool].setdefault(place.group, np.zeros(self.pages[place.pool], np.bool_))
        kept = self.world.setup.groups[place.group]
        offset = kept.offsets[place.state]
        mask[offset : offset + kept.states[place.state].nbytes] = True

    def of_group(self, group: int) -> list[StatePlace]:
        return [place for place in self.places if place.group == group]

    def poison(self, block: int) -> None:
        """The block's pages, of every group."""
        for name, page in self.pages.items():
            self.pools[name][block * page : (block + 1) * page] = NEVER

    def contents(self) -> dict[str, bytes]:
        return {name: pool.tobytes() for name, pool in self.pools.items()}

    def seen(self, pools: Mapping[str, bytes]) -> dict[tuple[str, int], list[int]]:
        """Take over what the pools hold now; the bytes that are new, by pool and block, as places in the page."""
        changed: dict[tuple[str, int], list[int]] = {}
        for name, contents in pools.items():
            now = np.frombuffer(contents, np.uint8)
            for at in np.flatnonzero(now != self.pools[name]).tolist():
                changed.setdefault((name, at // self.pages[name]), []).append(at % self.pages[name])
            self.pools[name][:] = now
        return changed

    def offset(self, place: StatePlace, block: int, row: int | None, byte: int) -> int:
        """Where in its pool a byte of a state lies; of a conv state, a byte of the row."""
        index = (block, byte) if row is None else (block, row, *divmod(byte, place.array.shape[-1]))
        first = place.array.ctypes.data - self.pools[place.pool].ctypes.data
        return first + sum(at * stride for at, stride in zip(index, place.array.strides, strict=True))

    def is_state(self, pool: str, group: int, byte: int) -> bool:
        """Whether a byte of a page belongs to a state of the group."""
        mask = self._masks[pool].get(group)
        return mask is not None and bool(mask[byte])
