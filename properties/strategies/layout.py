"""States as a runner lays them out, and the copies that align mode asks for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from hypothesis import strategies as st

from properties.strategies.bounds import MOST_DRAFTS, PAGE_BYTES, drafts
from statecheck.case.values import Call, Tensor, call

LAYOUT_VARIABLE = "VLLM_SSM_CONV_STATE_LAYOUT"
LAYOUTS = ("SD", "DS")
DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
ONE_BYTE_DTYPES = DTYPES[3:]
HUGE_STRIDE = PAGE_BYTES + 2**20
"""Elements between blocks such that no 32-bit number holds the address of block 1; for dtypes of one byte."""


def environment(layout: str) -> dict[str, str]:
    """The variable that selects `layout`; SD is also what an unset variable means."""
    return {LAYOUT_VARIABLE: layout}


def layouts() -> st.SearchStrategy[str]:
    """The two layouts, SD first."""
    return st.sampled_from(LAYOUTS)


@dataclass(frozen=True)
class PaddedState:
    """A state of a layer: `padding` elements lie between the end of a block's data and the next block.

    `offset` elements of each page lie before the data, where the layer's other states are.
    """

    num_blocks: int
    block_shape: tuple[int, ...]
    dtype: str = "float32"
    padding: int = 0
    offset: int = 0

    def tensor(self) -> Tensor:
        inner = tuple(prod(self.block_shape[axis + 1 :]) for axis in range(len(self.block_shape)))
        stride = prod(self.block_shape) + self.padding
        shape = (self.num_blocks, *self.block_shape)
        return Tensor(self.dtype, shape, None, (stride, *inner), self.offset)


@dataclass(frozen=True)
class Copy:
    """A copy request: the request's blocks, the column to start from, the accepted tokens, `num_spec` of them drafts."""

    state: PaddedState
    block_ids: tuple[int, ...]
    cur_block_idx: int = 0
    num_accepted_tokens: int = 1
    num_spec: int = 0
    layout: str = "SD"

    def call(self, function: str, **changes: object) -> Call:
        arguments = {
            "state": self.state.tensor(),
            "block_ids": list(self.block_ids),
            "cur_block_idx": self.cur_block_idx,
            "num_accepted_tokens": self.num_accepted_tokens,
        }
        return call(function, environment=environment(self.layout), **arguments | changes)


def conv_copies(*, drawn_layouts: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[Copy]:
    """Copies out of conv states whose rows have room for the drafts."""
    return _copies(layouts() if drawn_layouts is None else drawn_layouts, _conv_block)


def temporal_copies() -> st.SearchStrategy[Copy]:
    """Copies out of temporal states of one to three dimensions within a block, which have no layout to heed."""
    return _copies(layouts(), lambda draw, layout, spec: tuple(draw(_DIMS)))


# Strategies are made once for each of the few numbers that they depend on: making them takes longer than drawing.
_SIZES = st.integers(1, 5)
_DRAFTS = drafts(one_in=8)
_NULLS = st.integers(0, 2)
_ROWS = st.integers(1, 3)
_DTYPES = st.sampled_from(DTYPES)
_PADDINGS = st.sampled_from((0, 0, 1, 7, 64))
_ONE_BYTE_PADDINGS = st.sampled_from((0, 0, 1, 7, 64, HUGE_STRIDE, HUGE_STRIDE))
_DIMS = st.lists(_SIZES, min_size=1, max_size=3)


@cache
def _up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


@cache
def _offsets(padding: int) -> st.SearchStrategy[int]:
    return st.sampled_from((0, min(padding, 7)))


@cache
def _permutations(num_blocks: int) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(1, num_blocks))


def _conv_block(draw: st.DrawFn, layout: str, spec: int) -> tuple[int, ...]:
    rows, channels = draw(_ROWS) + spec, draw(_SIZES)
    return (rows, channels) if layout == "SD" else (channels, rows)


@st.composite
def _copies(draw: st.DrawFn, drawn_layouts, block) -> Copy:  # type: ignore[no-untyped-def]
    layout, accepted, rejected = draw(drawn_layouts), draw(_DRAFTS), draw(_DRAFTS)
    dtype = draw(_DTYPES)
    padding = draw(_ONE_BYTE_PADDINGS if dtype in ONE_BYTE_DTYPES else _PADDINGS)
    most = 8
    if padding >= HUGE_STRIDE:
        # Three blocks take four gigabytes; more of them would ask for a larger GPU.
        accepted, rejected, most = min(accepted, 1), 0, 1
    spec = accepted + min(rejected, MOST_DRAFTS - accepted)
    state = PaddedState(
        num_blocks=1 + spec + draw(_up_to(most)),
        block_shape=block(draw, layout, spec),
        dtype=dtype,
        padding=padding,
        offset=draw(_offsets(padding)),
    )
    nulls = draw(_NULLS)
    physical = draw(_permutations(state.num_blocks))[: 1 + spec]
    return Copy(
        state=state,
        block_ids=(*(0,) * nulls, *physical),
        cur_block_idx=nulls,
        num_accepted_tokens=1 + accepted,
        num_spec=spec,
        layout=layout,
    )
