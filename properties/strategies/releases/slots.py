"""Slots of states: pools with room between their slots, rows, drafts and boundaries; rows of a prefill; operations of an allocator; prompts, tables and pages."""

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
    """The inputs that a step leaves of a convolution: one row of all drafts, of which each draft's window is a part."""

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
            Pool(f"conv{at}", (channels, self.width), conv, self.layers, self.slots, self.gap)
            for at, channels in enumerate(self.channels)
        )
        return (*convs, Pool("temporal", self.temporal, temporal, self.layers, self.slots, self.gap))

    @cached_property
    def steps(self) -> tuple[Windows | Pool, ...]:
        rows = len(self.rows)
        windows = (
            Windows(f"windows{at}", channels, self.width, self.dtypes[0], self.layers, rows, self.num_drafts)
            for at, channels in enumerate(self.channels)
        )
        return (
            *windows,
            Pool("states", (self.num_drafts, *self.temporal), self.dtypes[1], self.layers, rows),
        )

    @property
    def conv(self) -> tuple[View, ...]:
        return tuple(pool.view for pool in self.pools[:-1])

    def lets(self, *parts: Pool | Windows) -> list[Step]:
        return [part.let(self.seed) for part in parts]

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
            windows=tuple(windows.view for windows in self.steps[:-1]),
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
    return tuple(pool.name for pool in pools)


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


Operations = tuple[tuple[str, int], ...]


@st.composite
def slot_operations(draw: st.DrawFn, *more: str) -> tuple[int, Operations]:
    """Slots of an allocator, and what is asked of it: allocations, giving back one of them or a part of it, clearing, and how many are left; and `more`."""
    size = draw(st.integers(1, 6))
    kinds = ("alloc", "alloc", *more, "free", "part", "left", "group", "clear")
    operations: list[tuple[str, int]] = []
    held: dict[int, int] = {}
    chosen = draw(st.lists(st.sampled_from(kinds), max_size=11))
    if more:  # The last one needs nothing before it: each example has what its property is about.
        chosen.insert(draw(st.integers(0, len(chosen))), more[-1])
    for kind in chosen:
        match kind:
            case "alloc":
                held[len(operations)] = draw(st.integers(1, 3))
                operations.append(("alloc", held[len(operations)]))
            case "free" if held:
                operations.append(("free", draw(st.sampled_from(sorted(held)))))
                del held[operations[-1][1]]
            case "part" if several := [allocation for allocation, slots in held.items() if slots > 1]:
                operations.append(("part", draw(st.sampled_from(several))))
                held[operations[-1][1]] -= 1
            case "share" if held:
                operations.append(("share", draw(st.sampled_from(sorted(held)))))
                held[len(operations) - 1] = held[operations[-1][1]]
            case "prefix":
                # Two requests own the same slots; the first gives back a part of them, and the second all.
                owner, slots = len(operations), draw(st.integers(2, 3))
                operations += [("alloc", slots), ("share", owner), ("part", owner), ("free", owner + 1)]
                held[owner] = slots - 1
            case "admit":
                operations.append(("admit", draw(st.integers(0, 3))))
            case "group":
                # Slots of a group are taken beforehand, and what is left of them is given back at its end.
                operations.append(("begin", draw(st.integers(0, 3))))
                for _ in range(draw(st.integers(0, 3))):
                    held[len(operations)] = 1
                    operations.append(("alloc", 1))
                operations.append(("end", 0))
            case "clear":
                held.clear()
                operations.append(("clear", 0))
            case _:
                operations.append(("left", 0))
    return size, (*operations, ("left", 0))


