"""Edges of align mode's host code: before initialisation, at the ends of integers, and of tables of one column."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from properties.strategies.align.runner import copy_buffers
from properties.strategies.refusals import SETUP, collected, create, initialize, layers
from statecheck.case.values import Attribute, Function, Let, Name, Raised, Step, Tensor, View
from statecheck.execution.in_process import InProcess
from statecheck.execution.run import executed
from subjects import load

memcpy: Any = import_module("impl.align.memcpy")
staging: Any = import_module("impl.align.staging")
states: Any = import_module("impl.align.states")
IMPL = load("impl")
MOST = 2**31 - 1
DRIVERS = {"run_fused_postprocess": 5, "run_fused_precopy": 4, "run_fused_postprocess_align": 4}


def after(steps: tuple[Step, ...]) -> tuple[Any, InProcess]:
    """The outcome of the last step, and where its names are bound."""
    port = InProcess(IMPL, "cpu")
    port.begin()
    return executed(port, steps)[-1], port


@pytest.fixture
def context() -> Any:
    """A context that knows no states yet."""
    _, port = after(create())
    return port.materialise(Name("ctx"))


@pytest.mark.parametrize("driver", DRIVERS)
def test_before_initialisation_nothing_is_looked_at(context: Any, driver: str) -> None:
    getattr(context, driver)(2, *[None] * DRIVERS[driver])


@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 4, 1)])
def test_moves_by_row_have_three_rows(context: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^moves = .* of shape \[3, n\] \[run_precopy_rows\]$"):
        context.run_precopy_rows(1, torch.zeros(shape, dtype=torch.int32))
    context.run_precopy_rows(1, torch.zeros(3, 4, dtype=torch.int32))


def test_more_copy_functions_than_states_are_refused() -> None:
    functions = (*SETUP.copy_functions, Function("get_conv_copy_spec"))
    outcome, _ = after(initialize(mamba_state_copy_funcs=functions))
    assert isinstance(outcome, Raised)
    assert outcome.message.startswith("mamba_state_copy_funcs = 3 functions, ")


@pytest.mark.parametrize("columns", [1, 5])
def test_the_columns_of_a_table_of_one_column_may_lie_apart(columns: int) -> None:
    outcome, _ = after(initialize(block_tables=[Tensor("int32", (2, 1), (1,) * 11, (columns, columns))]))
    assert not isinstance(outcome, Raised), outcome


def test_rows_of_one_element_may_lie_apart() -> None:
    one_row = View("pool0", "uint8", (3, 1, 2), (14, 99, 1))
    outcome, _ = after(initialize(forward_context=layers(temporal=one_row)))
    assert not isinstance(outcome, Raised), outcome


@pytest.mark.parametrize(("columns", "entries"), [((1, 1, 0), 0), ((1, 1, 1), 2), ((0, 1, 0), 2)])
def test_a_column_is_copied_onto_itself_only_where_it_is_shifted(
    columns: tuple[int, int, int], entries: int
) -> None:
    outcome, port = after(collected(*columns))
    assert not isinstance(outcome, Raised), outcome
    assert port.materialise(Attribute(Name("copy_bufs"), "offset")) == entries


def test_the_first_block_behind_the_pool_is_refused() -> None:
    for block in range(1, 12):
        outcome, port = after(collected(0, 1, blocks=[1, block]))
        blocks = port.materialise(Name("layers"))["layer0"].kv_cache[0].size(0)
        assert isinstance(outcome, Raised) is (block >= blocks), (block, outcome)


def lists(room: int, dtype: type = np.int64, offset: int = 0) -> Any:
    """The part of the copy buffers that the checks read."""
    held = {name: SimpleNamespace(np=np.zeros(room, np.int64)) for name in ("src_ptrs", "dst_ptrs")}
    return SimpleNamespace(**held, sizes=SimpleNamespace(np=np.zeros(room, dtype)), offset=offset)


@pytest.mark.parametrize(
    ("sizes", "fits"), [([MOST], True), ([MOST + 1], False), ([1, MOST + 1, 2], False), ([], True)]
)
def test_sizes_beyond_the_buffer_s_dtype_are_refused(sizes: list[int], fits: bool) -> None:
    entries = [memcpy.Entry(0, 0, size) for size in sizes]
    memcpy.check_room(lists(4), 0, entries, "f")
    if fits:
        memcpy.check_room(lists(4, np.int32), 0, entries, "f")
        return
    with pytest.raises(ValueError, match=r"^bufs.sizes = a int32 buffer, but should be wide enough for "):
        memcpy.check_room(lists(4, np.int32), 0, entries, "f")


@pytest.mark.parametrize("offset", [-1, 5])
def test_an_offset_outside_of_the_lists_is_refused(offset: int) -> None:
    with pytest.raises(ValueError, match=rf"^bufs.offset = {offset}, but should be in 0..4 "):
        memcpy.do_mamba_copy_block(lists(4, offset=offset))
    memcpy.do_mamba_copy_block(lists(4, offset=0))


@pytest.mark.parametrize("name", ["mamba_state_idx_buf", "num_draft_tokens_buf"])
def test_a_context_without_a_buffer_is_refused_by_name(context: Any, name: str) -> None:
    setattr(context, name, None)
    with pytest.raises(ValueError, match=rf"^ctx.{name} = None, .* \[stage_postprocess_inputs_to_gpu\]$"):
        staging.stage_postprocess_inputs_to_gpu(
            context, SimpleNamespace(num_scheduled_tokens={}, scheduled_spec_decode_tokens={}), [], 0, {}, {}
        )


def test_the_first_value_that_does_not_fit_32_bits_is_named(context: Any) -> None:
    columns = {"a": MOST, "b": MOST + 1}
    with pytest.raises(
        ValueError, match=rf"^mamba_state_idx\['b'\] = {MOST + 1}, but should be in 0..{MOST} "
    ):
        staging.stage_mamba_state_idx_to_gpu(columns, ["a", "b"], 2, context.mamba_state_idx_buf)


def test_room_for_no_request_is_refused_by_the_function_that_is_called() -> None:
    outcome, _ = after((Let("config", SETUP.config(4)), copy_buffers(SETUP, 0)))
    assert isinstance(outcome, Raised)
    assert outcome.message == "max_num_reqs = 0, but should be >= 1 [MambaCopyBuffers.create]"
