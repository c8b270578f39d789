"""Rows of a prefill with boundaries, and operations of an allocator of slots."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from oracle.situations import tracking as situations
from properties.strategies.situations import NamedSituations, noted
from statecheck.case.values import Call, call


@dataclass(frozen=True)
class PrefillRows(NamedSituations):
    """Rows of a prefill, each with its tokens in the batch, those computed before, and the boundary whose state it keeps."""

    rows: tuple[tuple[int, int, int | None], ...]
    chunk_size: int
    flat: bool

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(tokens for tokens, _, _ in self.rows)

    def kept_states(self) -> Call:
        return call(
            "TrackingPlan.kept_states",
            boundaries=tuple(boundary for _, _, boundary in self.rows),
            tokens=self.tokens,
            prefixes=tuple(prefix for _, prefix, _ in self.rows),
            chunk_size=self.chunk_size,
            flat=self.flat,
        )

    def logical_chunks(self) -> Call:
        return call("TrackingPlan.logical_chunks", tokens=self.tokens, chunk_size=self.chunk_size)

    def conditions(self) -> dict[str, bool]:
        return {
            situations.LAST.name: any(tokens == boundary for tokens, _, boundary in self.rows),
            situations.NOT_KEPT.name: any(boundary is None for _, _, boundary in self.rows),
            "chunks of the batch": self.flat,
            "tokens were computed before": any(prefix for _, prefix, _ in self.rows),
        }


@st.composite
def prefill_rows(draw: st.DrawFn) -> PrefillRows:
    """Rows of at least one token."""
    chunk_size = draw(st.sampled_from((4, 2, 3, 8)))

    def row(tokens: int, prefix: int, chunks: int | None) -> tuple[int, int, int | None]:
        return tokens, prefix, None if chunks is None else min(chunks, tokens // chunk_size) * chunk_size

    chosen = st.builds(row, st.integers(1, 3 * chunk_size), st.integers(0, 9), st.none() | st.integers(0, 3))
    return noted(
        PrefillRows(tuple(draw(st.lists(chosen, min_size=1, max_size=5))), chunk_size, draw(st.booleans()))
    )


@st.composite
def slot_operations(draw: st.DrawFn) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Slots of an allocator, and what is asked of it: allocations, giving back one of them, clearing, and how many are left."""
    size = draw(st.integers(1, 6))
    kinds = draw(st.lists(st.sampled_from(("alloc", "alloc", "free", "left", "group", "clear")), max_size=12))
    operations: list[tuple[str, int]] = []
    held: list[int] = []
    for kind in kinds:
        match kind:
            case "alloc":
                held.append(len(operations))
                operations.append(("alloc", draw(st.integers(1, 3))))
            case "free" if held:
                operations.append(("free", held.pop(draw(st.integers(0, len(held) - 1)))))
            case "group":
                # Slots of a group are taken beforehand, and what is left of them is given back at its end.
                operations.append(("begin", draw(st.integers(0, 3))))
                for _ in range(draw(st.integers(0, 3))):
                    held.append(len(operations))
                    operations.append(("alloc", 1))
                operations.append(("end", 0))
            case "clear":
                held.clear()
                operations.append(("clear", 0))
            case _:
                operations.append(("left", 0))
    return size, (*operations, ("left", 0))
