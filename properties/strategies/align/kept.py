"""States that layers keep per block, and the groups of layers that share a block table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

DTYPES = {
    "uint8": 1,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "int8": 1,
    "float64": 8,
}


@dataclass(frozen=True)
class Kept:
    """A state that a layer keeps in every block; a conv state's `shape` is the way round that the layout says."""

    kind: str
    shape: tuple[int, ...]
    dtype: str = "uint8"

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype]

    @cached_property
    def nbytes(self) -> int:
        return prod(self.shape) * self.itemsize

    def shifted(self, old: bytes, by: int, layout: str) -> bytes:
        """A conv state of these bytes after its rows have moved by so many towards the first one; the last ones stay."""
        rows, lines = (
            self.shape if layout == "SD" else self.shape[::-1],
            1 if layout == "SD" else self.shape[0],
        )
        line = self.nbytes // lines
        moved = by * (line // rows[0])
        parts = (old[start : start + line] for start in range(0, self.nbytes, line))
        return b"".join(part[moved:] + part[line - moved :] for part in parts)


@dataclass(frozen=True)
class Group:
    """Layers that share a block table. Their pages have `lead` bytes before the states, `padding` bytes behind them."""

    states: tuple[Kept, ...]
    layers: int = 1
    lead: int = 0
    padding: int = 0

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where in a page each state begins: behind the one before it, at a multiple of its item size."""
        found: list[int] = []
        end = self.lead
        for state in self.states:
            found.append(rounded_up(end, state.itemsize))
            end = found[-1] + state.nbytes
        return tuple(found)

    @property
    def end(self) -> int:
        return self.offsets[-1] + self.states[-1].nbytes

    @property
    def itemsize(self) -> int:
        """What a page is a multiple of, so that blocks are whole elements apart."""
        return max(state.itemsize for state in self.states)


def rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
