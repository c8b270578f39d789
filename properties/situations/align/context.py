"""Situations of what is known of a cache before any step."""

from collections.abc import Sequence

from oracle.align.context import (
    CacheGroup,
    StateView,
    TableView,
    as_int64,
    mamba_groups,
    metadata,
    require_conv_shape,
    require_one_boundary,
    require_states,
    require_tables,
)
from oracle.align.memory import StateTensor
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("align.context")

OTHER_GROUP = _declare("a group without recurrent state stands before one with")
OTHER_SHAPES = _declare("mamba groups have states of different shapes")
JUST_A_BLOCK = _declare("a block is just as long as a step of drafts")
JUST_ROWS = _declare("a conv state has just a row for each token of a step")
WIDER_TABLE = _declare("a block table is a part of a wider one")
FEWER_STATES = _declare("a layer has fewer states than copy functions")
UNUSED = _declare("slots that no layer uses describe nothing")
HIGH_BIT = _declare("an address has its highest bit set")


@watches(mamba_groups)
def _groups(_: object, groups: Sequence[CacheGroup]) -> None:
    specs = {index: group.spec for index, group in enumerate(groups) if group.spec is not None}
    OTHER_GROUP.reached_if([*specs] != [*range(len(specs))])
    OTHER_SHAPES.reached_if(len({spec.shapes for spec in specs.values()}) > 1)


@watches(require_one_boundary)
def _boundary(_: None, tokens: int, block_size: int) -> None:
    JUST_A_BLOCK.reached_if(tokens == block_size)


@watches(require_conv_shape)
def _rows(_: None, rows: int, tokens: int) -> None:
    JUST_ROWS.reached_if(rows == tokens)


@watches(require_tables)
def _tables(_: None, tables: Sequence[TableView]) -> None:
    # All are as the first.
    WIDER_TABLE.reached_if(tables and tables[0].strides[0] > tables[0].shape[1])


@watches(require_states)
def _states(_: None, views: Sequence[StateView], most: int) -> None:
    FEWER_STATES.reached_if(len(views) < most)


@watches(metadata)
def _metadata(_: object, states: Sequence[StateTensor], num_slots: int) -> None:
    UNUSED.reached_if(len(states) < num_slots)


@watches(as_int64)
def _address(answer: int) -> None:
    HIGH_BIT.reached_if(answer < 0)
