"""The conv state layout, and the copy specifications of align mode."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hypothesis import assume
from hypothesis import strategies as st

from properties.strategies.layout import Copy, conv_copies, environment, layouts, temporal_copies
from statecheck.case.values import Address, call
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

CONV, TEMPORAL = "get_conv_copy_spec", "get_temporal_copy_spec"
LAYOUT, DIM_FIRST = "get_conv_state_layout", "is_conv_state_dim_first"


@prop("conv-layout/environment", "agreement", LAYOUT, DIM_FIRST, layout=layouts())
def test_conv_layout_environment(trial: Example, layout: str) -> None:
    """The environment variable selects the layout and SD is the default."""
    chosen = environment(layout)
    trial.agrees(
        call(LAYOUT), call(DIM_FIRST), call(LAYOUT, environment=chosen), call(DIM_FIRST, environment=chosen)
    )


STARTS = (
    Configuration("conv-copy/start", CONV, copy=conv_copies(), function=CONV, reason="at its row in a conv state"),
    Configuration("temporal-copy/start", TEMPORAL, copy=temporal_copies(), function=TEMPORAL, reason="in its block of a temporal state"),
)  # fmt: skip


@prop(STARTS, "agreement")
def a_copy_is_the_rules(trial: Example, copy: Copy, function: str) -> None:
    """A copy starts with the state of the last accepted token."""
    trial.agrees(copy.call(function))


@prop("temporal-copy/one-more-accepted", "metamorphic", TEMPORAL, copy=temporal_copies())
def test_temporal_copy_one_more_accepted(trial: Example, copy: Copy) -> None:
    """Accepting one more is starting one column later."""
    assume(copy.num_accepted_tokens > 1)
    later = replace(
        copy, cur_block_idx=copy.cur_block_idx + 1, num_accepted_tokens=copy.num_accepted_tokens - 1
    )
    result, other = trial.returns(copy.call(TEMPORAL)), trial.returns(later.call(TEMPORAL))
    trial.equals("result", result, other)


@prop("conv-copy/one-more-accepted", "metamorphic", CONV, copy=conv_copies(drawn_layouts=st.just("SD")))
def test_conv_copy_one_more_accepted(trial: Example, copy: Copy) -> None:
    """Accepting one more moves the start by a row and keeps the end."""
    assume(copy.num_accepted_tokens > 1)
    dim = copy.state.block_shape[1]
    fewer = trial.returns(replace(copy, num_accepted_tokens=copy.num_accepted_tokens - 1).call(CONV))
    more = trial.returns(copy.call(CONV))
    start, elements = more["start_addr"], more["num_elements"]
    inside = isinstance(start, Address) and isinstance(fewer["start_addr"], Address)
    trial.holds(inside, f"start_addr = {start}", "should point into the state", place="memory of start_addr")
    shorter = fewer["num_elements"] - elements == dim
    trial.holds(shorter, f"num_elements = {elements}", f"should be {dim} fewer", place="num_elements")
    moved = start.offset - fewer["start_addr"].offset
    trial.equals("start_addr", moved, dim * _itemsize(copy))


def _itemsize(copy: Copy) -> int:
    return {"float32": 4, "bfloat16": 2, "float16": 2}.get(copy.state.dtype, 1)


ONE_BLOCK = (
    Configuration("conv-copy/one-block", CONV, copy=conv_copies(drawn_layouts=st.just("SD")), function=CONV, reason="of a conv state"),
    Configuration("temporal-copy/one-block", TEMPORAL, copy=temporal_copies(), function=TEMPORAL, reason="of a temporal state"),
)  # fmt: skip


@prop(ONE_BLOCK, "red zone")
def it_stays_inside_one_block(trial: Example, copy: Copy, function: str) -> None:
    """A copy stays inside the data of one block."""
    spec = trial.returns(copy.call(function))
    start = spec["start_addr"]
    trial.holds(
        isinstance(start, Address), f"start_addr = {start}", "should point into the state", place="start_addr"
    )
    size = prod(copy.state.block_shape)
    block, inside = divmod(start.offset // _itemsize(copy), size + copy.state.padding)
    last = inside + spec["num_elements"]
    trial.holds(
        last <= size, f"elements {inside}..{last} of block {block}", f"should end by {size}", place="elements"
    )
    owned = copy.block_ids[copy.cur_block_idx :]
    trial.holds(block in owned, f"block {block}", f"should be one of {owned}", place="block")
