"""Slots of states: pools with room between their slots, rows, drafts and boundaries; rows of a prefill; operations of an allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from hypothesis import strategies as st

from properties.strategies.align.cache import pattern
from properties.strategies.orders import schedules
from statecheck.case.values import ITEM_SIZES, Call, Let, Step, Tensor, View, boolean, call, int32, int64


@dataclass(frozen=True)
class Pool:
    """Memory of a state: so many layers and slots of entries of this shape, with `gap` elements behind each slot."""

    name: str
    entry: tuple[int, ...]
    dtype: str
    layers: int
    slots: int
    gap: int = 0

    @property
    def view(self) -> View:
        inner = tuple(prod(self.entry[axis + 1 :]) for axis in range(len(self.entry)))
        slot = prod(self.entry) + self.gap
        return View(
            self.name, self.dtype, (self.layers, self.slots, *self.entry), (slot * self.slots, slot, *inner)
        )

    def let(self, seed: int) -> Let:
        size = self.layers * self.slots * (prod(self.entry) + self.gap) * ITEM_SIZES[self.dtype]
        return Let(self.name, Tensor("uint8", (size,), pattern(seed, self.name, size)))


@dataclass(frozen=True)
class Windows:
    """What a step leaves of a convolution: one row of inputs of all drafts, of which each draft's window is a part."""

    name: str
    channels: int
    width: int
    dtype: str
    layers: int
    rows: int
    drafts: int

    @property
    def view(self) -> View:
        inputs = self.drafts + self.width - 1
        row = self.channels * inputs
        shape = (self.layers, self.rows, self.drafts, self.channels, self.width)
        return View(self.name, self.dtype, shape, (row * self.rows, row, 1, inputs, 1))

    def let(self, seed: int) -> Let:
        size = (
            self.layers * self.rows * self.channels * (self.drafts + self.width - 1) * ITEM_SIZES[self.dtype]
        )
        return Let(self.name, Tensor("uint8", (size,), pattern(seed, self.name, size)))


@dataclass(frozen=True)
class SlotCopies:
    """Pools of several convolutions and a temporal state, rows with a slot each, and slots that keep states at boundaries.

    Args:
        channels: of each convolution.
        rows: of each, its slot, and the one that keeps its state.
        drafts: of each row, the one whose state is the last accepted, and that at a boundary; negative for none.
    """

    channels: tuple[int, ...]
    width: int
    temporal: tuple[int, ...]
    dtypes: tuple[str, str]
    layers: int
    slots: int
    gap: int
    rows: tuple[tuple[int, int], ...]
    drafts: tuple[tuple[int, int], ...]
    num_drafts: int
    keeps: bool = True
    seed: int = 0
    schedule: str = ""

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        conv, temporal = self.dtypes
        convs = tuple(
            Pool(f"conv{at}", (one, self.width), conv, self.layers, self.slots, self.gap)
            for at, one in enumerate(self.channels)
        )
        return (*convs, Pool("temporal", self.temporal, temporal, self.layers, self.slots, self.gap))

    @cached_property
    def steps(self) -> tuple[Windows | Pool, ...]:
        rows = len(self.rows)
        windows = (
            Windows(f"windows{at}", one, self.width, self.dtypes[0], self.layers, rows, self.num_drafts)
            for at, one in enumerate(self.channels)
        )
        return (
            *windows,
            Pool("states", (self.num_drafts, *self.temporal), self.dtypes[1], self.layers, rows),
        )

    @property
    def conv(self) -> tuple[View, ...]:
        return tuple(one.view for one in self.pools[:-1])

    def lets(self, *parts: Pool | Windows) -> list[Step]:
        return [one.let(self.seed) for one in parts]

    def cleared(self) -> list[Step]:
        pools = self.pools[:-1]
        slots = int64([slot for slot, _ in self.rows])
        made = call(
            "StateSlots.clear", conv=self.conv, slots=slots, observes=_names(pools), schedule=self.schedule
        )
        return [*self.lets(*pools), made]

    def copied(self) -> list[Step]:
        pools = self.pools[:-1]
        made = call(
            "StateSlots.copy",
            conv=self.conv,
            sources=int64([slot for slot, _ in self.rows]),
            targets=int64([kept for _, kept in self.rows]),
            observes=_names(pools),
            schedule=self.schedule,
        )
        return [*self.lets(*pools), made]

    def tracked(self, freed: Sequence[bool]) -> list[Step]:
        """Rows are at a boundary where their second draft is not negative; those of `freed` have no slots any more."""
        pools = (self.pools[0], self.pools[-1])
        gone = [there and at < len(self.rows) for at, there in enumerate(freed)] + [False] * len(self.rows)
        rows = [(-1, -1) if away else row for row, away in zip(self.rows, gone, strict=False)]
        made = call(
            "StateSlots.track",
            conv=pools[0].view,
            temporal=pools[1].view,
            sources=int32([slot for slot, _ in rows]),
            mask=boolean([kept >= 0 for _, kept in self.drafts]),
            targets=int64([kept for _, kept in rows]),
            observes=_names(pools),
            schedule=self.schedule,
        )
        return [*self.lets(*pools), made]

    def scattered(self) -> list[Step]:
        made = call(
            "StateSlots.scatter",
            conv=self.conv,
            windows=tuple(one.view for one in self.steps[:-1]),
            temporal=self.pools[-1].view,
            states=self.steps[-1].view,
            slots=int32([slot for slot, _ in self.rows]),
            drafts=int64([draft for draft, _ in self.drafts]),
            kept_slots=int64([slot for _, slot in self.rows]) if self.keeps else None,
            kept_drafts=int64([draft for _, draft in self.drafts]) if self.keeps else None,
            observes=_names(self.pools),
            schedule=self.schedule,
        )
        return [*self.lets(*self.pools, *self.steps), made]


