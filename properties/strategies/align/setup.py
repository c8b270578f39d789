"""Models in align mode: the states that layers keep in each block, groups of layers that share a block table, and what is drawn of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod

from hypothesis import strategies as st

from properties.strategies.bounds import MOST_DRAFTS, drafts
from properties.strategies.layout import environment
from statecheck.case.values import (
    BufferMaker,
    Call,
    Device,
    DType,
    Function,
    Name,
    Record,
    Value,
    View,
    record,
)

DTYPES = {"uint8": 1, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int8": 1, "float64": 8}


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
        """The unit of page sizes, so that blocks are whole elements apart."""
        return max(state.itemsize for state in self.states)


def rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


CONTEXT = "MambaSpecDecodeGPUContext"
KINDS = (("temporal",), ("conv",), ("conv", "temporal"), ("conv", "conv", "conv", "temporal"))
COPY_FUNCTIONS = {"conv": "get_conv_copy_spec", "temporal": "get_temporal_copy_spec"}
LARGE = 1025
"""Bytes of a state that no more than one state of a model has, since a CPU copies them in many small steps: one more than the
documented tile of a copy."""
MOST_BYTES, MOST_COPIES = 2400, 24
"""Most bytes and copies of a launch for more than one request; a model with more has one group of one layer."""


def column_of(num_tokens: int, block_size: int) -> int:
    """The block-table column of the last of `num_tokens` tokens, -1 where there is none."""
    return -(-num_tokens // block_size) - 1


@dataclass(frozen=True)
class Setup:
    """A model in align mode. `kinds` has a copy function each; a group's layers keep all of these states or the first.

    With `shared`, the n-th layers of all groups use one pool. With `attention`, a group of another kind comes first.
    """

    groups: tuple[Group, ...]
    kinds: tuple[str, ...] = ("temporal",)
    block_size: int = 1
    num_spec: int = 0
    layout: str = "SD"
    shared: bool = False
    attention: bool = False

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.layout)

    @property
    def group_ids(self) -> tuple[int, ...]:
        """Where the groups stand among all groups of the cache."""
        return tuple(range(self.attention, self.attention + len(self.groups)))

    @property
    def copy_functions(self) -> tuple[Function, ...]:
        return tuple(Function(COPY_FUNCTIONS[kind]) for kind in self.kinds)

    @cached_property
    def pool_names(self) -> tuple[tuple[str, ...], ...]:
        """The pool of each layer, by group."""
        first, found = 0, []
        for group in self.groups:
            found.append(tuple(f"pool{first + layer}" for layer in range(group.layers)))
            first += 0 if self.shared else group.layers
        return tuple(found)

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of all pools."""
        return tuple(dict.fromkeys(name for names in self.pool_names for name in names))

    def pages(self) -> dict[str, int]:
        """Bytes from one block to the next, by pool: room for whichever group needs most."""
        return self._pages

    @cached_property
    def _pages(self) -> dict[str, int]:
        unit = max(group.itemsize for group in self.groups)
        pages: dict[str, int] = {}
        for group, names in zip(self.groups, self.pool_names, strict=True):
            own = rounded_up(group.end + group.padding, unit if self.shared else group.itemsize)
            pages.update({name: max(pages.get(name, 0), own) for name in names})
        return pages

    def named_layers(self) -> Iterator[tuple[str, int, str]]:
        """Layer name, group and pool of every layer, in the order of the flat metadata."""
        number = 0
        for group, names in enumerate(self.pool_names):
            for pool in names:
                yield f"layer{number}", group, pool
                number += 1

    def views(self, group: int, pool: str, num_blocks: int) -> list[View]:
        """The states of a layer of `group` that uses `pool`."""
        page = self.pages()[pool]
        kept = self.groups[group]
        return [
            View(
                pool,
                state.dtype,
                (num_blocks, *state.shape),
                (page // state.itemsize, *_dense(state.shape)),
                offset // state.itemsize,
            )
            for state, offset in zip(kept.states, kept.offsets, strict=True)
        ]

    def config(self, num_blocks: int) -> Record:
        specs = [self._spec(group) for group in range(len(self.groups))]
        if self.attention:
            other = record("FullAttentionSpec", block_size=16)
            specs.insert(0, record("KVCacheGroupSpec", layer_names=["attention"], kv_cache_spec=other))
        return record("KVCacheConfig", num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=specs)

    def _spec(self, group: int) -> Record:
        kept, pages = self.groups[group], self.pages()
        names = [name for name, owner, _ in self.named_layers() if owner == group]
        page, own = pages[self.pool_names[group][0]], sum(state.nbytes for state in kept.states)
        spec = record(
            "MambaSpec",
            block_size=self.block_size,
            shapes=tuple(state.shape for state in kept.states),
            dtypes=tuple(DType(state.dtype) for state in kept.states),
            page_size_padded=page if page > own else None,
            mamba_type="mamba2",
            mamba_cache_mode="align",
            num_speculative_blocks=self.num_spec,
        )
        return record("KVCacheGroupSpec", layer_names=names, kv_cache_spec=spec)

    def forward_context(self, num_blocks: int) -> dict[str, Value]:
        return {
            name: record("Layer", kv_cache=self.views(group, pool, num_blocks))
            for name, group, pool in self.named_layers()
        }

    def call(self, function: str, /, **keywords: Value) -> Call:
        """A call with keywords under the setup's layout."""
        return Call(function, (), tuple(keywords.items()), tuple(self.environment.items()))

    def create(self, max_num_reqs: int) -> Call:
        created = self.call(
            f"{CONTEXT}.create",
            max_num_reqs=max_num_reqs,
            kv_cache_config=Name("config"),
            num_state_types=len(self.kinds),
            device=Device(),
            make_buffer=BufferMaker(),
        )
        return replace(created, bind="ctx")

    def initialize(self, **changes: Value) -> Call:
        """Bind the context `ctx` to the layers and tables that are named already."""
        arguments: dict[str, Value] = {
            "self": Name("ctx"),
            "kv_cache_config": Name("config"),
            "forward_context": Name("layers"),
            "mamba_state_copy_funcs": self.copy_functions,
            "block_tables": [Name(f"table{group}") for group in range(len(self.groups))],
        }
        bound = self.call(f"{CONTEXT}.initialize_from_forward_context", **arguments | changes)
        return replace(bound, updates="ctx")

    @property
    def is_large(self) -> bool:
        return any(state.nbytes > LARGE for group in self.groups for state in group.states)

    @property
    def num_copies(self) -> int:
        """States of all layers, each of which a request may have copied by a launch."""
        return sum(group.layers * len(group.states) for group in self.groups)

    @property
    def num_bytes(self) -> int:
        """Bytes of these states."""
        return sum(group.layers * state.nbytes for group in self.groups for state in group.states)

    @property
    def is_costly(self) -> bool:
        """Whether to copy the states of one request takes more than a moment on a CPU."""
        return self.num_bytes > MOST_BYTES

    def most_requests(self, most: int) -> int:
        """How many requests, up to `most`, a launch may copy the states of in a moment on a CPU."""
        return max(1, min(most, MOST_BYTES // self.num_bytes, MOST_COPIES // self.num_copies))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


WIDE = (0,) * 15 + (304, 301, 17003)
"""Bytes of a block that is wider than a few threads, or than a program copies at a time."""
TILES = (1024, 1023, 1025)
"""Bytes of a block as long as the documented tile of a copy, and one byte beside it."""
FEW_DRAFTS = 3
"""Drafts of most models: with three, accepted tokens can end before a boundary, on it, and behind it by one and by two."""
WIDE_BLOCKS = (1600, 2**23 + 1, 2**28 - 2**20)
"""Tokens of a block: as in the field, more than half of what a float32 counts, and so many that four requests of two blocks each
have just fewer tokens than an int32 counts."""
LARGE_BY_CHANNEL = 4250
"""Bytes of a large conv state whose rows are moved channel by channel, in several times as many steps."""


def setups(
    *,
    layouts: Sequence[str] = ("SD", "DS"),
    kinds: Sequence[tuple[str, ...]] = KINDS,
    min_spec: int = 0,
    plain: bool = False,
    large: bool = True,
    most_spec: int = MOST_DRAFTS,
) -> st.SearchStrategy[Setup]:
    """Models inside the documented domain.

    Args:
        plain: one layer with states of one byte per element.
        large: a state may be larger than what a program copies at a time, see `LARGE`.
        most_spec: drafts at most, where each takes a page of gigabytes, or launches in every order.
    """
    return _setups(tuple(layouts), tuple(kinds), min_spec, most_spec, plain, large)


@st.composite
def _setups(
    draw: st.DrawFn,
    layouts: tuple[str, ...],
    kinds: tuple[tuple[str, ...], ...],
    min_spec: int,
    most_spec: int,
    plain: bool,
    large: bool,
) -> Setup:
    layout, chosen = draw(_one_of(layouts)), draw(_one_of(kinds))
    spec = draw(_drafts(min_spec, most_spec))
    room = draw(_ROOM)
    block_size = room if room in WIDE_BLOCKS else 1 + spec + room
    first = draw(_groups(layout, spec, chosen, plain))
    if plain:
        return Setup((first,), chosen, block_size, spec, layout)
    others = draw(_OTHERS)
    shared, attention = draw(_SHARED), draw(_ATTENTION)
    first = _affordable(first, layout, large=large)
    groups = (first, *(_other(first, difference) for difference in others))
    found = Setup(groups, chosen, block_size, spec, layout, shared and len(groups) > 1, attention)
    if not found.is_costly:
        return found
    return replace(found, groups=(replace(first, layers=1),), shared=False)


OTHERS = ("alike", "fewer states", "more padding", "wider states", "other types", "another layer")
"""How a second group can differ from the first."""


# Strategies are made once, because making them takes longer than drawing from them.
_OTHERS = st.lists(st.sampled_from(OTHERS), max_size=1)
_ROOM = st.sampled_from((*(0, 1, 3, 4) * 6, *WIDE_BLOCKS))
_SHARED = st.booleans()
_ATTENTION = st.sampled_from((False, False, False, True))
_LAYERS = st.sampled_from((1, 1, 2))
_LEADS = st.sampled_from((0, 0, 0, 1, 5))
_PADDINGS = st.sampled_from((0, 0, 1, 7, 64))
_ROWS, _CHANNELS = st.integers(1, 3), st.integers(1, 6)
_DIMS = st.sampled_from((2, 1, 3))
_WIDE = st.sampled_from((*WIDE[:-3] * 3, *WIDE[-3:] * 3, *TILES))
_one_of = cache(st.sampled_from)


@cache
def _drafts(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most) if most <= FEW_DRAFTS else drafts(least, few=FEW_DRAFTS, one_in=10)


@cache
def _counts(most: int) -> st.SearchStrategy[int]:
    """How many of its states a group has: all of them, or the first."""
    return st.sampled_from((most, most, 1))


def _affordable(group: Group, layout: str, *, large: bool) -> Group:
    """The group with one large state at most, or none; others become as wide as a few threads."""
    too_large = [number for number, state in enumerate(group.states) if state.nbytes > LARGE]
    first = too_large[0] if large and too_large else -1

    def resized(number: int, state: Kept) -> Kept:
        if number not in too_large:
            return state
        if number != first:
            return _resized(state, layout, WIDE[-3])
        by_channel = state.kind == "conv" and layout == "DS"
        return _resized(state, layout, LARGE_BY_CHANNEL) if by_channel else state

    return replace(group, states=tuple(resized(*pair) for pair in enumerate(group.states)))


def _resized(state: Kept, layout: str, nbytes: int) -> Kept:
    """A wide state with at most so many bytes, but more channels than a few threads have lanes."""
    if state.kind == "temporal":
        return replace(state, shape=(1, 1, nbytes // state.itemsize))
    rows = state.shape[0] if layout == "SD" else state.shape[1]
    shape = (rows, max(43, nbytes // rows // state.itemsize))
    return replace(state, shape=shape if layout == "SD" else shape[::-1])


def _other(group: Group, difference: str) -> Group:
    """A group beside `group`; it is made from it so that what both have shrinks in one place."""
    match difference:
        case "fewer states":
            return replace(group, states=group.states[:1])
        case "more padding":
            return replace(group, padding=group.padding + 3)
        case "wider states":
            wider = ((*state.shape[:-1], state.shape[-1] + 1) for state in group.states)
            pairs = zip(group.states, wider, strict=True)
            return replace(group, states=tuple(replace(state, shape=shape) for state, shape in pairs))
        case "other types":
            types = dict(zip(DTYPES, (*list(DTYPES)[1:], "uint8"), strict=True))
            return replace(
                group, states=tuple(replace(state, dtype=types[state.dtype]) for state in group.states)
            )
        case "another layer":
            return replace(group, layers=group.layers + 1)
    return group


@cache
@st.composite
def _groups(draw: st.DrawFn, layout: str, spec: int, kinds: tuple[str, ...], plain: bool) -> Group:
    count = len(kinds) if plain else draw(_counts(len(kinds)))
    dtypes = ("uint8",) if plain else tuple(DTYPES)
    states = tuple(draw(_kept(kind, layout, spec, count, dtypes, plain)) for kind in kinds[:count])
    if plain:
        return Group(states)
    return Group(states, layers=draw(_LAYERS), lead=draw(_LEADS), padding=draw(_PADDINGS))


@cache
@st.composite
def _kept(
    draw: st.DrawFn, kind: str, layout: str, spec: int, count: int, dtypes: tuple[str, ...], plain: bool
) -> Kept:
    # The same draws for both kinds, so that one can shrink to the other.
    rows, channels, dtype = draw(_ROWS), draw(_CHANNELS), draw(_one_of(dtypes))
    dims = draw(_DIMS)
    wide = 0 if plain else draw(_WIDE)
    if kind == "conv":
        channels = max(43, wide // (spec + rows) // DTYPES[dtype]) if wide else channels
        shape = (spec + rows, channels)
        return Kept(kind, shape if layout == "SD" else shape[::-1], dtype)
    if wide:
        return Kept(kind, (1, 1, wide // DTYPES[dtype]), dtype)
    # Where there is no other state, two dimensions would look like those of a conv state.
    block = {1: (channels,), 2: (rows, channels), 3: (1, rows, channels)}[3 if count == 1 else dims]
    return Kept(kind, block, dtype)
