"""Strategies reach every size, bound and form; what a rule tells apart has marks of its own (properties/situations)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis.strategies import SearchStrategy

from properties.strategies import builders, layout
from properties.strategies.align.batches import (
    batches_after_forward,
    batches_before_forward,
    far_batches_after_forward,
)
from properties.strategies.align.pointers import runs
from properties.strategies.align.requests import FLAWS
from properties.strategies.align.runner import runner_steps
from properties.strategies.align.sessions import histories
from properties.strategies.align.setup import DTYPES, Setup
from properties.strategies.align.setup import setups as align_setups
from properties.strategies.batch import WIDE_BLOCKS, batches, block_tables, splittings
from properties.strategies.bounds import MANY_DRAFTS, MOST_CHUNKS, around
from properties.strategies.chunks import packed_sequences
from properties.strategies.layout import HUGE_STRIDE, LAYOUTS, Copy, conv_copies, temporal_copies
from properties.strategies.shapes import PUBLISHED_MODELS, TP_SIZES, models
from tests.unit.properties.strategies.drawing import drawn

STRATEGIES: dict[str, SearchStrategy[Any]] = {
    "packed sequences": packed_sequences(),
    "long packed sequences": packed_sequences(most_chunks=MOST_CHUNKS),
    "batches": batches(),
    "splittings": splittings(),
    "block tables": block_tables(),
    "conv copies": conv_copies(),
    "temporal copies": temporal_copies(),
    "models": models(),
    "builder setups": builders.setups(),
    "builder steps": builders.setups().flatmap(builders.steps),
    "align setups": align_setups(),
    "flawed afters": batches_after_forward(flawed=True),
    "crowded afters": batches_after_forward(crowded=True),
    "far afters": far_batches_after_forward(),
    "befores": batches_before_forward(uncounted=True),
    "runner steps": runner_steps(),
    "histories": histories(),
    "runs": runs(),
}


@cache
def drawn_by(strategy: str) -> tuple[Any, ...]:
    return drawn(STRATEGIES[strategy])


def percent(values: Collection[Any], names: Callable[[Any], Iterable[Hashable]]) -> dict[Hashable, float]:
    """How many of a hundred drawn values have each name."""
    counted = Counter(name for value in values for name in set(names(value)))
    return {name: 100 * count / len(values) for name, count in counted.items()}


def rejected(copy: Copy) -> int:
    return 1 + copy.num_spec - copy.num_accepted_tokens


def stored_rows(copy: Copy) -> int:
    return copy.state.block_shape[LAYOUTS.index(copy.layout)]


def largest(setup: Setup) -> int:
    return max(state.nbytes for group in setup.groups for state in group.states)


COUNTS = set(itertools.product(range(3), range(3)))
EITHER = {True, False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "value_of", "values", "least"),
    [
        ("models", lambda model: model.published, {"", *(row.name for row in PUBLISHED_MODELS)}, 0.5),
        ("models", lambda model: model.tp_size, set(TP_SIZES), 4),
        ("packed sequences", lambda packed: packed.chunk_size, {1, 2, 3, 4, 7, 8, 16, 64, 256}, 3),
        ("block tables", lambda table: table.block_size, {1, 2, 3, 4, 8}, 6),
        ("block tables", lambda table: table.block_size, set(WIDE_BLOCKS), 0.4),
        ("conv copies", lambda copy: (copy.num_accepted_tokens - 1, rejected(copy)), COUNTS, 2),
        ("temporal copies", lambda copy: (copy.num_accepted_tokens - 1, rejected(copy)), COUNTS, 2),
        ("temporal copies", lambda copy: copy.num_accepted_tokens - 1, set(around(MANY_DRAFTS)), 0.2),
        ("temporal copies", lambda copy: len(copy.state.block_shape), {1, 2, 3}, 10),
        ("conv copies", lambda copy: copy.num_accepted_tokens == stored_rows(copy), EITHER, 10),
    ],
)
def test_every_size_and_bound_is_reached(
    strategy: str, value_of: Callable[[Any], Hashable], values: set[Hashable], least: float
) -> None:
    seen = percent(drawn_by(strategy), lambda drawn_value: [value_of(drawn_value)])
    assert {value: seen.get(value, 0) for value in values if seen.get(value, 0) < least} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "value_of", "values"),
    [
        ("packed sequences", lambda packed: 0 in packed.lens, EITHER),
        ("long packed sequences", lambda packed: max(packed.lens, default=0) > 65_535 * packed.chunk_size, EITHER),
        ("long packed sequences", lambda packed: len(packed.lens) > 256, EITHER),
        ("batches", lambda batch: len(batch.requests) > 64, EITHER),
        ("batches", lambda batch: max(batch.seq_lens, default=0) > 2**30, EITHER),
        ("splittings", lambda splitting: (splitting.require_uniform, splitting.treat_short_extends_as_decodes), set(itertools.product(EITHER, EITHER))),
        ("block tables", lambda table: any(block > 2**30 for row in table.rows for block in row), EITHER),
        ("block tables", lambda table: max(table.seq_lens, default=0) > 2**30, EITHER),
        ("block tables", lambda table: table.dtype, {"int32", "int64"}),
        ("block tables", lambda table: table.extra_stride > 0 and table.offset > 0, EITHER),
        ("conv copies", lambda copy: copy.layout, set(LAYOUTS)),
        ("conv copies", lambda copy: copy.state.padding >= HUGE_STRIDE, EITHER),
        ("conv copies", lambda copy: copy.state.dtype, set(layout.DTYPES)),
        ("temporal copies", lambda copy: copy.state.offset > 0, EITHER),
        ("builder setups", lambda setup: (setup.full_cudagraphs, setup.parallel_drafting), set(itertools.product(EITHER, EITHER))),
        ("builder setups", lambda setup: setup.max_model_len > 2**30, EITHER),
        ("builder steps", lambda step: (step.marks, step.bounds, step.counts), set(itertools.product(EITHER, repeat=3))),
        ("builder steps", lambda step: len(step.requests) > 64, EITHER),
        ("align setups", lambda setup: (setup.layout, setup.attention), set(itertools.product(LAYOUTS, EITHER))),
        ("align setups", lambda setup: any(group.padding for group in setup.groups), EITHER),
        ("align setups", lambda setup: setup.shared and len(setup.groups) > 1, EITHER),
        ("align setups", lambda setup: setup.groups[0].states[0].dtype, set(DTYPES)),
        ("align setups", lambda setup: any(offset % 4 for group in setup.groups for offset in group.offsets), EITHER),
        ("align setups", lambda setup: largest(setup) > 16384, EITHER),
        ("align setups", lambda setup: setup.block_size > 2**20, EITHER),
        ("flawed afters", lambda batch: batch.requests[0].flaw if batch.requests else "", set(FLAWS)),
        ("crowded afters", lambda batch: batch.num_reqs > 256, EITHER),
        ("far afters", lambda batch: batch.filling.sparse, {True}),
        ("befores", lambda batch: batch.schedule.partition(":")[0], {"", "reversed", "switches"}),
        ("befores", lambda batch: (batch.filling.stale, batch.filling.shuffle > 0), set(itertools.product(EITHER, EITHER))),
        ("runner steps", lambda step: (step.pointers, bool(step.gone)), set(itertools.product(EITHER, EITHER))),
        ("histories", lambda history: len(history.requests) > 8, EITHER),
        ("histories", lambda history: history.slots > 0, EITHER),
        ("runs", lambda moved: any(run.size > 16384 > abs(run.distance) > 0 for run in moved.runs), EITHER),
        ("runs", lambda moved: len(moved.runs) > 64, EITHER),
    ],
)  # fmt: skip
def test_every_form_is_reached(
    strategy: str, value_of: Callable[[Any], Hashable], values: set[Hashable]
) -> None:
    seen = {value_of(drawn_value) for drawn_value in drawn_by(strategy)}
    for run in range(5, 60):
        if values <= seen:
            break
        seen |= {value_of(drawn_value) for drawn_value in drawn(STRATEGIES[strategy], [run])}
    assert values - seen == set()