def _names(pools: Sequence[Pool]) -> tuple[str, ...]:
    return tuple(one.name for one in pools)


_FEW, _TWO = st.integers(1, 3), st.integers(1, 2)


@st.composite
def slot_copies(draw: st.DrawFn) -> SlotCopies:
    """Rows whose slots, and those that keep their states, all differ."""
    rows = draw(st.integers(1, 4))
    slots = 2 * rows + 1 + draw(st.integers(0, 2))
    order = draw(st.permutations(range(1, slots)))
    num_drafts = draw(_FEW)
    drafts = st.tuples(st.integers(-1, num_drafts - 1), st.integers(-1, num_drafts - 1))
    return SlotCopies(
        tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))),
        draw(_FEW),
        tuple(draw(st.lists(_FEW, min_size=1, max_size=3))),
        ("bfloat16", draw(st.sampled_from(("float32", "bfloat16")))),
        draw(_TWO),
        slots,
        draw(st.integers(0, 2)),
        tuple(zip(order[:rows], order[rows : 2 * rows], strict=True)),
        tuple(draw(st.lists(drafts, min_size=rows, max_size=rows))),
        num_drafts,
        draw(st.booleans()),
        draw(st.integers(0, 3)),
        draw(schedules()),
    )


@dataclass(frozen=True)
class AcceptedDrafts:
    """Paths of accepted drafts in trees of `num_drafts` nodes, and how long the rows were before."""

    paths: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    num_drafts: int
    depth: int
    interval: int
    keeps: bool = True

    def call(self) -> Call:
        rows = [
            [row * self.num_drafts + node for node in path] + [-1] * (self.depth - len(path))
            for row, path in enumerate(self.paths)
        ]
        return call(
            "StateSlots.last_accepted",
            accepted=int32(rows),
            counts=int32([len(path) for path in self.paths]),
            lengths=int64(self.lengths) if self.keeps else None,
            drafts=self.num_drafts,
            interval=self.interval,
        )


@st.composite
def accepted_drafts(draw: st.DrawFn) -> AcceptedDrafts:
    """A path goes from the first node to later ones."""
    num_drafts = draw(st.integers(1, 6))
    rows = draw(st.integers(1, 5))
    inner = st.sets(st.integers(1, num_drafts - 1)) if num_drafts > 1 else st.just(set())
    paths = tuple((0, *sorted(draw(inner))) for _ in range(rows))
    depth = max(map(len, paths)) + draw(st.integers(0, 1))
    lengths = tuple(draw(st.lists(st.integers(0, 20), min_size=rows, max_size=rows)))
    return AcceptedDrafts(
        paths, lengths, num_drafts, depth, draw(st.integers(num_drafts, 8)), draw(st.booleans())
    )


@dataclass(frozen=True)
class PaddedRows:
    """Rows of a graph, of which the first `live` are of requests, and the slot of each request."""

    rows: tuple[int, ...]
    slots: tuple[int, ...]
    live: int
    spare: int = 0

    def steps(self) -> list[Step]:
        size = len(self.rows)
        made = call(
            "StateSlots.of_rows",
            rows=View("rows", "int64", (size,)),
            slots=int32(self.slots),
            out=View("out", "int32", (size,)),
            live=self.live,
            observes=("rows", "out"),
        )
        lets: list[Step] = [
            Let("rows", int64([*self.rows, *[7] * self.spare])),
            Let("out", int32([77] * (size + self.spare))),
        ]
        return [*lets, made]


@st.composite
def padded_rows(draw: st.DrawFn) -> PaddedRows:
    """Some rows of some requests."""
    slots = tuple(draw(st.lists(st.integers(0, 50), min_size=1, max_size=6)))
    rows = tuple(draw(st.lists(st.integers(0, len(slots) - 1), min_size=1, max_size=6)))
    return PaddedRows(rows, slots, draw(st.integers(0, len(rows))), draw(st.integers(0, 2)))


@dataclass(frozen=True)
class PrefillRows:
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


@st.composite
def prefill_rows(draw: st.DrawFn) -> PrefillRows:
    """Rows of at least one token."""
    chunk_size = draw(st.sampled_from((4, 2, 3, 8)))

    def row(tokens: int, prefix: int, chunks: int | None) -> tuple[int, int, int | None]:
        return tokens, prefix, None if chunks is None else min(chunks, tokens // chunk_size) * chunk_size

    chosen = st.builds(row, st.integers(1, 3 * chunk_size), st.integers(0, 9), st.none() | st.integers(0, 3))
    return PrefillRows(tuple(draw(st.lists(chosen, min_size=1, max_size=5))), chunk_size, draw(st.booleans()))


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