@dataclass(frozen=True)
class Prompt:
    """A prompt that is computed from a hit on, and the tokens that its steps have room for."""

    num_tokens: int
    block_size: int
    interval: int
    num_computed: int = 0
    budgets: tuple[int, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        return {"num_tokens": self.num_tokens, "block_size": self.block_size, "interval": self.interval}

    def snapshot_points(self) -> Call:
        return call("TrackingPlan.snapshot_points", **self.sizes)

    def admit_tokens(self) -> Call:
        return call(
            "TrackingPlan.admit_tokens", num_computed=self.num_computed, **self.sizes, budgets=self.budgets
        )


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """Prompts of some blocks, and the interval of boundaries at which a state is kept."""
    block_size = draw(st.sampled_from((4, 2, 1, 3)))
    interval = block_size * draw(_FEW)
    num_tokens = draw(st.integers(1, 4 * interval + 1))
    hit = draw(st.integers(0, (num_tokens - 1) // interval)) * interval
    budgets = draw(st.lists(st.integers(1, 2 * interval + 1), min_size=1, max_size=8))
    return Prompt(num_tokens, block_size, interval, hit, tuple(budgets))


@dataclass(frozen=True)
class TwoTables:
    """The tables of a request's states in two engines: a block in each column from the first that is left up to the running one, and those of drafts."""

    num_computed: int
    block_size: int
    drafts: tuple[int, int]
    left: int = 1
    order: int = 0

    def call(self) -> Call:
        running = max(self.num_computed - 1, 0) // self.block_size
        nulls = max(0, running + 1 - self.left)
        tables = []
        for side, drafts in enumerate(self.drafts):
            blocks = [10 * side + 1 + number for number in range(running + 1 - nulls + drafts)]
            turn = self.order % len(blocks)
            tables.append((*[0] * nulls, *blocks[turn:], *blocks[:turn]))
        sizes = {"num_computed": self.num_computed, "block_size": self.block_size}
        return call("TrackingPlan.pair_blocks", source=tables[0], target=tables[1], **sizes)


def two_tables() -> st.SearchStrategy[TwoTables]:
    """Computed tokens in one to some blocks, and drafts in either engine."""
    drafts = st.tuples(st.integers(0, 3), st.integers(0, 3)) | st.just((2, 2))
    return st.builds(
        TwoTables,
        st.integers(1, 13),
        st.sampled_from((4, 16, 1, 2)),
        drafts,
        st.integers(1, 4),
        st.integers(0, 3),
    )


@dataclass(frozen=True)
class Pages:
    """Layers of pages, and those that are copied: of states with a convolution at the start of each page, or of keys and values in pages of the kernel's size.

    Args:
        layers: whether a layer has states; the kernel's tokens in a page of keys and values, or the elements of the state behind the convolution; bytes of padding.
        moves: of each layer, a source page and a target page.
    """

    layers: tuple[tuple[bool, int, int], ...]
    moves: tuple[tuple[int, int], ...]
    tokens: int = 4
    blocks: int = 4
    seed: int = 0

    def page(self, layer: int) -> int:
        """Bytes of a page: states take them in units of both a key and a value of each token, so that pages of all layers may be looked at as these."""
        has_states, size, spare = self.layers[layer]
        unit = 2 * self.tokens * ITEM_SIZES["bfloat16"]
        return (-(-(8 + 4 * size) // unit) + spare) * unit if has_states else 2 * unit

    def _views(self, layer: int) -> tuple[View, ...]:
        (has_states, size, _), name, page = self.layers[layer], f"layer{layer}", self.page(layer)
        if not has_states:
            shape = (self.blocks * self.tokens // size, 2, size, 1, 2)
            return (View(name, "bfloat16", shape),)
        return (
            View(name, "bfloat16", (self.blocks, 2, 2), (page // 2, 2, 1)),
            View(name, "float32", (self.blocks, size), (page // 4, 1), 2),
        )

    def steps(self) -> list[Step]:
        layers = [
            ("states" if has_states else "attention", self._views(layer), self.tokens, self.page(layer))
            for layer, (has_states, _, _) in enumerate(self.layers)
        ]
        sizes = [self.page(layer) * self.blocks for layer in range(len(layers))]
        names = tuple(f"layer{layer}" for layer in range(len(layers)))
        lets: list[Step] = [
            Let(name, Tensor("uint8", (size,), pattern(self.seed, name, size)))
            for name, size in zip(names, sizes, strict=True)
        ]
        made = call(
            "StateSlots.copy_pages",
            layers=layers,
            sources=[[source] for source, _ in self.moves],
            targets=[[target] for _, target in self.moves],
            observes=names,
        )
        return [*lets, made]


@st.composite
def pages(draw: st.DrawFn) -> Pages:
    """Layers of which each has blocks of its own that move."""
    states = st.tuples(st.just(True), st.integers(1, 6), st.integers(0, 1))
    attention = st.tuples(st.just(False), st.sampled_from((4, 2, 1)), st.just(0))
    layers = draw(st.lists(states | attention, min_size=1, max_size=3))
    move = st.permutations(range(4)).map(lambda order: (order[0], order[1]))
    moves = draw(st.tuples(*[move for _ in layers]))
    return Pages(tuple(layers), moves, seed=draw(st.integers(0, 3)))
