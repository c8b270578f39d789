"""Refusals of moves of states, for all small moves and rows of blocks, and their uploads."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from properties.strategies.refusals import postprocessed
from statecheck.case.values import Attribute, Name, Raised
from statecheck.execution.in_process import InProcess
from statecheck.execution.run import executed
from subjects import load

moves: Any = import_module("impl.align.moves")
memcpy: Any = import_module("impl.align.memcpy")
runner: Any = import_module("impl.align.runner")
IMPL = load("impl")
BLOCK_SIZE, SPEC = 4, 2
ROWS = [
    [0 if column == null else column + 1 for column in range(length)]
    for length in range(1, 6)
    for null in range(-1, length)
]


REFUSED = (
    r"^{place} = \d columns, |^block_ids\[\d\] = 0, but should be > 0, which is the null block, in {place} "
)
"""What is said of a column that is past a row of blocks, or null; `place` names the row."""


def decided(source: int, column: int, count: int, blocks: list[int], groups: int = 1) -> Any:
    """The step of one request that ran in column `source` and goes to `column`."""
    computed = column * BLOCK_SIZE + 1
    spec = SimpleNamespace(block_size=BLOCK_SIZE, num_speculative_blocks=SPEC)
    return moves.decide(
        SimpleNamespace(
            num_scheduled_tokens={"a": 2},
            finished_req_ids=[],
            preempted_req_ids=None,
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=[]),
        ),
        {"a": source},
        SimpleNamespace(req_ids=["a"], num_accepted_tokens_cpu=np.array([count], np.int32)),
        {"a": SimpleNamespace(num_computed_tokens=computed, block_ids=[blocks] * groups)},
        SimpleNamespace(mamba_spec=spec, mamba_group_ids=[0, 1], moves=None),
    )


def is_whole(blocks: list[int], source: int, column: int, count: int) -> bool:
    """Whether both ends of a move are blocks of the row, and the accepted column is."""
    return all(end < len(blocks) and blocks[end] > 0 for end in (source, source + count - 1, column))


@pytest.mark.parametrize("blocks", ROWS, ids=str)
def test_a_move_is_refused_where_an_end_is_no_block(blocks: list[int]) -> None:
    for source, column, count in product(range(3), range(4), (1, 2, 3)):
        if source == column:
            continue
        whole = is_whole(blocks, source, column, count)
        if whole:
            step = decided(source, column, count, blocks, groups=2)
            assert (step.src_cols, step.dst_cols, step.biases) == ([source], [column], [count - 1])
        else:
            with pytest.raises(ValueError, match=REFUSED.format(place=r"requests\['a'\].block_ids\[\d\]")):
                decided(source, column, count, blocks, groups=2)
        move = moves.Move(source, column, count - 1)
        if whole:
            memcpy._check_columns([blocks], [0], move, "f")
        else:
            null = REFUSED.format(place=r"req_state.block_ids\[0\]")
            with pytest.raises(ValueError, match="^(src_col|dst_col|bias) = |" + null):
                memcpy._check_columns([blocks], [0], move, "f")


def test_blocks_of_too_few_groups_and_counts_out_of_range_are_refused_by_value() -> None:
    with pytest.raises(
        ValueError, match=r"^requests\['a'\].block_ids = 1 groups, but should be more than 1 "
    ):
        decided(0, 1, 1, [1, 2], groups=1)
    with pytest.raises(ValueError, match=r"^input_batch.num_accepted_tokens_cpu\[0\] = 4, .* in 1..3 "):
        decided(0, 1, 4, [1, 2], groups=2)


def test_a_postprocess_of_no_request_leaves_its_context_as_it_was() -> None:
    port = InProcess(IMPL, "cpu")
    port.begin()
    outcome = executed(port, postprocessed(num_reqs=0))[-1]
    assert not isinstance(outcome, Raised), outcome
    assert not port.materialise(Attribute(Name("bufs"), "postprocess_align")).is_initialized
